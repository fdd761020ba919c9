"""What is still to be done, durably: intents recorded in the same transaction as the event that caused them.

A row is *pending* until its effect's result is recorded, in one transaction with the events that tell the result: then it is
*done*, *dropped* (not needed any more) or *failed* (given up). So a kill at any instruction leaves either the row or the result.
A row's `attempts` is written before an effect that could not tell by itself whether it ran already.
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


_OF_AGENT = frozenset({"prepare", "launch", "deliver", "publish", "rebase", "stop", "clean-up"})
"""Kinds that touch a session's agent or workspace."""
_APART = frozenset({"draft-plan", "apply-plan"})
"""Kinds that belong to no session, and wait for nobody."""


@dataclass(frozen=True, slots=True)
class Row:
    """One intent in the outbox."""

    intent: Intent
    cause: int
    """The event that it came from."""
    order: int
    due: float
    attempts: int = 0
    state: str = "pending"
    result: str = ""
    updated: float = 0.0

    @property
    def lane(self) -> str:
        """Rows of one lane are carried out one after the other."""
        if self.intent.kind in _APART:
            return self.intent.key
        if notifier := self.intent.args.get("notifier"):
            return f"{self.intent.kind} {notifier}"
        side = "" if self.intent.kind in _OF_AGENT else f" {self.intent.kind}"
        return self.intent.session + side


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction writes."""

    events: Sequence[Event] = ()
    rows: Sequence[Row] = ()
    """New ones, which take the place of a dropped one with their key, and old ones with a new state."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Facts as of an event."""

    seq: int
    home: HomeFacts
    sessions: dict[str, SessionFacts] = field(default_factory=dict)


Entry = Mapping[str, Any]
"""An event just as it is kept: `data` as text, `at` in seconds, with its `digest` (`ledger.py`)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries of the log are meant; none: any."""

    session: str | None = None
    project: str | None = None
    actor: str | None = None
    """One, or all whose name begins with this word: `rule`, `agent`."""
    kind: str | None = None
    since: float | None = None
    until: float | None = None


class Store(Protocol):
    """Where events, outbox and snapshots are kept. One writer; whoever calls needs to know no SQL."""

    async def open(self) -> int:
        """Make or migrate the schema; returns the last event's sequence number."""
        ...

    async def write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        """Run `compute` in the writer's thread and commit its batch; what it returned beside comes back."""
        ...

    async def snapshot(self) -> Snapshot | None:
        """The last saved facts, if they are of this version."""
        ...

    async def save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        """Keep the facts of the sessions that changed."""
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
        """Events in order; `newest`: the last ones instead of the first."""
        ...

    async def event_by_key(self, key: str) -> Event | None:
        """The event with this idempotency key."""
        ...

    async def entries(self, wanted: Wanted, after: int = 0, limit: int = 1000, *, newest: bool = False) -> list[Entry]:
        """Events as they are kept, in order; `newest`: the last ones instead of the first."""
        ...

    async def types(self, seqs: Sequence[int]) -> dict[int, str]:
        """The kinds of these events."""
        ...

    async def pending(self) -> list[Row]:
        """Rows that are still to be carried out, in order."""
        ...

    async def rows(self, session: str, limit: int = 50) -> list[Row]:
        """A session's rows, newest first."""
        ...

    async def close(self) -> None:
        """Finish writing."""
        ...


class Known(Protocol):
    """What the writer can ask inside its transaction."""

    def event_keys(self, keys: Sequence[str]) -> set[str]:
        """Those keys that are in the log already."""
        ...

    def intent_keys(self, keys: Sequence[str]) -> set[str]:
        """Those keys that are in the outbox already; a dropped row's key is free again."""
        ...


def settled(row: Row, state: str, now: float, result: str = "") -> Row:
    """The row with its end."""
    return replace(row, state=state, result=result[:1000], updated=now)


def postponed(row: Row, due: float, now: float, *, failed_attempt: bool, result: str = "") -> Row:
    """The row, to be tried again."""
    return replace(row, due=due, attempts=row.attempts + failed_attempt, updated=now, result=result[:1000])


def pause(attempts: int, first: float = 0.5, most: float = 60.0, jitter: Callable[[], float] = random.random) -> float:
    """Seconds before the next attempt: doubling, bounded, spread by up to a half."""
    grown = min(most, first * 2.0 ** min(attempts, 30))
    return grown * (0.5 + 0.5 * jitter())


def row_json(row: Row) -> dict[str, Any]:
    """A row as users see it."""
    from agent_orchestrator.core.events import rfc3339

    return {
        "kind": row.intent.kind,
        "key": row.intent.key,
        "state": row.state,
        "attempts": row.attempts,
        "due": rfc3339(row.due) if row.due else None,
        "cause": row.cause,
        "result": row.result or None,
        "updatedAt": rfc3339(row.updated) if row.updated else None,
    }
