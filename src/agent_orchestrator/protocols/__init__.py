"""The protocols of the seven plugin slots, and the records they exchange.

Plugins import from here: `agent_orchestrator.protocols` is public, its modules are not.

A session is one agent working on one task in one workspace on one branch. Four slots run a session:

    Workspace  makes the folder and the branch          plugins/workspaces/
    Agent      knows one CLI: how to start, read and talk to it   plugins/agents/
    Runtime    keeps the agent's terminal alive         plugins/runtimes/
    Terminal   opens a session for a person             plugins/terminals/

and three connect it to the world: `Tracker` (issues), `SCM` (pull requests, checks, reviews), both in `forge.py`; `Notifier` (people).

How reports of an agent arrive: it appends lines to its spool (`plugins/agents/shared/spool.py` reads them), its plugin reads its
records, transcript, hooks or protocol (`Agent.listen`), its process ends, its branch moves, its screen changes;
`sessions/agents/observer.py` turns each into an event and records it. What follows from the events is executed as effects
(`sessions/lifecycle/effects.py`), which call the plugins below.

A plugin is one class in one file. It inherits from its slot's base class, whose required methods are abstract; the others have
defaults, which mean that the plugin does not do that. It is constructed as `Plugin(config, host)`: `config` is its own part of the
configuration, `host` the machine it acts on (`base/host.py`; the only way to start a process). It keeps no state that
would be missing after a restart of the daemon: what must be remembered is part of what its methods return, which the
daemon stores as events (`core/events/`).

Methods with side effects are called by effects (`core/effects.py`), which may be repeated after a crash. So each of
them must be safe to call again with the same arguments: it finds what it did before and finishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_orchestrator.protocols.agent import Activity as Activity
from agent_orchestrator.protocols.agent import Agent as Agent
from agent_orchestrator.protocols.agent import AgentContext as AgentContext
from agent_orchestrator.protocols.agent import AgentLaunch as AgentLaunch
from agent_orchestrator.protocols.agent import AgentState as AgentState
from agent_orchestrator.protocols.agent import FileChanges as FileChanges
from agent_orchestrator.protocols.agent import InstalledAgent as InstalledAgent
from agent_orchestrator.protocols.agent import Permission as Permission
from agent_orchestrator.protocols.agent import ReportBatch as ReportBatch
from agent_orchestrator.protocols.agent import RunningLaunch as RunningLaunch
from agent_orchestrator.protocols.agent import ScreenRules as ScreenRules
from agent_orchestrator.protocols.agent import TurnCommand as TurnCommand
from agent_orchestrator.protocols.agent import TurnLine as TurnLine
from agent_orchestrator.protocols.clock import Clock as Clock
from agent_orchestrator.protocols.clock import Sleep as Sleep
from agent_orchestrator.protocols.clock import Timer as Timer
from agent_orchestrator.protocols.forge import MAX_FORGE_TEXT_LENGTH as MAX_FORGE_TEXT_LENGTH
from agent_orchestrator.protocols.forge import SCM as SCM
from agent_orchestrator.protocols.forge import Access as Access
from agent_orchestrator.protocols.forge import Author as Author
from agent_orchestrator.protocols.forge import BaseChecks as BaseChecks
from agent_orchestrator.protocols.forge import Hint as Hint
from agent_orchestrator.protocols.forge import Hooks as Hooks
from agent_orchestrator.protocols.forge import IssueChange as IssueChange
from agent_orchestrator.protocols.forge import KnownPullRequest as KnownPullRequest
from agent_orchestrator.protocols.forge import Merged as Merged
from agent_orchestrator.protocols.forge import MergeOptions as MergeOptions
from agent_orchestrator.protocols.forge import MergeQueued as MergeQueued
from agent_orchestrator.protocols.forge import MissingPermission as MissingPermission
from agent_orchestrator.protocols.forge import PullRequestCheck as PullRequestCheck
from agent_orchestrator.protocols.forge import PullRequestComment as PullRequestComment
from agent_orchestrator.protocols.forge import PullRequestReview as PullRequestReview
from agent_orchestrator.protocols.forge import PullRequestSpec as PullRequestSpec
from agent_orchestrator.protocols.forge import PullRequestState as PullRequestState
from agent_orchestrator.protocols.forge import Tracker as Tracker
from agent_orchestrator.protocols.forge import TrackerComment as TrackerComment
from agent_orchestrator.protocols.forge import TrackerIssue as TrackerIssue
from agent_orchestrator.protocols.forge import Unmergeable as Unmergeable
from agent_orchestrator.protocols.forge import WebhookDelivery as WebhookDelivery
from agent_orchestrator.protocols.host import Host as Host
from agent_orchestrator.protocols.host import LineCallback as LineCallback
from agent_orchestrator.protocols.host import ProcessId as ProcessId
from agent_orchestrator.protocols.host import ProgramResult as ProgramResult
from agent_orchestrator.protocols.notifier import Notification as Notification
from agent_orchestrator.protocols.notifier import NotificationAction as NotificationAction
from agent_orchestrator.protocols.notifier import Notifier as Notifier
from agent_orchestrator.protocols.plugin import Plugin as Plugin
from agent_orchestrator.protocols.plugin import PluginFactory as PluginFactory
from agent_orchestrator.protocols.records import record as record
from agent_orchestrator.protocols.runtime import Alive as Alive
from agent_orchestrator.protocols.runtime import Container as Container
from agent_orchestrator.protocols.runtime import Delivered as Delivered
from agent_orchestrator.protocols.runtime import Delivery as Delivery
from agent_orchestrator.protocols.runtime import Exit as Exit
from agent_orchestrator.protocols.runtime import Gone as Gone
from agent_orchestrator.protocols.runtime import Handle as Handle
from agent_orchestrator.protocols.runtime import LaunchSpec as LaunchSpec
from agent_orchestrator.protocols.runtime import Liveness as Liveness
from agent_orchestrator.protocols.runtime import Mount as Mount
from agent_orchestrator.protocols.runtime import NotReady as NotReady
from agent_orchestrator.protocols.runtime import ProbeFailed as ProbeFailed
from agent_orchestrator.protocols.runtime import ReadyToType as ReadyToType
from agent_orchestrator.protocols.runtime import Runtime as Runtime
from agent_orchestrator.protocols.runtime import Undeliverable as Undeliverable
from agent_orchestrator.protocols.terminal import Terminal as Terminal
from agent_orchestrator.protocols.terminal import Window as Window
from agent_orchestrator.protocols.text import clean_text as clean_text
from agent_orchestrator.protocols.text import is_visible as is_visible
from agent_orchestrator.protocols.text import make_visible as make_visible
from agent_orchestrator.protocols.text import neutralize_forge_commands as neutralize_forge_commands
from agent_orchestrator.protocols.text import one_line as one_line
from agent_orchestrator.protocols.text import quote_file_name as quote_file_name
from agent_orchestrator.protocols.text import replace_lone_surrogates as replace_lone_surrogates
from agent_orchestrator.protocols.text import without_commands as without_commands
from agent_orchestrator.protocols.workspace import Workspace as Workspace
from agent_orchestrator.protocols.workspace import WorkspaceInfo as WorkspaceInfo
from agent_orchestrator.protocols.workspace import WorkspaceSpec as WorkspaceSpec

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Raise `ImportError` with the present name of a class that had another one."""
        from agent_orchestrator.protocols.earlier_names import EARLIER_CLASSES

        if name in EARLIER_CLASSES:
            raise ImportError(f"{__name__} has no {name} any more: use {EARLIER_CLASSES[name]}, see docs/upgrading.md")
        raise AttributeError(f"module {__name__} has no attribute {name}")
