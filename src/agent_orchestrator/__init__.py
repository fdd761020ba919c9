"""Agent Orchestrator: a fleet of coding agents, each in its own Git worktree, on its own branch, its work never lost.

The names below are the Python API (docs/python.md). They are imported when they are first used: the command line uses none.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; `typing` itself would be half of what a command may take
if TYPE_CHECKING:
    from agent_orchestrator.client.api.connection import TimedOut as TimedOut
    from agent_orchestrator.client.api.events import Event as Event
    from agent_orchestrator.client.api.events import FailedCheck as FailedCheck
    from agent_orchestrator.client.api.fleet import HandlerError as HandlerError
    from agent_orchestrator.client.api.fleet import Result as Result
    from agent_orchestrator.client.api.orchestrator import Orchestrator as Orchestrator
    from agent_orchestrator.client.api.orchestrator import OrchestratorAgent as OrchestratorAgent
    from agent_orchestrator.client.api.orchestrator import Worktree as Worktree
    from agent_orchestrator.client.api.plugins import AgentConfig as AgentConfig
    from agent_orchestrator.client.api.plugins import AgentPlugin as AgentPlugin
    from agent_orchestrator.client.api.plugins import AgentStatus as AgentStatus
    from agent_orchestrator.client.api.plugins import NotifierPlugin as NotifierPlugin
    from agent_orchestrator.client.api.records import AgentRuntime as AgentRuntime
    from agent_orchestrator.client.api.records import Diff as Diff
    from agent_orchestrator.client.api.records import PullRequest as PullRequest
    from agent_orchestrator.client.api.records import SessionStatus as SessionStatus
    from agent_orchestrator.client.api.sessions import Session as Session
    from agent_orchestrator.client.api.sessions import SessionManager as SessionManager
    from agent_orchestrator.client.api.tasks import Piece as Piece
    from agent_orchestrator.client.api.tasks import Plan as Plan
    from agent_orchestrator.client.api.tasks import Task as Task
    from agent_orchestrator.errors import AoError as AoError
    from agent_orchestrator.protocols import Notification as Notification

__version__ = "0.1.0"

_HOMES = {
    "client.api.events": ("Event", "FailedCheck"),
    "client.api.fleet": ("HandlerError", "Result"),
    "client.api.connection": ("TimedOut",),
    "client.api.orchestrator": ("Orchestrator", "OrchestratorAgent", "Worktree"),
    "client.api.plugins": ("AgentConfig", "AgentPlugin", "AgentStatus", "NotifierPlugin"),
    "client.api.records": ("AgentRuntime", "Diff", "PullRequest", "SessionStatus"),
    "client.api.sessions": ("Session", "SessionManager"),
    "client.api.tasks": ("Piece", "Plan", "Task"),
    "errors": ("AoError",),
    "protocols": ("Notification",),
}


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a name of the API when it is first asked for."""
        for module, names in _HOMES.items():
            if name in names:
                import importlib

                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _HOMES.values() for name in names)})
