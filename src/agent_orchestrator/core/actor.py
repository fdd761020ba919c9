"""On whose behalf something is done, so that the events recorded meanwhile name the actor.

Code that starts something on behalf of a caller (the server for a request, the runner for an outbox row) wraps it in
`acting`. The actor applies to everything started within `acting`, until it ends; work and timers that continue after it
are attributed to the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

DAEMON = "daemon"

_AGENT_SOURCES = frozenset({"spool", "hooks", "record", "transcript", "http", "title", "screen", "mcp"})
"""Event sources that report what an agent does."""
_DAEMON_SOURCES = frozenset(
    {
        *("daemon", "forge", "checks", "queue", "scheduler", "git", "budget", "conflicts", "clock", "stack", "review"),
        *("limit", "node", "process", "server", "ao fix", "digest"),
    }
)
"""Event sources that are parts of the daemon."""


@dataclass(slots=True)
class Actor:
    """The actor, and the event that caused the action."""

    actor: str
    cause: int | None = None
    has_ended: bool = False
    """The block of `acting` has ended."""
    recorded_event_count: int = 0
    """Number of events that were recorded because of the action."""


_current: ContextVar[Actor | None] = ContextVar("behalf", default=None)


@contextmanager
def acting_as(actor: str, cause: int | None = None) -> Iterator[Actor]:
    """Attribute everything started within the context to this actor and cause."""
    behalf = Actor(actor, cause)
    token = _current.set(behalf)
    try:
        yield behalf
    finally:
        behalf.has_ended = True
        _current.reset(token)


def current_actor() -> Actor | None:
    """Return the current actor, or None if the daemon acts on its own."""
    behalf = _current.get()
    return None if behalf is None or behalf.has_ended else behalf


def actor_of_source(source: str, session: str | None) -> str:
    """Return the actor as far as it follows from an event's source."""
    if source in _DAEMON_SOURCES:
        return DAEMON
    if source in _AGENT_SOURCES:
        return f"agent {session}" if session else "agent"
    head, _, name = source.partition(" ")
    return f"agent {name}" if head == "session" and name else source
