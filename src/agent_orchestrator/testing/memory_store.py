"""A store in memory for tests of code that appends events: as strict as a database, with failures on request.

`fail_at` makes a write fail as on a full disk: nothing of it is kept, the next one works. `crash_at` makes the store crash at a
write, before or after its commit, as by `kill -9`; `clone` returns the store as the next start finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from agent_orchestrator.base.hash_chain import digest, encode_data
from agent_orchestrator.core.events import Event, encode
from agent_orchestrator.core.outbox import Batch, LogEntry, LogEntryFilter, OutboxRow, Snapshot, StoredKeys
from agent_orchestrator.errors import AoError, Temporary

T = TypeVar("T")


class MemoryStore:
    """Events, outbox and snapshot in dictionaries; a write is committed once `write` returns."""

    def __init__(self) -> None:
        self.commit_count = 0
        self.is_dead = False
        self._events: dict[str, Event] = {}
        self._rows: dict[str, OutboxRow] = {}
        self._snapshot: Snapshot | None = None
        self._writes = 0
        self._failing: set[int] = set()
        self._crash: tuple[int, bool] | None = None

    def clone(self) -> MemoryStore:
        """Return another store with the committed data of this one, without its faults."""
        other = MemoryStore()
        other._events, other._rows, other._snapshot = dict(self._events), dict(self._rows), self._snapshot
        return other

    def fail_at(self, write: int) -> None:
        """Make the `write`-th write from now (from 1) fail and keep nothing."""
        self._failing.add(self._writes + write)

    def crash_at(self, write: int, *, committed: bool) -> None:
        """Make the store crash at the `write`-th write from now (from 1), before or after committing it."""
        self._crash = (self._writes + write, committed)

    def crash(self) -> None:
        """Crash the store now: every later read and write fails."""
        self.is_dead = True

    # -- the protocol ------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        self._check()
        return len(self._events)

    async def write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        self._check()
        await asyncio.sleep(0)
        self._begin_write()
        batch, answer = compute(_MemoryKeys(self._events, self._rows))
        events, rows = self._checked(batch)
        if self._crash and self._writes == self._crash[0] and not self._crash[1]:
            self.crash()
            self._check()
        self._events, self._rows = events, rows
        self.commit_count += 1
        if self._crash and self._writes == self._crash[0]:
            self.crash()
            self._check()
        await asyncio.sleep(0)
        return answer

    async def snapshot(self) -> Snapshot | None:
        self._check()
        return self._snapshot

    async def save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        self._check()
        self._begin_write()
        old = self._snapshot.sessions if self._snapshot else {}
        sessions = {**old, **{name: snapshot.sessions[name] for name in changed}}
        self._snapshot = Snapshot(snapshot.seq, snapshot.home, sessions)

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
        self._check()
        events = [
            event
            for event in self._events.values()
            if event.seq > after and session in (None, event.session) and project in (None, event.project)
            if kind in (None, event.type)
        ]
        return events[max(0, len(events) - limit) :] if newest else events[:limit]

    async def event_by_key(self, key: str) -> Event | None:
        self._check()
        return self._events.get(key)

    async def entries(
        self, entry_filter: LogEntryFilter, after: int = 0, limit: int = 1000, *, newest: bool = False
    ) -> list[LogEntry]:
        self._check()
        entries = [entry for entry in self._chain() if entry["seq"] > after and _matches_filter(entry, entry_filter)]
        return entries[max(0, len(entries) - limit) :] if newest else entries[:limit]

    async def event_types(self, seqs: Sequence[int]) -> dict[int, str]:
        self._check()
        return {event.seq: event.type for event in self._events.values() if event.seq in seqs}

    async def pending(self) -> list[OutboxRow]:
        self._check()
        return sorted((row for row in self._rows.values() if row.state == "pending"), key=lambda row: row.order)

    async def rows(self, session: str, limit: int = 50) -> list[OutboxRow]:
        self._check()
        rows = [row for row in self._rows.values() if row.intent.session == session]
        return sorted(rows, key=lambda row: -row.order)[:limit]

    async def close(self) -> None:
        """Do nothing; there is nothing to close."""

    def _chain(self) -> list[LogEntry]:
        chain: list[LogEntry] = []
        for event in self._events.values():
            names = ("seq", "key", "type", "project", "session", "generation", "source", "time", "actor", "cause")
            entry = {name: getattr(event, name) for name in names} | {
                "at": event.time,
                "data": encode_data(encode(event.body)),
            }
            chain.append({**entry, "digest": digest(chain[-1]["digest"] if chain else "", entry)})
        return chain

    # -- inside ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.is_dead:
            raise AoError("the store is gone", "start anew on its clone")

    def _begin_write(self) -> None:
        self._check()
        self._writes += 1
        if self._writes in self._failing:
            raise Temporary("the store is full", "make room")

    def _checked(self, batch: Batch) -> tuple[dict[str, Event], dict[str, OutboxRow]]:
        """Return events and rows with this batch added; raise `ValueError` where a database's constraints would fail."""
        events, rows = dict(self._events), dict(self._rows)
        for event in batch.events:
            if event.key in events or event.seq != len(events) + 1:
                raise ValueError(f"event {event.key} does not fit at {event.seq} behind {len(events)} events")
            events[event.key] = event
        for row in batch.rows:
            existing_row = rows.get(row.intent.key)
            if not row.updated_at and existing_row is not None and existing_row.state != "dropped":
                raise ValueError(f"row {row.intent.key} is there already")
            if not row.updated_at or existing_row is not None:
                rows[row.intent.key] = row
        return events, rows


def _matches_filter(entry: LogEntry, entry_filter: LogEntryFilter) -> bool:
    conditions = (("session", entry_filter.session), ("project", entry_filter.project), ("type", entry_filter.kind))
    if any(value is not None and entry[name] != value for name, value in conditions):
        return False
    if entry_filter.actor is not None and entry_filter.actor not in (entry["actor"], entry["actor"].partition(" ")[0]):
        return False
    return (entry_filter.since is None or entry["at"] >= entry_filter.since) and (
        entry_filter.until is None or entry["at"] < entry_filter.until
    )


class _MemoryKeys:
    def __init__(self, events: dict[str, Event], rows: dict[str, OutboxRow]) -> None:
        self._events = events
        self._rows = rows

    def event_keys(self, keys: Sequence[str]) -> set[str]:
        return self._events.keys() & set(keys)

    def intent_keys(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if key in self._rows and self._rows[key].state != "dropped"}
