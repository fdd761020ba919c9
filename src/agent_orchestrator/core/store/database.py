"""The store on any database that SQLAlchemy supports; SQLite is the default, `postgres.py` has what is specific to PostgreSQL.

One thread writes and one reads, so a transaction costs the event loop one thread switch, whatever its number of
statements. SQLite uses a write-ahead log with full synchronisation: what `write` has returned survives a power failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    insert,
    make_url,
    or_,
    select,
    update,
)
from sqlalchemy import text as sql
from sqlalchemy.exc import DBAPIError, OperationalError

from agent_orchestrator.base.hash_chain import ChainHead, digest
from agent_orchestrator.base.hash_chain import encode_data as _json
from agent_orchestrator.core.events import Body, Event, Unknown, decode, encode
from agent_orchestrator.core.facts import FACTS_VERSION, HomeFacts, SessionFacts
from agent_orchestrator.core.outbox import Batch, LogEntry, LogEntryFilter, OutboxRow, Snapshot, StoredKeys
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.store import codec, schema
from agent_orchestrator.core.store.migrations import migrate
from agent_orchestrator.errors import AoError, Temporary

log = structlog.get_logger()

_WRITES_OPTION = "ao_writes"
"""Execution option that marks the connection used for writing."""

T = TypeVar("T")
R = TypeVar("R")


class Database:
    """The store in one database."""

    def __init__(self, url: str | URL) -> None:
        self.url = make_url(url)
        self._engine: Engine | None = None
        self._writing = ThreadPoolExecutor(1, "store-writer")
        self._reading = ThreadPoolExecutor(1, "store-reader")
        self._write_connection: Connection | None = None
        self._head = ChainHead()

    @classmethod
    def sqlite(cls, path: Path) -> Database:
        """Return the default store, an SQLite file."""
        return cls(URL.create("sqlite", database=str(path)))

    async def open(self) -> int:
        """Create or migrate the schema, and return the last event's sequence number."""
        return await self._run_in(self._writing, self._open)

    async def write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        """Run `compute` in the writer's thread, commit its batch, and return the second value that it returned."""
        return await self._run_in(self._writing, lambda: self._write(compute))

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
        table = schema.events
        query = select(table).where(table.c.seq > after).limit(limit)
        query = query.order_by(table.c.seq.desc() if newest else table.c.seq)
        if session:
            query = query.where(table.c.session == session)
        if project:
            query = query.where(table.c.project == project)
        if kind:
            query = query.where(table.c.type == kind)
        rows = await self._run_in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        events = [_to_event(row) for row in rows]
        return events[::-1] if newest else events

    async def event_by_key(self, key: str) -> Event | None:
        """Return the event with this idempotency key, or None."""
        query = select(schema.events).where(schema.events.c.key == key)
        row = await self._run_in(
            self._reading, lambda: self._read(lambda connection: connection.execute(query).first())
        )
        return None if row is None else _to_event(row)

    async def entries(
        self, entry_filter: LogEntryFilter, after: int = 0, limit: int = 1000, *, newest: bool = False
    ) -> list[LogEntry]:
        """Return events as stored, in order; `newest`: the last ones instead of the first."""
        table = schema.events
        query = select(table).where(table.c.seq > after, *_conditions(entry_filter)).limit(limit)
        query = query.order_by(table.c.seq.desc() if newest else table.c.seq)
        rows = await self._run_in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        entries = [_to_log_entry(row) for row in rows]
        return entries[::-1] if newest else entries

    async def event_types(self, seqs: Sequence[int]) -> dict[int, str]:
        """Return the kinds of these events."""
        table = schema.events
        query = select(table.c.seq, table.c.type).where(table.c.seq.in_(seqs))
        rows = await self._run_in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return {row.seq: row.type for row in rows}

    async def damage(self) -> str:
        """Return what is wrong with an SQLite file, or "" if it is intact."""
        if self.url.get_backend_name() != "sqlite":
            return ""
        query = sql("PRAGMA quick_check(1)")
        result = await self._run_in(
            self._reading, lambda: self._read(lambda connection: connection.execute(query).scalar())
        )
        return "" if result == "ok" else str(result)

    async def pending(self) -> list[OutboxRow]:
        """Return the rows that are still to be carried out, in order."""
        table = schema.outbox
        query = select(table).where(table.c.state == "pending").order_by(table.c.sort, *self._tie_breakers())
        rows = await self._run_in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return [_to_outbox_row(row) for row in rows]

    async def rows(self, session: str, limit: int = 50) -> list[OutboxRow]:
        """Return a session's rows, newest first."""
        table = schema.outbox
        query = (
            select(table)
            .where(table.c.session == session)
            .order_by(table.c.sort.desc(), *self._tie_breakers())
            .limit(limit)
        )
        rows = await self._run_in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return [_to_outbox_row(row) for row in rows]

    async def snapshot(self) -> Snapshot | None:
        """Return the last saved facts, or None if there are none of this version."""
        return await self._run_in(self._reading, lambda: self._read(_load_snapshot))

    async def save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        """Save the facts of the home and of the changed sessions."""
        await self._run_in(self._writing, lambda: self._save_snapshot(snapshot, changed))

    async def close(self) -> None:
        """Finish writing and close the connections."""
        await self._run_in(self._writing, self._close)
        self._writing.shutdown()
        self._reading.shutdown()

    # -- in the threads ----------------------------------------------------------------------------------------------

    async def _run_in(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        """Run a function in a thread pool, and translate database errors."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except DBAPIError as error:
            raise self._to_error(error) from error

    def _to_error(self, error: DBAPIError) -> AoError:
        """Return the product's error for a database error."""
        if isinstance(error, OperationalError):
            return Temporary(f"the database cannot be used: {error.orig}", "see whether the disk is full or read-only")
        return AoError(f"the database is damaged: {error.orig}", f"look at {self.url}, or restore a backup")

    def _tie_breakers(self) -> Sequence[ColumnElement[Any]]:
        """Return columns that order rows of the same event; none for SQLite, which returns rows in the order of insertion."""
        return ()

    def _open(self) -> int:
        """Connect, migrate the schema, and return the last event's sequence number."""
        self._close()
        self._create_private_file()
        self._engine = create_engine(self.url)
        event.listen(self._engine, "connect", _prepare_sqlite)
        event.listen(self._engine, "begin", _begin)
        migrate(self._engine, self._back_up)
        return self._last_seq()

    def _create_private_file(self) -> None:
        """Create the file readable by its owner only; SQLite gives its log files the same permissions."""
        if self.url.database:
            with suppress(OSError):  # opening the file reports why it cannot be created
                Path(self.url.database).touch(mode=0o600)

    def _last_seq(self) -> int:
        """Return the last event's sequence number."""
        connection = self._writer()
        last = connection.execute(select(func.max(schema.events.c.seq))).scalar()
        connection.rollback()
        return int(last or 0)

    def _writer(self) -> Connection:
        """Return the connection used for writing."""
        assert self._engine is not None, "open first"
        if self._write_connection is None:
            self._write_connection = self._engine.connect().execution_options(**{_WRITES_OPTION: True})
        return self._write_connection

    def _seal(self, connection: Connection, seq: int | None) -> None:
        """Run the last statement of a writing transaction; `seq` is its last event. Does nothing if no other process can write."""

    def _back_up(self, version: int) -> None:
        """Save the database as `ao.v1.bak` beside it before a migration, completely or not at all."""
        if not self.url.database:
            return
        path = Path(self.url.database)
        backup = path.with_suffix(f".v{version}.bak")
        unfinished = backup.with_name(f"{backup.name}~")
        unfinished.unlink(missing_ok=True)
        try:
            unfinished.touch(mode=0o600)
            # Copying the file would not be enough: after a crash the newest part is in the write-ahead log beside it.
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
                source.backup(target)
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(backup)
        except (sqlite3.Error, OSError) as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise Temporary(
                f"the database could not be kept as {backup} before it is brought to this program's version: {error}",
                f"make room there for another {path.stat().st_size >> 20} MB; nothing was changed",
            ) from None

    def _read(self, query: Callable[[Connection], R]) -> R:
        """Run a query on a new connection."""
        assert self._engine is not None, "open first"
        with self._engine.connect() as connection:
            return query(connection)

    def _write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        """Run `compute` and write its batch in one transaction."""
        connection = self._writer()
        with connection.begin():
            batch, answer = compute(_DatabaseKeys(connection))
            head = _insert(connection, batch, self._head)
            self._seal(connection, batch.events[-1].seq if batch.events else None)
        self._head = head
        return answer

    def _save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        """Write the snapshot in one transaction."""
        connection = self._writer()
        with connection.begin():
            bodies = {f"session:{name}": codec.dump(snapshot.sessions[name]) for name in changed}
            bodies["home"] = codec.dump(snapshot.home)
            bodies["as-of"] = {"seq": snapshot.seq, "version": FACTS_VERSION}
            connection.execute(delete(schema.snapshots).where(schema.snapshots.c.id.in_(list(bodies))))
            connection.execute(
                insert(schema.snapshots), [{"id": name, "body": _json(body)} for name, body in bodies.items()]
            )
            self._seal(connection, None)

    def _close(self) -> None:
        """Close the connections."""
        if self._write_connection is not None:
            self._write_connection.close()
            self._write_connection = None
        if self._engine is not None:
            self._engine.dispose()


class _DatabaseKeys:
    """Reads which keys are already in the database, inside the writer's transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def event_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are already in the log."""
        return self._find_stored(select(schema.events.c.key), schema.events.c.key, keys)

    def intent_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are already in the outbox; a dropped row's key counts as free."""
        query = select(schema.outbox.c.key).where(schema.outbox.c.state != "dropped")
        return self._find_stored(query, schema.outbox.c.key, keys)

    def _find_stored(self, query: Select[str], column: Column[str], keys: Sequence[str]) -> set[str]:
        """Return those of the keys that the query finds, read in parts of 500."""
        stored_keys: set[str] = set()
        for start in range(0, len(keys), 500):
            stored_keys.update(self._connection.execute(query.where(column.in_(keys[start : start + 500]))).scalars())
        return stored_keys


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set the options of a new SQLite connection."""
    connection.isolation_level = None  # the driver would not begin a transaction before a schema change
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")


def _begin(connection: Connection) -> None:
    """Begin a transaction; one that writes takes its lock at once."""
    # A transaction that begins by reading fails instead of waiting for another process's lock when it writes later.
    writes = connection.get_execution_options().get(_WRITES_OPTION)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _insert(connection: Connection, batch: Batch, head: ChainHead) -> ChainHead:
    """Write a batch after the entry `head`, as far as that is known, and return the last entry."""
    if batch.events:
        values, head = _chain_values(connection, batch.events, head)
        connection.execute(insert(schema.events), values)
    new = [row for row in batch.rows if not row.updated_at]
    if new:
        table = schema.outbox
        delete_dropped = delete(table).where(table.c.key == bindparam("again"), table.c.state == "dropped")
        connection.execute(delete_dropped, [{"again": row.intent.key} for row in new])
        connection.execute(insert(table), [_row_values(row) for row in new])
    for row in batch.rows:
        if row.updated_at:
            changed = {
                "due": row.due,
                "attempts": row.attempts,
                "state": row.state,
                "result": _storable_text(row.result),
                "updated": row.updated_at,
            }
            connection.execute(update(schema.outbox).where(schema.outbox.c.key == row.intent.key).values(changed))
    return head


def _chain_values(
    connection: Connection, events: Sequence[Event], head: ChainHead
) -> tuple[list[dict[str, Any]], ChainHead]:
    """Return the values of events with their digests, and the last entry of the chain."""
    previous_seq = events[0].seq - 1
    if head.seq != previous_seq:
        query = select(schema.events.c.digest).where(schema.events.c.seq == previous_seq)
        head = ChainHead(previous_seq, connection.execute(query).scalar() or "")
    last, values = head.digest, []
    for new_event in events:
        value = _event_values(new_event)
        value["digest"] = last = digest(last, {**value, "at": value["time"]})
        values.append(value)
    return values, ChainHead(events[-1].seq, last)


def _event_values(new_event: Event) -> dict[str, Any]:
    """Return the columns of an event, without its digest."""
    return {
        "seq": new_event.seq,
        "key": new_event.key,
        "type": new_event.type,
        "project": new_event.project,
        "session": new_event.session,
        "generation": new_event.generation,
        "source": new_event.source,
        "time": float(new_event.time),
        "data": _json(encode(new_event.body)),
        "actor": new_event.actor,
        "cause": new_event.cause,
    }


def _to_event(row: Any) -> Event:
    """Return an event from its row."""
    return Event(
        body=_decode_body(row),
        time=row.time,
        source=row.source,
        key=row.key,
        project=row.project,
        session=row.session,
        generation=row.generation,
        seq=row.seq,
        actor=row.actor,
        cause=row.cause,
    )


def _to_log_entry(row: Any) -> LogEntry:
    """Return an event as stored from its row."""
    return {**row._mapping, "at": row.time}


def _conditions(entry_filter: LogEntryFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter."""
    table = schema.events.c
    conditions = [
        column == value
        for column, value in (
            (table.session, entry_filter.session),
            (table.project, entry_filter.project),
            (table.type, entry_filter.kind),
        )
        if value is not None
    ]
    if entry_filter.actor is not None:
        conditions.append(
            or_(table.actor == entry_filter.actor, table.actor.startswith(f"{entry_filter.actor} ", autoescape=True))
        )
    if entry_filter.since is not None:
        conditions.append(table.time >= entry_filter.since)
    if entry_filter.until is not None:
        conditions.append(table.time < entry_filter.until)
    return conditions


def _decode_body(row: Any) -> Body:
    """Return the body of an event, or `Unknown` if it cannot be read; the event keeps its number."""
    try:
        return decode(row.type, json.loads(row.data))
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("an event cannot be read; see `ao doctor --repair`", seq=row.seq, type=row.type, error=str(error))
        return Unknown(str(row.type), {})


def _row_values(row: OutboxRow) -> dict[str, Any]:
    """Return the columns of an outbox row."""
    intent = row.intent
    return {
        "key": intent.key,
        "kind": intent.kind,
        "session": intent.session,
        "generation": intent.generation,
        "args": _json(dict(intent.args)),
        "intent_due": intent.due,
        "cause": row.cause,
        "sort": row.order,
        "due": row.due,
        "attempts": row.attempts,
        "state": row.state,
        "result": _storable_text(row.result),
        "updated": row.updated_at,
    }


def _to_outbox_row(row: Any) -> OutboxRow:
    """Return an outbox row from its database row."""
    intent = Intent(row.kind, row.key, row.session, row.generation, row.intent_due, json.loads(row.args))
    return OutboxRow(intent, row.cause, row.sort, row.due, row.attempts, row.state, row.result, row.updated)


def _load_snapshot(connection: Connection) -> Snapshot | None:
    """Return the saved facts, or None if they are missing or of another version."""
    try:
        bodies = {row.id: json.loads(row.body) for row in connection.execute(select(schema.snapshots))}
        as_of = bodies.get("as-of")
        if as_of is None or as_of["version"] != FACTS_VERSION:
            return None
        sessions = _load_sessions(bodies.items())
        return Snapshot(as_of["seq"], codec.load(HomeFacts, bodies["home"]), sessions)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        log.warning("the saved facts are of another shape: the log is folded anew", error=str(error))
        return None


def _load_sessions(bodies: Iterable[tuple[str, Any]]) -> dict[str, SessionFacts]:
    """Return the facts of the sessions from the saved data."""
    return {
        name.removeprefix("session:"): codec.load(SessionFacts, body)
        for name, body in bodies
        if name.startswith("session:")
    }


def _storable_text(text: str) -> str:
    """Return a text that every database can store: PostgreSQL does not allow NUL characters."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
