"""Whose turn it is: of all daemons on one PostgreSQL database one is active, the others stand by.

It is decided by an advisory lock that lives and dies with a connection of its own. Each new turn raises the *epoch*, which every
transaction that writes names (`postgres.py`): whoever lost his turn without noticing, cut off or asleep, writes nothing more.
Who is active asks on this connection every moment; when the server has not heard of him for too long, whoever stands by
ends his connections and takes over. All of this happens in a thread: no lock, pause or lost connection holds up the event loop.
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
from typing import Any

import psycopg
import structlog

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.store.address import Address
from agent_orchestrator.errors import AoError, Unreachable

BEAT = 1.5
"""Seconds between two signs of life."""
SILENT = 6.0
"""Seconds after which somebody who gave none is taken for gone."""
LOOK = 1.0
"""Seconds between two looks of whoever stands by."""
GRACE = 3.0
"""Seconds that whoever stands by leaves to the one that was active after the server itself was away."""
CHANNEL = "agent_orchestrator"
"""NOTIFY tells here that something was written: the last event's number, or `handed over`."""
HANDED_OVER = "handed over"
WRITER = "writer"
"""The name in `meta` of `<epoch>:<mark>`: whose turn it is, and his last transaction."""
ACTIVE = "active"
"""The name in `meta` of who is active."""

Link = psycopg.Connection[Any]

log = structlog.get_logger()


class Deposed(Unreachable):
    """Another daemon is active now: this one does nothing more."""


@dataclass(frozen=True, slots=True)
class Active:
    """A daemon, as others are told of it."""

    host: str
    home: str
    pid: int
    since: float
    url: str = ""
    machine: str = ""
    """Tells machines of one name apart."""
    application: str = ""
    """What its connections call themselves."""

    @property
    def place(self) -> str:
        """Its home, by a name that no other one has."""
        return f"{self.host}/{self.machine}:{self.home}" if self.machine else f"{self.host}:{self.home}"

    @property
    def told(self) -> str:
        """In a sentence."""
        return f"{self.host}'s daemon (pid {self.pid}, since {rfc3339(self.since)})"


class Turn(threading.Thread):
    """Waits for the turn, and keeps it."""

    def __init__(self, address: Address, me: Active, prepare: Callable[[Link], None]) -> None:
        """`prepare` brings the schema up to date; it is called once the turn is ours."""
        super().__init__(name="store-turn", daemon=True)
        self.me = me
        self.epoch: int | None = None
        """Ours; none while somebody else's turn lasts."""
        self.active: Active | None = None
        """Who is active, as was last seen."""
        self.sure_at = 0.0
        """When it was last certain that the turn is ours, by the monotonic clock."""
        self.on_look: Callable[[], None] = _nothing
        """Called after each look of whoever stands by, and once the turn is ours."""
        self.on_news: Callable[[], None] = _nothing
        """Called when the active one has written something."""
        self.on_end: Callable[[AoError], None] = _nothing_of
        """Called once when the turn is lost, or cannot be had at all."""
        self._address = address
        self._prepare = prepare
        self._woken, self._wake = os.pipe()
        self._closing = False
        self._backend = 0
        self._not_before = 0.0
        self._met = self._away = False

    def close(self) -> None:
        """Hand the turn over, if it is ours, and end."""
        self._closing = True
        os.write(self._wake, b"x")
        if self.is_alive():
            self.join(10.0)
        os.close(self._wake)
        os.close(self._woken)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until closed, or deposed."""
        pause = 0.1
        while not self._closing:
            try:
                with self._address.connect(self.me.application, autocommit=True) as link:
                    pause = 0.1
                    self._attend(link)
            except AoError as error:
                self.on_end(error)
                return
            except psycopg.Error as error:
                if not self._met:
                    self.on_end(self._address.explained(error))
                    return
                if not self._away:
                    log.warning("the database is away", error=self._address.explained(error).text)
                self._away = True
                self._not_before = time.monotonic() + GRACE
                self._pause(None, pause)
                pause = min(pause * 2, 1.0)

    def _attend(self, link: Link) -> None:
        # A machine that vanished with its turn is noticed by the server itself, too.
        for name, value in (("idle", 2), ("interval", 1), ("count", 4)):
            link.execute(f"SET tcp_keepalives_{name} = {value}")
        link.execute("SET lock_timeout = '8s'")
        link.execute(f"LISTEN {CHANNEL}")
        self._met = True
        if self._away:
            log.info("the database is there again")
        self._away = False
        key = _key(link)
        holding = False
        while not self._closing:
            if self.epoch is not None:
                self._beat(link)
                holding = holding or self._lock_again(link, key)
                wait = BEAT if holding else 0.2
            elif (left := self._not_before - time.monotonic()) > 0:
                wait = left
            elif _lock(link, key):
                self._take(link)
                holding, wait = True, BEAT
            else:
                self._look(link, key)
                wait = LOOK
            self._backend = link.info.backend_pid
            self._pause(link, wait)
        if holding:
            self._hand_over(link)

    def _pause(self, link: Link | None, seconds: float) -> None:
        """Until it is time, something is to be done at once, or the connection breaks. What was written meanwhile is told."""
        end = time.monotonic() + seconds
        while not self._closing and (left := end - time.monotonic()) > 0:
            files = [self._woken, *([link.fileno()] if link else [])]
            ready, _, _ = select.select(files, [], [], left)
            if link is not None and files[-1] in ready:
                told = [note.payload for note in link.notifies(timeout=0)]
                if told and self.epoch is None:
                    self.on_news()
                    if HANDED_OVER in told:
                        self._not_before = 0.0
                        return

    def _look(self, link: Link, key: int) -> None:
        """See who is active; end one that gives no sign of life."""
        self.active = _active(link)
        found = link.execute(
            "SELECT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.state_change)::float8"
            " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND l.classid::bigint = %s AND l.objid::bigint = %s",
            [(key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF],
        ).fetchone()
        if found is not None and found[2] is not None and found[2] > SILENT:
            who = self.active.told if self.active else "the active daemon"
            log.warning("no sign of life: its connections are ended", of=who, seconds=round(found[2], 1))
            _end(link, str(found[1]), int(found[0]))
            self._not_before = time.monotonic() + 0.1
        self.on_look()

    def _take(self, link: Link) -> None:
        """The lock is ours: whoever had it before is kept from writing, and the schema is brought up to date."""
        before = _active(link)
        if before is not None and before.application:
            _end(link, before.application, 0)
        raised = _raise_epoch(link) if _has_meta(link) else None
        self._prepare(link)
        epoch = raised or _raise_epoch(link)
        _write_meta(link, ACTIVE, json.dumps(asdict(self.me)))
        self.sure_at = time.monotonic()
        self.active, self.epoch = self.me, epoch
        self.on_look()

    def _beat(self, link: Link) -> None:
        """A sign of life; and see that the turn is still ours."""
        now = time.monotonic()
        found = link.execute("SELECT value FROM meta WHERE name = %s", [WRITER]).fetchone()
        if epoch_of(found and found[0]) != self.epoch:
            raise deposed(_active(link))
        self.sure_at = now

    def _lock_again(self, link: Link, key: int) -> bool:
        """After a lost connection: nobody else took the turn, so it goes on."""
        if self._backend:  # the server may not have noticed yet that it is gone
            link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND application_name = %s",
                         [self._backend, self.me.application])  # fmt: skip
        return _lock(link, key)

    def _hand_over(self, link: Link) -> None:
        _write_meta(link, ACTIVE, "")
        link.execute("SELECT pg_advisory_unlock_all()")
        link.execute("SELECT pg_notify(%s, %s)", [CHANNEL, HANDED_OVER])


def deposed(by: Active | None) -> Deposed:
    """This daemon's turn is over."""
    who = by.told if by else "another daemon"
    return Deposed(f"{who} has taken over: this one does nothing more", "start it again, and it stands by: ao start")


def epoch_of(writer: str | None) -> int:
    """Whose turn it is, by the row that every transaction names."""
    return int((writer or "0").partition(":")[0])


def _key(link: Link) -> int:
    """One lock for each schema; the server keeps databases apart by itself."""
    row = link.execute("SELECT current_schema()").fetchone()
    digest = hashlib.sha256(f"agent-orchestrator:{row and row[0]}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _lock(link: Link, key: int) -> bool:
    row = link.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
    return bool(row and row[0])


def _end(link: Link, application: str, pid: int) -> None:
    """End the connections of a daemon: what they were in the middle of is undone."""
    link.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND (pid = %s OR application_name = %s)",
        [pid, application],
    )


def _has_meta(link: Link) -> bool:
    row = link.execute("SELECT to_regclass('meta') IS NOT NULL").fetchone()
    return bool(row and row[0])


def _raise_epoch(link: Link) -> int:
    row = link.execute(
        "INSERT INTO meta (name, value) VALUES (%s, '1:') ON CONFLICT (name) DO UPDATE"
        " SET value = (split_part(meta.value, ':', 1)::bigint + 1)::text || ':' RETURNING value",
        [WRITER],
    ).fetchone()
    return epoch_of(row and row[0])


def _active(link: Link) -> Active | None:
    if not _has_meta(link):
        return None
    row = link.execute("SELECT value FROM meta WHERE name = %s", [ACTIVE]).fetchone()
    try:
        return Active(**json.loads(row[0])) if row and row[0] else None
    except (TypeError, ValueError):  # another version wrote it
        return None


def _write_meta(link: Link, name: str, value: str) -> None:
    link.execute(
        "INSERT INTO meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )


def _nothing() -> None:
    pass


def _nothing_of(_error: AoError) -> None:
    pass
