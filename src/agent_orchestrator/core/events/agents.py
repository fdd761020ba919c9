"""Events of agents: the start and end of their processes, and their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class AgentLaunched(Body):
    """The agent's process runs."""

    handle: Mapping[str, Any]
    resumed: bool = False
    conversation: str | None = None
    env_notes: tuple[str, ...] = ()
    inbox: bool = False
    """It takes its messages from its inbox file: nothing is typed."""
    memo: Mapping[str, str] = field(default_factory=dict)
    """The plugin's own notes on this launch."""


@record
class AgentConversation(Body):
    """The id by which the agent continues this conversation."""

    conversation: str


@record
class AgentTurnEnded(Body):
    """The agent has finished a turn; `text` is the last thing it said."""

    text: str = ""


@record
class AgentActivity(Body):
    """What the agent is doing."""

    state: str
    detail: str = ""


@record
class AgentAck(Body):
    """The agent took a message up; it may not say which: then the oldest that was delivered."""

    message: str = ""


@record
class AgentProgress(Body):
    """How far it is."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@record
class AgentOutput(Body):
    """Its terminal printed something at that time: a sign of life, no more."""


@record
class AgentAsk(Body):
    """The agent asks a person."""

    question: str
    stands: bool = False
    """It was put in the midst of a turn: the turn's end does not settle it, a message does."""


@record
class AgentDone(Body):
    """The agent says its work is ready."""

    summary: str = ""


@record
class AgentReview(Body):
    """A reviewing agent gave its verdict on the change."""

    verdict: str
    body: str = ""
    comments: tuple[Mapping[str, Any], ...] = ()
    """Each with `path`, `line` and `body`."""


@record
class AgentReport(Body):
    """The agent reported something of another kind; kept unchanged."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


@record
class AgentReportInvalid(Body):
    """A line in the spool could not be read."""

    reason: str
    excerpt: str = ""


@record
class AgentExited(Body):
    """The agent's process has ended without being stopped."""

    code: int | None = None
    signal: int | None = None
    output: str = ""
    """The last lines that it showed."""
    reason: str = ""
    """Why, where that is known: it ran out of memory …"""


@record
class AgentLost(Body):
    """The agent is gone with its terminal: a reboot, a killed tmux or holder. Not its own doing."""

    reason: str


@record
class AgentStopped(Body):
    """We ended the agent's process, as asked."""

    code: int | None = None
    signal: int | None = None
