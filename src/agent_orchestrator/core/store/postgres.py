"""The store on PostgreSQL: the same tables and statements, and what a remote server requires in addition.

Several daemons may share one database; `leader.py` decides which one is active. Every writing transaction ends with a
statement that names its epoch and fails once another daemon is active. The same statement stores a mark, by which it is
known after a lost connection whether the transaction was committed, and notifies listeners. Reading outlasts a short
absence of the server; writing fails with `Temporary`, as with a full disk.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import psycopg
import structlog
from sqlalchemy import URL, ColumnElement, Connection, collate, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from agent_orchestrator.core.outbox import Batch, StoredKeys
from agent_orchestrator.core.store import schema
from agent_orchestrator.core.store.address import Address
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.core.store.leader import (
    NOTIFY_CHANNEL,
    WRITER_META_NAME,
    DaemonDescription,
    LeaderElection,
    LeadershipLost,
    PostgresConnection,
    epoch_of,
    leadership_lost_error,
)
from agent_orchestrator.core.store.migrations import migrate
from agent_orchestrator.errors import AoError, Temporary

CONFIRMATION_VALID_SECONDS = 3.0
"""Seconds for which the last confirmation of the turn counts; less than another daemon waits before it takes over."""
READ_TIMEOUT = 8.0
"""Seconds that a query waits for a server that is not reachable."""
COMMIT_CHECK_TIMEOUT = 60.0
"""Seconds within which it must be determined whether a transaction was committed whose connection broke at its end."""

_SEAL_STATEMENT = text(
    "UPDATE meta SET value = :mark WHERE name = :name AND value LIKE :mine RETURNING CASE WHEN :seq <> ''"
    " THEN pg_notify(:channel, :seq)::text END"
)

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _LoopObserver:
    """Passes what becomes of an election to the event loop."""

    loop: asyncio.AbstractEventLoop
    on_check: Callable[[], None]
    on_active_wrote: Callable[[], None]
    on_end: Callable[[AoError], None]

    def checked(self) -> None:
        """Note a check of a standby daemon, or that the turn is acquired."""
        _call_in_loop(self.loop, self.on_check)

    def active_wrote(self) -> None:
        """Note that the active daemon has written something."""
        _call_in_loop(self.loop, self.on_active_wrote)

    def ended(self, error: AoError) -> None:
        """Note that the turn is lost, or cannot be acquired at all."""
        _call_in_loop(self.loop, lambda: self.on_end(error))


class Postgres(Database):
    """The store in a PostgreSQL database that several daemons may share."""

    def __init__(self, url: str, me: DaemonDescription) -> None:
        super().__init__(URL.create("postgresql+psycopg"))
        self.address = Address(url)
        self._on_end: Callable[[AoError], None] | None = None
        self.end_error: AoError | None = None
        self.own_daemon = replace(me, application=f"ao-{uuid.uuid4().hex[:16]}")
        self._election: LeaderElection | None = None
        self._has_checked = asyncio.Event()
        self._is_leader = asyncio.Event()
        self._last_mark = ""

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    @property
    def active_daemon(self) -> DaemonDescription | None:
        """The active daemon, as last read."""
        return self._election.active_daemon if self._election else None

    def set_url(self, url: str) -> None:
        """Set the URL under which other daemons can reach this one; called before `ask`."""
        self.own_daemon = replace(self.own_daemon, url=url)

    async def request_leadership(self, news: Callable[[], None], on_end: Callable[[AoError], None]) -> bool:
        """Request the turn, and return whether it was acquired at once.

        Otherwise `news` is called whenever the active daemon has written. `on_end` is called once when nothing can be
        written any more, because another daemon is active.
        """
        self._on_end = on_end
        loop = asyncio.get_running_loop()
        if self._election is None:
            self._engine = create_engine(
                self.url, creator=self._connect, pool_size=3, pool_pre_ping=True, use_native_hstore=False
            )
            observer = _LoopObserver(loop, self._on_check, news, self._on_lost_leadership)
            self._election = LeaderElection(self.address, self.own_daemon, self._prepare, observer)
            self._election.start()
        await self._has_checked.wait()
        if self.end_error is not None:
            raise self.end_error
        return self._is_leader.is_set()

    async def wait_for_leadership(self) -> None:
        """Wait until this daemon has the turn."""
        await self._is_leader.wait()
        if self.end_error is not None:
            raise self.end_error

    async def confirm(self) -> None:
        """Raise an error unless this daemon still has the turn; called before an effect that another daemon might also carry out."""
        assert self._election is not None, "open first"
        if self.end_error is not None:
            raise self.end_error
        if time.monotonic() - self._election.last_confirmed_at > CONFIRMATION_VALID_SECONDS and not await self._run_in(
            self._reading, self._is_still_leader
        ):
            self._on_lost_leadership(leadership_lost_error(self.active_daemon))
            raise leadership_lost_error(self.active_daemon)

    async def server_version(self) -> str:
        """Return the server's version, or raise an error if it does not respond."""
        query = select(func.current_setting("server_version"))
        return str(await self._run_in(self._reading, lambda: self._read_once(lambda c: c.execute(query).scalar())))

    def _on_check(self) -> None:
        """Note that the turn was checked, and whether it was acquired."""
        assert self._election is not None
        if self._election.epoch is not None:
            self._is_leader.set()
        self._has_checked.set()

    def _on_lost_leadership(self, error: AoError) -> None:
        """Store the error that ended the turn, wake the waiting calls, and report it once."""
        if self.end_error is None:
            self.end_error = error
            self._has_checked.set()
            self._is_leader.set()
            if self._on_end is not None:
                self._on_end(error)

    # -- the store -----------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        """Acquire the turn and open the database, or raise `Temporary` if another daemon is active."""
        if (
            not await self.request_leadership(lambda: None, self._on_end or (lambda _error: None))
            and not self._is_leader.is_set()
        ):
            holder = self.active_daemon.description if self.active_daemon else "another daemon"
            raise Temporary(f"{holder} uses {self.address}", "end that one first, or wait for its end")
        return await super().open()

    async def write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        """Write as `Database.write` does; raise `LeadershipLost` once another daemon is active."""
        if self.end_error is not None:
            raise self.end_error
        try:
            return await super().write(compute)
        except LeadershipLost as error:
            self._on_lost_leadership(error)
            raise

    async def close(self) -> None:
        """Hand over the turn and close the connections."""
        turn = self._election
        if turn is not None:
            await asyncio.get_running_loop().run_in_executor(None, turn.close)
        await super().close()

    async def _run_in(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        """Run a function in a thread pool, and translate errors of the driver."""
        try:
            return await super()._run_in(pool, work)
        except psycopg.Error as error:
            raise self.address.to_error(error) from None

    # -- in the threads ------------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        """Return a new connection with this daemon's application name."""
        return self.address.connect(self.own_daemon.application)

    def _prepare(self, _link: PostgresConnection) -> None:
        """Migrate the schema; called once the turn is acquired."""
        assert self._engine is not None
        try:
            migrate(self._engine, self._back_up)
        except DBAPIError as error:
            raise self._to_error(error) from None

    def _back_up(self, version: int) -> None:
        """Save all tables as `events_v1_bak` and so on before a migration, all or none."""
        assert self._engine is not None
        with self._engine.begin() as connection:
            for table in inspect(connection).get_table_names():
                if table in schema.metadata.tables:
                    backup = f"{table}_v{version}_bak"
                    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {backup}")
                    connection.exec_driver_sql(f"CREATE TABLE {backup} AS TABLE {table}")
        log.info("the tables are kept before they are changed", version=version, kept=f"events_v{version}_bak, …")

    def _open(self) -> int:
        """Return the last event's sequence number; the turn has already connected and migrated."""
        return self._last_seq()

    def _to_error(self, error: DBAPIError) -> AoError:
        """Return the product's error for a database error."""
        return self.address.to_error(error.orig)

    def _tie_breakers(self) -> Sequence[ColumnElement[Any]]:
        """Return the key in byte order, which orders rows of the same event."""
        return (collate(schema.outbox.c.key, "C"),)

    def _read(self, query: Callable[[Connection], R]) -> R:
        """Run a query, and retry it for `READ_TIMEOUT` seconds while the server is not reachable."""
        end, pause = time.monotonic() + READ_TIMEOUT, 0.05
        while True:
            try:
                return self._read_once(query)
            except (OperationalError, psycopg.OperationalError) as error:
                ao_error = self.address.to_error(error.orig if isinstance(error, DBAPIError) else error)
                if not ao_error.retryable or time.monotonic() + pause > end or self.end_error is not None:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 1.0)

    def _read_once(self, query: Callable[[Connection], R]) -> R:
        """Run a query outside of a transaction."""
        assert self._engine is not None, "open first"
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return query(connection)

    def _is_still_leader(self) -> bool:
        """Return whether the database names this daemon's epoch."""
        query = select(schema.meta.c.value).where(schema.meta.c.name == WRITER_META_NAME)
        writer = self._read_once(lambda connection: connection.execute(query).scalar())
        return self._election is not None and epoch_of(writer) == self._election.epoch

    def _writer(self) -> Connection:
        """Return the connection used for writing; a broken one is replaced."""
        connection = self._write_connection
        if connection is not None and (connection.invalidated or connection.closed):
            connection.close()
            self._write_connection = None
        return super()._writer()

    def _write(self, compute: Callable[[StoredKeys], tuple[Batch, T]]) -> T:
        """Write a batch.

        If the connection breaks at the commit, the mark shows whether the transaction was committed.
        """
        self._last_mark = ""
        answers: list[T] = []

        def compute_and_keep(stored_keys: StoredKeys) -> tuple[Batch, T]:
            """Run `compute` and keep the answer for the case that the commit succeeds without confirmation."""
            batch, answer = compute(stored_keys)
            answers.append(answer)
            return batch, answer

        try:
            return super()._write(compute_and_keep)
        except DBAPIError as error:
            if self._last_mark and error.connection_invalidated and self._was_committed(self._last_mark):
                return answers[-1]
            if isinstance(error, IntegrityError) and not self._is_still_leader():
                raise leadership_lost_error(self.active_daemon) from None
            raise

    def _seal(self, connection: Connection, seq: int | None) -> None:
        """Write the mark of this transaction, or raise `LeadershipLost` if the turn is lost.

        Another daemon that raises the epoch waits for the end of this transaction, or makes this statement fail.
        """
        epoch = self._election.epoch if self._election else None
        mark = f"{epoch}:{uuid.uuid4().hex}"
        values = {
            "mark": mark,
            "name": WRITER_META_NAME,
            "mine": f"{epoch}:%",
            "channel": NOTIFY_CHANNEL,
            "seq": str(seq or ""),
        }
        if connection.execute(_SEAL_STATEMENT, values).first() is None:
            raise leadership_lost_error(self.active_daemon)
        self._last_mark = mark

    def _was_committed(self, mark: str) -> bool:
        """Return whether the transaction with this mark was committed although its connection broke.

        Raises `LeadershipLost` if another daemon is active, or if this cannot be determined within `COMMIT_CHECK_TIMEOUT` seconds.
        """
        end = time.monotonic() + COMMIT_CHECK_TIMEOUT
        while time.monotonic() < end:
            try:
                assert self._engine is not None
                with self._engine.begin() as connection:  # waits for a transaction that the server is still ending
                    query = text("SELECT value FROM meta WHERE name = :name FOR SHARE")
                    writer = str(connection.execute(query, {"name": WRITER_META_NAME}).scalar())
            except (DBAPIError, psycopg.Error):
                time.sleep(0.2)
                continue
            if epoch_of(writer) != epoch_of(mark):
                raise leadership_lost_error(self.active_daemon)
            return writer == mark
        raise leadership_lost_error(None)


def _call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function in the event loop from another thread, unless the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)
