"""The store on any database that SQLAlchemy speaks; SQLite is the embedded default, `postgres.py` has what is another one's own.

One thread writes, one reads: a transaction is one hop from the event loop, whatever its number of statements. SQLite runs with
a write-ahead log and full synchronisation: what `write` returned from survives a power cut.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.flow import codec
from agent_orchestrator.flow.events import Event, decode, encode
from agent_orchestrator.flow.facts import VERSION, HomeFacts, SessionFacts
from agent_orchestrator.flow.outbox import Batch, Known, Row, Snapshot
from agent_orchestrator.flow.reactions import Intent
from agent_orchestrator.store import schema
from agent_orchestrator.store.migrations import migrate

log = structlog.get_logger()

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
        self._engine = create_engine(self.url)
        event.listen(self._engine, "connect", _prepare_sqlite)
        event.listen(self._engine, "begin", _begin)
        migrate(self._engine, self._back_up)
        return self._last()

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
            self._write_connection = self._engine.connect()
        return self._write_connection

    def _seal(self, connection: Connection, seq: int | None) -> None:
        """The last statement of every transaction that writes, with its last event's number: nothing, where nobody else can write."""

    def _back_up(self, version: int) -> None:
        if not self.url.database:
            return
        path = Path(self.url.database)
        # Not a copy of the file: after a kill the newest part is in the write-ahead log beside it.
        with (
            closing(sqlite3.connect(path)) as old,
            closing(sqlite3.connect(path.with_suffix(f".v{version}.bak"))) as kept,
        ):
            old.backup(kept)

    def _read(self, query: Callable[[Connection], R]) -> R:
        assert self._engine is not None, "open first"
        with self._engine.connect() as connection:
            return query(connection)

    def _write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        connection = self._writer()
        with connection.begin():
            batch, answer = compute(_Known(connection))
            _insert(connection, batch)
            self._seal(connection, batch.events[-1].seq if batch.events else None)
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
    connection.exec_driver_sql("BEGIN")


def _insert(connection: Connection, batch: Batch) -> None:
    if batch.events:
        connection.execute(insert(schema.events), [_event_values(one) for one in batch.events])
    new = [row for row in batch.rows if not row.updated]
    if new:
        table = schema.outbox
        again = delete(table).where(table.c.key == bindparam("again"), table.c.state == "dropped")
        connection.execute(again, [{"again": row.intent.key} for row in new])
        connection.execute(insert(table), [_row_values(row) for row in new])
    for row in batch.rows:
        if row.updated:
            values = {
                "due": row.due,
                "attempts": row.attempts,
                "state": row.state,
                "result": _text(row.result),
                "updated": row.updated,
            }
            connection.execute(update(schema.outbox).where(schema.outbox.c.key == row.intent.key).values(values))


def _event_values(one: Event) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "key": one.key,
        "type": one.type,
        "project": one.project,
        "session": one.session,
        "generation": one.generation,
        "source": one.source,
        "time": one.time,
        "data": _json(encode(one.body)),
    }


def _event(row: Any) -> Event:
    return Event(
        body=decode(row.type, json.loads(row.data)),
        time=row.time,
        source=row.source,
        key=row.key,
        project=row.project,
        session=row.session,
        generation=row.generation,
        seq=row.seq,
    )


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
    bodies = {row.id: json.loads(row.body) for row in connection.execute(select(schema.snapshots))}
    as_of = bodies.get("as-of")
    if as_of is None or as_of["version"] != VERSION:
        return None
    try:
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


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
