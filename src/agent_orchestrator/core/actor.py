"""On whose behalf something is done: what is recorded meanwhile says so.

Whoever begins something for somebody (the server for a request, the runner for a row of the outbox) says it by `acting`. It holds for
all that is begun within, and no longer than `acting` itself: what goes on afterwards, and timers that come of it, are the daemon's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

DAEMON = "daemon"

_OF_AGENTS = frozenset({"spool", "hooks", "record", "transcript", "http", "title", "screen", "mcp"})
_OWN = frozenset(
    {
        *("daemon", "forge", "checks", "queue", "scheduler", "git", "budget", "conflicts", "clock", "stack", "review"),
        *("limit", "node", "process", "server", "ao fix", "digest"),
    }
)


@dataclass(slots=True)
class Behalf:
    """Who acts, and because of which event."""

    actor: str
    cause: int | None = None
    over: bool = False
    told: int = 0
    """How many events were recorded because of it."""


_current: ContextVar[Behalf | None] = ContextVar("behalf", default=None)


@contextmanager
def acting(actor: str, cause: int | None = None) -> Iterator[Behalf]:
    """Everything begun within is done by this one, because of this event."""
    behalf = Behalf(actor, cause)
    before = _current.set(behalf)
    try:
        yield behalf
    finally:
        behalf.over = True
        _current.reset(before)


def current() -> Behalf | None:
    """Who acts just now; none: the daemon by itself."""
    behalf = _current.get()
    return None if behalf is None or behalf.over else behalf


def actor_by(source: str, session: str | None) -> str:
    """Who it was, as far as an event's source tells."""
    if source in _OWN:
        return DAEMON
    if source in _OF_AGENTS:
        return f"agent {session}" if session else "agent"
    head, _, name = source.partition(" ")
    return f"agent {name}" if head == "session" and name else source
