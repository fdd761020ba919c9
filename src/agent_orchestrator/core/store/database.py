"""The store on any database that SQLAlchemy speaks; SQLite is the embedded default, `postgres.py` has what is another one's own.

One thread writes, one reads: a transaction is one hop from the event loop, whatever its number of statements. SQLite runs with
a write-ahead log and full synchronisation: what `write` returned from survives a power cut.
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

from agent_orchestrator.base.hash_chain import Head, digest
from agent_orchestrator.base.hash_chain import text as _json
from agent_orchestrator.core.events import Body, Event, Unknown, decode, encode
from agent_orchestrator.core.facts import VERSION, HomeFacts, SessionFacts
from agent_orchestrator.core.outbox import Batch, Entry, Known, Row, Snapshot, Wanted
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.store import codec, schema
from agent_orchestrator.core.store.migrations import migrate
from agent_orchestrator.errors import AoError, Temporary

log = structlog.get_logger()

_WRITES = "ao_writes"
"""The execution option of the connection that is written by."""

T = TypeVar("T")
R = TypeVar("R")


class Database:
    """Events, outbox and snapshots in one database."""

    def __init__(self, url: str | URL) -> None:
        self.url = make_url(url)
        self._engine: Engine | None = None
        self._writing = ThreadPoolExecutor(1, "store-writer")
        self._reading = ThreadPoolExecutor(1, "store-reader")
        self._write_connection: Connection | None = None
        self._head = Head()

    @classmethod
    def sqlite(cls, path: Path) -> Database:
        """The embedded default."""
        return cls(URL.create("sqlite", database=str(path)))

    async def open(self) -> int:
        return await self._in(self._writing, self._open)

    async def write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        return await self._in(self._writing, lambda: self._write(compute))

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
        table = schema.events
        query = select(table).where(table.c.seq > after).limit(limit)
        query = query.order_by(table.c.seq.desc() if newest else table.c.seq)
        if session:
            query = query.where(table.c.session == session)
        if project:
            query = query.where(table.c.project == project)
        if kind:
            query = query.where(table.c.type == kind)
        rows = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        found = [_event(row) for row in rows]
        return found[::-1] if newest else found

    async def event_by_key(self, key: str) -> Event | None:
        query = select(schema.events).where(schema.events.c.key == key)
        row = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).first()))
        return None if row is None else _event(row)

    async def entries(self, wanted: Wanted, after: int = 0, limit: int = 1000, *, newest: bool = False) -> list[Entry]:
        table = schema.events
        query = select(table).where(table.c.seq > after, *_conditions(wanted)).limit(limit)
        query = query.order_by(table.c.seq.desc() if newest else table.c.seq)
        rows = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        found = [_entry(row) for row in rows]
        return found[::-1] if newest else found

    async def types(self, seqs: Sequence[int]) -> dict[int, str]:
        table = schema.events
        query = select(table.c.seq, table.c.type).where(table.c.seq.in_(seqs))
        rows = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return {row.seq: row.type for row in rows}

    async def damage(self) -> str:
        """What is wrong with an SQLite file; nothing: it is sound."""
        if self.url.get_backend_name() != "sqlite":
            return ""
        query = sql("PRAGMA quick_check(1)")
        said = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).scalar()))
        return "" if said == "ok" else str(said)

    async def pending(self) -> list[Row]:
        table = schema.outbox
        query = select(table).where(table.c.state == "pending").order_by(table.c.sort, *self._ties())
        rows = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return [_row(row) for row in rows]

    async def rows(self, session: str, limit: int = 50) -> list[Row]:
        table = schema.outbox
        query = (
            select(table).where(table.c.session == session).order_by(table.c.sort.desc(), *self._ties()).limit(limit)
        )
        rows = await self._in(self._reading, lambda: self._read(lambda connection: connection.execute(query).all()))
        return [_row(row) for row in rows]

    async def snapshot(self) -> Snapshot | None:
        return await self._in(self._reading, lambda: self._read(_load_snapshot))

    async def save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        await self._in(self._writing, lambda: self._save_snapshot(snapshot, changed))

    async def close(self) -> None:
        await self._in(self._writing, self._close)
        self._writing.shutdown()
        self._reading.shutdown()

    # -- in the threads ----------------------------------------------------------------------------------------------

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except DBAPIError as error:
            raise self._explained(error) from error

    def _explained(self, error: DBAPIError) -> AoError:
        """What a database's error means to whoever asked."""
        if isinstance(error, OperationalError):
            return Temporary(f"the database cannot be used: {error.orig}", "see whether the disk is full or read-only")
        return AoError(f"the database is damaged: {error.orig}", f"look at {self.url}, or restore a backup")

    def _ties(self) -> Sequence[ColumnElement[Any]]:
        """What orders rows that came of one event at once; SQLite gives them as they were put in."""
        return ()

    def _open(self) -> int:
        self._close()
        self._make_private()
        self._engine = create_engine(self.url)
        event.listen(self._engine, "connect", _prepare_sqlite)
        event.listen(self._engine, "begin", _begin)
        migrate(self._engine, self._back_up)
        return self._last()

    def _make_private(self) -> None:
        """A new file is its owner's alone, and so is what SQLite puts beside it."""
        if self.url.database:
            with suppress(OSError):  # what cannot be made is told by whoever opens it
                Path(self.url.database).touch(mode=0o600)

    def _last(self) -> int:
        """The last event's sequence number."""
        connection = self._writer()
        last = connection.execute(select(func.max(schema.events.c.seq))).scalar()
        connection.rollback()
        return int(last or 0)

    def _writer(self) -> Connection:
        """The connection that is written by."""
        assert self._engine is not None, "open first"
        if self._write_connection is None:
            self._write_connection = self._engine.connect().execution_options(**{_WRITES: True})
        return self._write_connection

    def _seal(self, connection: Connection, seq: int | None) -> None:
        """The last statement of every transaction that writes, with its last event's number: nothing, where nobody else can write."""

    def _back_up(self, version: int) -> None:
        """Keep the database as it is beside itself, whole or not at all: `ao.v1.bak`."""
        if not self.url.database:
            return
        path = Path(self.url.database)
        kept = path.with_suffix(f".v{version}.bak")
        unfinished = kept.with_name(f"{kept.name}~")
        unfinished.unlink(missing_ok=True)
        try:
            unfinished.touch(mode=0o600)
            # Not a copy of the file: after a kill the newest part is in the write-ahead log beside it.
            with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(unfinished)) as new:
                old.backup(new)
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
            unfinished.replace(kept)
        except (sqlite3.Error, OSError) as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise Temporary(
                f"the database could not be kept as {kept} before it is brought to this program's version: {error}",
                f"make room there for another {path.stat().st_size >> 20} MB; nothing was changed",
            ) from None

    def _read(self, query: Callable[[Connection], R]) -> R:
        assert self._engine is not None, "open first"
        with self._engine.connect() as connection:
            return query(connection)

    def _write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        connection = self._writer()
        with connection.begin():
            batch, answer = compute(_Known(connection))
            head = _insert(connection, batch, self._head)
            self._seal(connection, batch.events[-1].seq if batch.events else None)
        self._head = head
        return answer

    def _save_snapshot(self, snapshot: Snapshot, changed: Sequence[str]) -> None:
        connection = self._writer()
        with connection.begin():
            bodies = {f"session:{name}": codec.dump(snapshot.sessions[name]) for name in changed}
            bodies["home"] = codec.dump(snapshot.home)
            bodies["as-of"] = {"seq": snapshot.seq, "version": VERSION}
            connection.execute(delete(schema.snapshots).where(schema.snapshots.c.id.in_(list(bodies))))
            connection.execute(
                insert(schema.snapshots), [{"id": name, "body": _json(body)} for name, body in bodies.items()]
            )
            self._seal(connection, None)

    def _close(self) -> None:
        if self._write_connection is not None:
            self._write_connection.close()
            self._write_connection = None
        if self._engine is not None:
            self._engine.dispose()


class _Known:
    """What is in the database already, asked inside the writer's transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def event_keys(self, keys: Sequence[str]) -> set[str]:
        return self._among(select(schema.events.c.key), schema.events.c.key, keys)

    def intent_keys(self, keys: Sequence[str]) -> set[str]:
        kept = select(schema.outbox.c.key).where(schema.outbox.c.state != "dropped")
        return self._among(kept, schema.outbox.c.key, keys)

    def _among(self, query: Select[str], column: Column[str], keys: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(keys), 500):
            found.update(self._connection.execute(query.where(column.in_(keys[start : start + 500]))).scalars())
        return found


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver would begin no transaction before a change of the schema
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")


def _begin(connection: Connection) -> None:
    # A transaction that began by reading would not wait for somebody else's lock when it comes to write.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _insert(connection: Connection, batch: Batch, head: Head) -> Head:
    """Write a batch behind the entry `head`, as far as that is known; returns the last entry."""
    if batch.events:
        values, head = _chained(connection, batch.events, head)
        connection.execute(insert(schema.events), values)
    new = [row for row in batch.rows if not row.updated]
    if new:
        table = schema.outbox
        again = delete(table).where(table.c.key == bindparam("again"), table.c.state == "dropped")
        connection.execute(again, [{"again": row.intent.key} for row in new])
        connection.execute(insert(table), [_row_values(row) for row in new])
    for row in batch.rows:
        if row.updated:
            changed = {
                "due": row.due,
                "attempts": row.attempts,
                "state": row.state,
                "result": _text(row.result),
                "updated": row.updated,
            }
            connection.execute(update(schema.outbox).where(schema.outbox.c.key == row.intent.key).values(changed))
    return head


def _chained(connection: Connection, events: Sequence[Event], head: Head) -> tuple[list[dict[str, Any]], Head]:
    before = events[0].seq - 1
    if head.seq != before:
        query = select(schema.events.c.digest).where(schema.events.c.seq == before)
        head = Head(before, connection.execute(query).scalar() or "")
    last, values = head.digest, []
    for one in events:
        value = _event_values(one)
        value["digest"] = last = digest(last, {**value, "at": value["time"]})
        values.append(value)
    return values, Head(events[-1].seq, last)


def _event_values(one: Event) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "key": one.key,
        "type": one.type,
        "project": one.project,
        "session": one.session,
        "generation": one.generation,
        "source": one.source,
        "time": float(one.time),
        "data": _json(encode(one.body)),
        "actor": one.actor,
        "cause": one.cause,
    }


def _event(row: Any) -> Event:
    return Event(
        body=_body(row),
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


def _entry(row: Any) -> Entry:
    return {**row._mapping, "at": row.time}


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    table = schema.events.c
    found = [
        column == value
        for column, value in (
            (table.session, wanted.session),
            (table.project, wanted.project),
            (table.type, wanted.kind),
        )
        if value is not None
    ]
    if wanted.actor is not None:
        found.append(or_(table.actor == wanted.actor, table.actor.startswith(f"{wanted.actor} ", autoescape=True)))
    if wanted.since is not None:
        found.append(table.time >= wanted.since)
    if wanted.until is not None:
        found.append(table.time < wanted.until)
    return found


def _body(row: Any) -> Body:
    """One that cannot be read any more stays in its place, and says nothing."""
    try:
        return decode(row.type, json.loads(row.data))
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("an event cannot be read; see `ao doctor --repair`", seq=row.seq, type=row.type, error=str(error))
        return Unknown(str(row.type), {})


def _row_values(row: Row) -> dict[str, Any]:
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
        "result": _text(row.result),
        "updated": row.updated,
    }


def _row(row: Any) -> Row:
    intent = Intent(row.kind, row.key, row.session, row.generation, row.intent_due, json.loads(row.args))
    return Row(intent, row.cause, row.sort, row.due, row.attempts, row.state, row.result, row.updated)


def _load_snapshot(connection: Connection) -> Snapshot | None:
    try:
        bodies = {row.id: json.loads(row.body) for row in connection.execute(select(schema.snapshots))}
        as_of = bodies.get("as-of")
        if as_of is None or as_of["version"] != VERSION:
            return None
        sessions = _sessions(bodies.items())
        return Snapshot(as_of["seq"], codec.load(HomeFacts, bodies["home"]), sessions)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        log.warning("the saved facts are of another shape: the log is folded anew", error=str(error))
        return None


def _sessions(bodies: Iterable[tuple[str, Any]]) -> dict[str, SessionFacts]:
    return {
        name.removeprefix("session:"): codec.load(SessionFacts, body)
        for name, body in bodies
        if name.startswith("session:")
    }


def _text(words: str) -> str:
    """What somebody else said, as every database can keep it."""
    return words.replace("\x00", "\N{REPLACEMENT CHARACTER}")
