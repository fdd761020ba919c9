"""Which daemon is active: of all daemons on one PostgreSQL database one has the turn, the others stand by.

The turn is an advisory lock on a separate connection. Each new turn raises the *epoch*, which every writing
transaction names (`postgres.py`), so a daemon that lost its turn without noticing, because it was disconnected or
suspended, cannot write. The active daemon sends a query on this connection regularly; if the server has not received
one for too long, a standby daemon ends its connections and takes over. All of this runs in a thread, so a lock, a pause
or a lost connection never blocks the event loop.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import psycopg
import structlog

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.store.address import Address
from agent_orchestrator.errors import AoError, Unreachable

HEARTBEAT_SECONDS = 1.5
"""Seconds between two signs of life."""
SILENCE_LIMIT_SECONDS = 6.0
"""Seconds without a sign of life after which the active daemon is considered gone."""
STANDBY_CHECK_SECONDS = 1.0
"""Seconds between two checks of a standby daemon."""
RECONNECT_GRACE_SECONDS = 3.0
"""Seconds that a standby daemon leaves to the active one after the server itself was unreachable."""
NOTIFY_CHANNEL = "agent_orchestrator"
"""NOTIFY channel for what was written: the last event's number, or `handed over`."""
HANDOVER_PAYLOAD = "handed over"
"""Payload that says that the active daemon gave up its turn."""
WRITER_META_NAME = "writer"
"""The name in `meta` of `<epoch>:<mark>`: the current turn and its last transaction."""
ACTIVE_META_NAME = "active"
"""The name in `meta` of the active daemon's description."""

PostgresConnection = psycopg.Connection[Any]

log = structlog.get_logger()


class LeadershipLost(Unreachable):
    """Another daemon is active now; this one does nothing more."""


@dataclass(frozen=True, slots=True)
class DaemonDescription:
    """A daemon, as other daemons read about it."""

    host: str
    home: str
    pid: int
    since: float
    url: str = ""
    machine: str = ""
    """Distinguishes machines with the same host name."""
    application: str = ""
    """Application name of its connections."""

    @property
    def home_name(self) -> str:
        """The name of its home that is unique among all homes."""
        return f"{self.host}/{self.machine}:{self.home}" if self.machine else f"{self.host}:{self.home}"

    @property
    def description(self) -> str:
        """The daemon as part of a sentence."""
        return f"{self.host}'s daemon (pid {self.pid}, since {rfc3339(self.since)})"


class ElectionObserver(Protocol):
    """Learns what becomes of an election; called in its thread."""

    def checked(self) -> None:
        """Note a check of a standby daemon, or that the turn is acquired."""
        ...

    def active_wrote(self) -> None:
        """Note that the active daemon has written something."""
        ...

    def ended(self, error: AoError) -> None:
        """Note, once, that the turn is lost, or cannot be acquired at all."""
        ...


class LeaderElection(threading.Thread):
    """A thread that acquires the turn and keeps it."""

    def __init__(
        self,
        address: Address,
        me: DaemonDescription,
        prepare: Callable[[PostgresConnection], None],
        observer: ElectionObserver,
    ) -> None:
        """Create the thread; `prepare` migrates the schema and is called once the turn is acquired."""
        super().__init__(name="store-turn", daemon=True)
        self.own_daemon = me
        self.epoch: int | None = None
        """The epoch of this daemon's turn; None while another daemon is active."""
        self.active_daemon: DaemonDescription | None = None
        """The active daemon, as last read."""
        self.last_confirmed_at = 0.0
        """When it was last confirmed that this daemon has the turn, by the monotonic clock."""
        self._address = address
        self._prepare = prepare
        self._observer = observer
        self._wake_reader, self._wake_writer = os.pipe()
        self._closing = False
        self._backend_pid = 0
        self._earliest_claim = 0.0
        self._was_connected = self._is_unreachable = False

    def close(self) -> None:
        """Hand the turn over if this daemon has it, and end the thread."""
        self._closing = True
        os.write(self._wake_writer, b"x")
        if self.is_alive():
            self.join(10.0)
        os.close(self._wake_writer)
        os.close(self._wake_reader)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Connect and keep or await the turn, until closed or deposed."""
        pause = 0.1
        while not self._closing:
            try:
                with self._address.connect(self.own_daemon.application, autocommit=True) as link:
                    pause = 0.1
                    self._keep_or_await_leadership(link)
            except AoError as error:
                self._observer.ended(error)
                return
            except psycopg.Error as error:
                if not self._was_connected:
                    self._observer.ended(self._address.to_error(error))
                    return
                if not self._is_unreachable:
                    log.warning("the database is away", error=self._address.to_error(error).text)
                self._is_unreachable = True
                self._earliest_claim = time.monotonic() + RECONNECT_GRACE_SECONDS
                self._wait(None, pause)
                pause = min(pause * 2, 1.0)

    def _keep_or_await_leadership(self, link: PostgresConnection) -> None:
        """Keep or await the turn on one connection, until closed or the connection breaks."""
        # With these, the server itself also notices that the active daemon's machine has vanished.
        for name, value in (("idle", 2), ("interval", 1), ("count", 4)):
            link.execute(f"SET tcp_keepalives_{name} = {value}")
        link.execute("SET lock_timeout = '8s'")
        link.execute(f"LISTEN {NOTIFY_CHANNEL}")
        self._was_connected = True
        if self._is_unreachable:
            log.info("the database is there again")
        self._is_unreachable = False
        key = _lock_key(link)
        has_lock = False
        while not self._closing:
            if self.epoch is not None:
                self._send_heartbeat(link)
                has_lock = has_lock or self._reacquire_lock(link, key)
                wait = HEARTBEAT_SECONDS if has_lock else 0.2
            elif (remaining := self._earliest_claim - time.monotonic()) > 0:
                wait = remaining
            elif _try_lock(link, key):
                self._take_over(link)
                has_lock, wait = True, HEARTBEAT_SECONDS
            else:
                self._check_active(link, key)
                wait = STANDBY_CHECK_SECONDS
            self._backend_pid = link.info.backend_pid
            self._wait(link, wait)
        if has_lock:
            self._hand_over(link)

    def _wait(self, link: PostgresConnection | None, seconds: float) -> None:
        """Wait for some seconds, but return early if the thread is closed or the turn was handed over.

        Notifications that arrive meanwhile are passed to the observer.
        """
        end = time.monotonic() + seconds
        while not self._closing and (remaining := end - time.monotonic()) > 0:
            files = [self._wake_reader, *([link.fileno()] if link else [])]
            ready, _, _ = select.select(files, [], [], remaining)
            if link is not None and files[-1] in ready:
                payloads = [note.payload for note in link.notifies(timeout=0)]
                if payloads and self.epoch is None:
                    self._observer.active_wrote()
                    if HANDOVER_PAYLOAD in payloads:
                        self._earliest_claim = 0.0
                        return

    def _check_active(self, link: PostgresConnection, key: int) -> None:
        """Read which daemon is active, and end its connections if it gives no sign of life."""
        self.active_daemon = _read_active(link)
        holder = link.execute(
            "SELECT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.state_change)::float8"
            " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND l.classid::bigint = %s AND l.objid::bigint = %s",
            [(key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF],
        ).fetchone()
        if holder is not None and holder[2] is not None and holder[2] > SILENCE_LIMIT_SECONDS:
            name = self.active_daemon.description if self.active_daemon else "the active daemon"
            log.warning("no sign of life: its connections are ended", of=name, seconds=round(holder[2], 1))
            _terminate_connections(link, str(holder[1]), int(holder[0]))
            self._earliest_claim = time.monotonic() + 0.1
        self._observer.checked()

    def _take_over(self, link: PostgresConnection) -> None:
        """Take over after the lock was acquired: keep the previous daemon from writing, and migrate the schema."""
        previous = _read_active(link)
        if previous is not None and previous.application:
            _terminate_connections(link, previous.application, 0)
        raised_epoch = _raise_epoch(link) if _has_meta(link) else None
        self._prepare(link)
        epoch = raised_epoch or _raise_epoch(link)
        _write_meta(link, ACTIVE_META_NAME, json.dumps(asdict(self.own_daemon)))
        self.last_confirmed_at = time.monotonic()
        self.active_daemon, self.epoch = self.own_daemon, epoch
        self._observer.checked()

    def _send_heartbeat(self, link: PostgresConnection) -> None:
        """Give a sign of life, and raise `LeadershipLost` if the turn is lost."""
        now = time.monotonic()
        row = link.execute("SELECT value FROM meta WHERE name = %s", [WRITER_META_NAME]).fetchone()
        if epoch_of(row and row[0]) != self.epoch:
            raise leadership_lost_error(_read_active(link))
        self.last_confirmed_at = now

    def _reacquire_lock(self, link: PostgresConnection, key: int) -> bool:
        """Acquire the lock again after a lost connection; the turn continues if no other daemon took it."""
        if self._backend_pid:  # the server may not have noticed that the old connection is gone
            link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND application_name = %s",
                         [self._backend_pid, self.own_daemon.application])  # fmt: skip
        return _try_lock(link, key)

    def _hand_over(self, link: PostgresConnection) -> None:
        """Give up the turn, and notify the standby daemons."""
        _write_meta(link, ACTIVE_META_NAME, "")
        link.execute("SELECT pg_advisory_unlock_all()")
        link.execute("SELECT pg_notify(%s, %s)", [NOTIFY_CHANNEL, HANDOVER_PAYLOAD])


def leadership_lost_error(by: DaemonDescription | None) -> LeadershipLost:
    """Return the error that says that another daemon has taken over."""
    name = by.description if by else "another daemon"
    return LeadershipLost(
        f"{name} has taken over: this one does nothing more", "start it again, and it stands by: ao start"
    )


def epoch_of(writer: str | None) -> int:
    """Return the epoch in a value of the `WRITER_META_NAME` row, or 0 if there is none."""
    return int((writer or "0").partition(":")[0])


def _lock_key(link: PostgresConnection) -> int:
    """Return the id of the advisory lock, one per schema; the server separates databases itself."""
    row = link.execute("SELECT current_schema()").fetchone()
    digest = hashlib.sha256(f"agent-orchestrator:{row and row[0]}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _try_lock(link: PostgresConnection, key: int) -> bool:
    """Return whether the lock could be acquired."""
    row = link.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
    return bool(row and row[0])


def _terminate_connections(link: PostgresConnection, application: str, pid: int) -> None:
    """End the connections of a daemon, by application name or process id; the server rolls back their transactions."""
    link.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND (pid = %s OR application_name = %s)",
        [pid, application],
    )


def _has_meta(link: PostgresConnection) -> bool:
    """Return whether the table `meta` exists."""
    row = link.execute("SELECT to_regclass('meta') IS NOT NULL").fetchone()
    return bool(row and row[0])


def _raise_epoch(link: PostgresConnection) -> int:
    """Raise the epoch by one and return it."""
    row = link.execute(
        "INSERT INTO meta (name, value) VALUES (%s, '1:') ON CONFLICT (name) DO UPDATE"
        " SET value = (split_part(meta.value, ':', 1)::bigint + 1)::text || ':' RETURNING value",
        [WRITER_META_NAME],
    ).fetchone()
    return epoch_of(row and row[0])


def _read_active(link: PostgresConnection) -> DaemonDescription | None:
    """Return the active daemon as recorded, or None if there is none or another version wrote it."""
    if not _has_meta(link):
        return None
    row = link.execute("SELECT value FROM meta WHERE name = %s", [ACTIVE_META_NAME]).fetchone()
    try:
        return DaemonDescription(**json.loads(row[0])) if row and row[0] else None
    except (TypeError, ValueError):  # another version wrote it
        return None


def _write_meta(link: PostgresConnection, name: str, value: str) -> None:
    """Set a value in the table `meta`."""
    link.execute(
        "INSERT INTO meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )
