"""The outbox: intents that are still to be carried out, recorded in the transaction of the event that caused them.

A row is *pending* until the result of its effect is recorded, in one transaction with the events that describe the
result. Then it is *done*, *dropped* (no longer needed) or *failed* (given up). So a crash at any point leaves either
the pending row or the result. If an effect cannot detect whether it ran before, its row's `attempts` is written before
it starts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts, SessionFacts
from agent_orchestrator.core.reactions import Intent

T = TypeVar("T")


_AGENT_KINDS = frozenset({"prepare", "launch", "deliver", "publish", "rebase", "stop", "clean-up"})
"""Kinds of intents that use a session's agent or workspace; they share the session's lane."""
_INDEPENDENT_KINDS = frozenset({"draft-plan", "apply-plan"})
"""Kinds of intents that belong to no session; each has a separate lane."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One intent in the outbox."""

    intent: Intent
    cause: int
    """The number of the event that it came from."""
    order: int
    due: float
    attempts: int = 0
    state: str = "pending"
    result: str = ""
    updated_at: float = 0.0

    @property
    def lane(self) -> str:
        """The name of the row's lane; rows of one lane are carried out one after the other."""
        if self.intent.kind in _INDEPENDENT_KINDS:
            return self.intent.key
        if notifier := self.intent.args.get("notifier"):
            return f"{self.intent.kind} {notifier}"
        suffix = "" if self.intent.kind in _AGENT_KINDS else f" {self.intent.kind}"
        return self.intent.session + suffix


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction writes."""

    events: Sequence[Event] = ()
    rows: Sequence[OutboxRow] = ()
    """New rows, which replace a dropped row with the same key, and existing rows with a new state."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts after an event."""

    seq: int
    home: HomeFacts
    sessions: dict[str, SessionFacts] = field(default_factory=dict)


LogEntry = Mapping[str, Any]
"""An event as stored: `data` as text, `at` in seconds, with its `digest` (`base/hash_chain.py`)."""


@dataclass(frozen=True, slots=True)
class LogEntryFilter:
    """A filter for entries of the log; a field that is None matches any entry."""

    session: str | None = None
    project: str | None = None
    actor: str | None = None
    """One actor, or all whose name begins with this word: `rule`, `agent`."""
    kind: str | None = None
    since: float | None = None
    until: float | None = None


class Store(Protocol):
    """The storage of events, outbox and snapshots. It has one writer; callers need no SQL."""

    async def open(self) -> int:
        """Create or migrate the schema, and return the last event's sequence number."""
        ...

    async def write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        """Run `compute` in the writer's thread, commit its batch, and return the second value that it returned."""
        ...

    async def snapshot(self) -> Snapshot | None:
        """Return the last saved facts, or None if there are none of this version."""
        ...

    async def save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        """Save the facts of the home and of the changed sessions."""
        ...

    async def events(
        self,
        after: int = 0,
        limit: int = 1000,
        *,
        session: str | None = None,
        project: str | None = None,
        kind: str | None = None,
        newest: bool = False,
    ) -> list[Event]:
        """Return events in order; `newest`: the last ones instead of the first."""
        ...

    async def event_by_key(self, key: str) -> Event | None:
        """Return the event with this idempotency key, or None."""
        ...

    async def entries(
        self, entry_filter: LogEntryFilter, after: int = 0, limit: int = 1000, *, newest: bool = False
    ) -> list[LogEntry]:
        """Return events as stored, in order; `newest`: the last ones instead of the first."""
        ...

    async def event_types(self, seqs: Sequence[int]) -> dict[int, str]:
        """Return the kinds of these events."""
        ...

    async def pending(self) -> list[OutboxRow]:
        """Return the rows that are still to be carried out, in order."""
        ...

    async def rows(self, session: str, limit: int = 50) -> list[OutboxRow]:
        """Return a session's rows, newest first."""
        ...

    async def close(self) -> None:
        """Finish writing and close the store."""
        ...


class StoredKeys(Protocol):
    """What the writer can read inside its transaction."""

    def event_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are already in the log."""
        ...

    def intent_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are already in the outbox; a dropped row's key counts as free."""
        ...


def with_final_state(row: OutboxRow, state: str, now: float, result: str = "") -> OutboxRow:
    """Return the row with a final state."""
    return replace(row, state=state, result=result[:1000], updated_at=now)


def with_due_time(row: OutboxRow, due: float, now: float, *, failed_attempt: bool, result: str = "") -> OutboxRow:
    """Return the row with a new due time."""
    return replace(row, due=due, attempts=row.attempts + failed_attempt, updated_at=now, result=result[:1000])


def retry_pause(
    attempts: int, first: float = 0.5, most: float = 60.0, jitter: Callable[[], float] = random.random
) -> float:
    """Return the seconds before the next attempt: doubling, bounded, spread by up to a half."""
    longest = min(most, first * 2.0 ** min(attempts, 30))
    return longest * (0.5 + 0.5 * jitter())


def row_json(row: OutboxRow) -> dict[str, Any]:
    """Return a row as JSON data for users."""
    from agent_orchestrator.core.events import rfc3339

    return {
        "kind": row.intent.kind,
        "key": row.intent.key,
        "state": row.state,
        "attempts": row.attempts,
        "due": rfc3339(row.due) if row.due else None,
        "cause": row.cause,
        "result": row.result or None,
        "updatedAt": rfc3339(row.updated_at) if row.updated_at else None,
    }
