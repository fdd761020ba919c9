"""The store on PostgreSQL: the same tables and statements, and what a server beside us brings along.

Several daemons may have one database: `leader.py` says whose turn it is. Every transaction that writes ends by naming its epoch,
which fails once another daemon is active; the same statement leaves a mark, by which it is known after a lost connection whether
it was committed, and tells those who listen. Reading outlasts a short absence of the server; writing fails with `Temporary`, as on
a full disk.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import psycopg
import structlog
from sqlalchemy import URL, ColumnElement, Connection, collate, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from agent_orchestrator.core.outbox import Batch, Known
from agent_orchestrator.core.store import schema
from agent_orchestrator.core.store.address import Address
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.core.store.leader import CHANNEL, WRITER, Active, Deposed, Link, Turn, deposed, epoch_of
from agent_orchestrator.core.store.migrations import migrate
from agent_orchestrator.errors import AoError, Temporary

SURE = 3.0
"""Seconds for which it stays certain that the turn is ours; less than another daemon waits before it takes over."""
READING = 8.0
"""Seconds that reading waits for a server that is away."""
KNOWING = 60.0
"""Seconds in which it must be known whether a transaction was committed whose connection broke at its end."""

_SEAL = text(
    "UPDATE meta SET value = :mark WHERE name = :name AND value LIKE :mine RETURNING CASE WHEN :seq <> ''"
    " THEN pg_notify(:channel, :seq)::text END"
)

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger()


class Postgres(Database):
    """Events, outbox and snapshots in a database that other daemons may wait for."""

    def __init__(self, url: str, me: Active) -> None:
        super().__init__(URL.create("postgresql+psycopg"))
        self.address = Address(url)
        self.on_end: Callable[[AoError], None] = lambda _error: None
        """Called once when nothing can be written any more: another daemon is active."""
        self.ended: AoError | None = None
        self.me = replace(me, application=f"ao-{uuid.uuid4().hex[:16]}")
        self._turn: Turn | None = None
        self._looked = asyncio.Event()
        self._mine = asyncio.Event()
        self._mark = ""

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    @property
    def active(self) -> Active | None:
        """Who is active, as was last seen."""
        return self._turn.active if self._turn else None

    def reached_at(self, url: str) -> None:
        """The address that others are told of this daemon; said before the turn is asked for."""
        self.me = replace(self.me, url=url)

    async def ask(self, news: Callable[[], None]) -> bool:
        """Ask for the turn; true if it is ours at once. Otherwise `news` is called whenever the active one has written."""
        loop = asyncio.get_running_loop()
        if self._turn is None:
            self._engine = create_engine(
                self.url, creator=self._connect, pool_size=3, pool_pre_ping=True, use_native_hstore=False
            )
            turn = self._turn = Turn(self.address, self.me, self._prepare)
            turn.on_news = lambda: _call(loop, news)
            turn.on_look = lambda: _call(loop, self._look)
            turn.on_end = lambda error: _call(loop, lambda: self._end(error))
            turn.start()
        await self._looked.wait()
        if self.ended is not None:
            raise self.ended
        return self._mine.is_set()

    async def turn(self) -> None:
        """Wait until the turn is ours."""
        await self._mine.wait()
        if self.ended is not None:
            raise self.ended

    async def confirm(self) -> None:
        """See that the turn is still ours, before something is done that another daemon might do as well."""
        assert self._turn is not None, "open first"
        if self.ended is not None:
            raise self.ended
        if time.monotonic() - self._turn.sure_at > SURE and not await self._in(self._reading, self._still_mine):
            self._end(deposed(self.active))
            raise deposed(self.active)

    async def answers(self) -> str:
        """The server's version, if it answers."""
        query = select(func.current_setting("server_version"))
        return str(await self._in(self._reading, lambda: self._read_once(lambda c: c.execute(query).scalar())))

    def _look(self) -> None:
        assert self._turn is not None
        if self._turn.epoch is not None:
            self._mine.set()
        self._looked.set()

    def _end(self, error: AoError) -> None:
        if self.ended is None:
            self.ended = error
            self._looked.set()
            self._mine.set()
            self.on_end(error)

    # -- the store -----------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        if not await self.ask(lambda: None) and not self._mine.is_set():
            who = self.active.told if self.active else "another daemon"
            raise Temporary(f"{who} uses {self.address}", "end that one first, or wait for its end")
        return await super().open()

    async def write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        if self.ended is not None:
            raise self.ended
        try:
            return await super().write(compute)
        except Deposed as error:
            self._end(error)
            raise

    async def close(self) -> None:
        turn = self._turn
        if turn is not None:
            await asyncio.get_running_loop().run_in_executor(None, turn.close)
        await super().close()

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        try:
            return await super()._in(pool, work)
        except psycopg.Error as error:
            raise self.address.explained(error) from None

    # -- in the threads ------------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        return self.address.connect(self.me.application)

    def _prepare(self, _link: Link) -> None:
        assert self._engine is not None
        try:
            migrate(self._engine, self._back_up)
        except DBAPIError as error:
            raise self._explained(error) from None

    def _back_up(self, version: int) -> None:
        """Keep the tables as they are beside themselves, all or none: `events_v1_bak` and so on."""
        assert self._engine is not None
        with self._engine.begin() as connection:
            for table in inspect(connection).get_table_names():
                if table in schema.metadata.tables:
                    kept = f"{table}_v{version}_bak"
                    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {kept}")
                    connection.exec_driver_sql(f"CREATE TABLE {kept} AS TABLE {table}")
        log.info("the tables are kept before they are changed", version=version, kept=f"events_v{version}_bak, …")

    def _open(self) -> int:
        return self._last()

    def _explained(self, error: DBAPIError) -> AoError:
        return self.address.explained(error.orig)

    def _ties(self) -> Sequence[ColumnElement[Any]]:
        return (collate(schema.outbox.c.key, "C"),)

    def _read(self, query: Callable[[Connection], R]) -> R:
        end, pause = time.monotonic() + READING, 0.05
        while True:
            try:
                return self._read_once(query)
            except (OperationalError, psycopg.OperationalError) as error:
                known = self.address.explained(error.orig if isinstance(error, DBAPIError) else error)
                if not known.retryable or time.monotonic() + pause > end or self.ended is not None:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 1.0)

    def _read_once(self, query: Callable[[Connection], R]) -> R:
        assert self._engine is not None, "open first"
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return query(connection)

    def _still_mine(self) -> bool:
        query = select(schema.meta.c.value).where(schema.meta.c.name == WRITER)
        found = self._read_once(lambda connection: connection.execute(query).scalar())
        return self._turn is not None and epoch_of(found) == self._turn.epoch

    def _writer(self) -> Connection:
        connection = self._write_connection
        if connection is not None and (connection.invalidated or connection.closed):
            connection.close()
            self._write_connection = None
        return super()._writer()

    def _write(self, compute: Callable[[Known], tuple[Batch, T]]) -> T:
        self._mark = ""
        answers: list[T] = []

        def computed(known: Known) -> tuple[Batch, T]:
            batch, answer = compute(known)
            answers.append(answer)
            return batch, answer

        try:
            return super()._write(computed)
        except DBAPIError as error:
            if self._mark and error.connection_invalidated and self._committed(self._mark):
                return answers[-1]
            if isinstance(error, IntegrityError) and not self._still_mine():
                raise deposed(self.active) from None
            raise

    def _seal(self, connection: Connection, seq: int | None) -> None:
        """Only while the turn is ours. Whoever raises the epoch waits for this transaction's end, or makes this fail."""
        epoch = self._turn.epoch if self._turn else None
        mark = f"{epoch}:{uuid.uuid4().hex}"
        values = {"mark": mark, "name": WRITER, "mine": f"{epoch}:%", "channel": CHANNEL, "seq": str(seq or "")}
        if connection.execute(_SEAL, values).first() is None:
            raise deposed(self.active)
        self._mark = mark

    def _committed(self, mark: str) -> bool:
        """Whether the last transaction was committed, whose connection broke while it was."""
        end = time.monotonic() + KNOWING
        while time.monotonic() < end:
            try:
                assert self._engine is not None
                with self._engine.begin() as connection:  # waits for one that the server is still about to end
                    asked = text("SELECT value FROM meta WHERE name = :name FOR SHARE")
                    found = str(connection.execute(asked, {"name": WRITER}).scalar())
            except (DBAPIError, psycopg.Error):
                time.sleep(0.2)
                continue
            if epoch_of(found) != epoch_of(mark):
                raise deposed(self.active)
            return found == mark
        raise deposed(None)


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
