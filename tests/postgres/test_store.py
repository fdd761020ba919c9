"""The store on a real PostgreSQL: the suite of every database, and leadership."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_orchestrator.core.actor import acting_as
from agent_orchestrator.core.outbox import Batch, StoredKeys
from agent_orchestrator.core.outbox import OutboxRow as OutboxRow
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.store.leader import SILENCE_LIMIT_SECONDS, DaemonDescription, LeadershipLost
from agent_orchestrator.core.store.postgres import Postgres
from agent_orchestrator.errors import Temporary
from agent_orchestrator.testing.postgres import PostgresServer
from tests.integration.core.store_suite import *  # noqa: F403
from tests.integration.core.store_suite import make_flow, report, write_batch

pytestmark = pytest.mark.anyio


class Base:
    """A PostgreSQL database."""

    other_ways = (
        "TRUNCATE events",
        "INSERT INTO events SELECT * FROM events ON CONFLICT (seq) DO UPDATE SET actor = 'x'",
    )
    unguard = ("ALTER TABLE events DISABLE TRIGGER ALL",)

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name
        self.hang = threading.Event()
        """Set at the end, to continue threads that hang until then."""
        self.stores: list[Postgres] = []

    def end(self) -> None:
        """Stop all stores from using the database."""
        for store in self.stores:
            if store._election is not None:
                store._election._closing = True
        self.hang.set()

    def store(self, host: str = "one") -> Postgres:
        store = Postgres(self.server.url(self.name), DaemonDescription(host, f"/home/{host}", os.getpid(), time.time()))
        self.stores.append(store)
        return store

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.sql(statement, self.name)

    def cut(self, store: Postgres, *, only_turn: bool = False) -> None:
        """End a store's connections at the server, as a network failure would."""
        more = "AND query NOT LIKE '%%UPDATE meta%%' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
        self.sql(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE application_name = '{store.own_daemon.application}' {more if only_turn else ''}"
        )


@pytest.fixture
def world(server: PostgresServer, database: str) -> Iterator[Base]:
    base = Base(server, database)
    yield base
    base.end()


def ignore(_error: Exception) -> None:
    """Ignore the loss of leadership."""


async def until(holds: Any, timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


async def test_rows_of_one_event_have_a_fixed_order(world: Base) -> None:
    store = world.store()
    await store.open()
    rows = [OutboxRow(Intent("check", key, "app-x", 1), 1, 100, 0.0) for key in ("b", "Z", "a", "ä", "_")]
    await write_batch(store, Batch(rows=rows))
    await write_batch(
        store, Batch(rows=[replace(rows[1], due=5.0, updated_at=1.0)])
    )  # moves it to another place in the table
    assert [row.intent.key for row in await store.pending()] == ["Z", "_", "a", "b", "ä"]
    await store.close()


async def test_a_standby_store_follows_and_takes_over_at_once_on_a_handover(world: Base) -> None:
    first, second = world.store("one"), world.store("two")
    flow, behind = make_flow(first), make_flow(second)
    await flow.start()
    news: list[float] = []
    assert not await second.request_leadership(lambda: news.append(time.monotonic()), ignore)
    assert second.active_daemon is not None and second.active_daemon.host == "one"
    with pytest.raises(Temporary, match="one's daemon"):
        await second.open()
    await flow.append(replace(report(1), seq=0))
    await until(lambda: news)
    await behind.catch_up_from_store()
    assert behind._folded_seq == 1
    turn = asyncio.create_task(second.wait_for_leadership())
    await flow.stop()
    begun = time.monotonic()
    await first.close()
    await turn
    assert time.monotonic() - begun < 1.0
    assert await behind.start() == []
    assert [event.seq for event in await behind.append(replace(report(2), seq=0))] == [2]
    await behind.stop()
    await second.close()


async def test_a_store_that_lost_leadership_writes_nothing_and_is_notified(world: Base) -> None:
    first, second = world.store("one"), world.store("two")
    errors: list[Exception] = []
    assert await first.request_leadership(lambda: None, errors.append)
    flow = make_flow(first)
    await flow.start()
    await flow.append(replace(report(1), seq=0))
    assert first._election is not None
    first._election._keep_or_await_leadership = lambda _link: world.hang.wait(60)  # type: ignore[assignment, method-assign]  # it does not notice the loss
    assert not await second.request_leadership(lambda: None, ignore)
    world.cut(first, only_turn=True)
    await second.wait_for_leadership()
    with pytest.raises(LeadershipLost, match="has taken over"):  # its connections were ended, and the retry failed
        await flow.append(replace(report(2), seq=0))
    with pytest.raises(LeadershipLost):
        await first.confirm()
    with pytest.raises(LeadershipLost):
        await write_batch(first, Batch(rows=[OutboxRow(Intent("check", "k", "app-x", 1), 1, 100, 0.0)]))
    assert len(errors) == 1
    after = make_flow(second)
    await after.start()
    assert [event.key for event in await second.events()] == ["r1"]
    assert await second.pending() == []
    await after.stop()
    await second.close()


async def test_every_write_names_the_epoch(world: Base) -> None:
    store = world.store()
    flow = make_flow(store)
    await flow.start()
    world.sql("UPDATE meta SET value = '7:' WHERE name = 'writer'")
    with pytest.raises(LeadershipLost):
        await flow.append(replace(report(1), seq=0))
    assert world.sql("SELECT count(*) FROM events") == [(0,)]
    assert world.sql("SELECT value FROM meta WHERE name = 'writer'") == [("7:",)]
    await flow._save()
    assert world.sql("SELECT count(*) FROM snapshots") == [(0,)]
    await store.close()


async def test_a_transaction_cannot_be_committed_after_another_store_took_over(world: Base) -> None:
    first, second = world.store("one"), world.store("two")
    await first.open()
    inside, go_on = threading.Event(), threading.Event()

    def slow(_stored_keys: StoredKeys) -> tuple[Batch, None]:
        inside.set()
        go_on.wait(20)
        return Batch([report(1)]), None

    writing = asyncio.create_task(first.write(slow))
    await until(inside.is_set)
    assert first._election is not None
    first._election._keep_or_await_leadership = lambda _link: world.hang.wait(60)  # type: ignore[assignment, method-assign]
    assert not await second.request_leadership(lambda: None, ignore)
    world.cut(first, only_turn=True)
    await second.wait_for_leadership()
    assert await second.open() == 0
    await write_batch(second, Batch([replace(report(1), key="other")]))
    go_on.set()
    with pytest.raises((LeadershipLost, Temporary)):
        await writing
    assert [event.key for event in await second.events()] == ["other"]
    await second.close()


async def test_a_store_without_a_heartbeat_loses_leadership(world: Base) -> None:
    first, second = world.store("one"), world.store("two")
    await first.open()
    assert first._election is not None
    first._election._send_heartbeat = lambda _link: world.hang.wait(30)  # type: ignore[assignment, method-assign]  # as if stopped: its connections stay
    await asyncio.sleep(1.6)
    begun = time.monotonic()
    assert not await second.request_leadership(lambda: None, ignore)
    await asyncio.wait_for(second.wait_for_leadership(), 10.0)
    assert SILENCE_LIMIT_SECONDS - 3.0 < time.monotonic() - begun < 10.0
    with pytest.raises((LeadershipLost, Temporary)):
        await write_batch(first, Batch([report(1)]))
    with pytest.raises((LeadershipLost, Temporary)):
        await write_batch(first, Batch([report(1)]))
    assert await second.open() == 0
    await second.close()


async def test_reads_and_writes_continue_after_a_restart_of_the_server(world: Base, server: PostgresServer) -> None:
    store, waiting = world.store("one"), world.store("two")
    flow = make_flow(store)
    await flow.start()
    assert not await waiting.request_leadership(lambda: None, ignore)
    await flow.append(replace(report(1), seq=0))
    epoch = store._election and store._election.epoch
    server.stop()
    with acting_as("you"), pytest.raises(Temporary, match="cannot be used") as away:
        await flow.append(replace(report(2), seq=0))
    kept = asyncio.create_task(
        flow.append(replace(report(2), seq=0))
    )  # the daemon's own write is kept, because no caller would repeat it
    assert "s3cret" not in str(away.value) and "PostgreSQL" in away.value.remedy
    reading = asyncio.create_task(store.events())
    await asyncio.sleep(0.3)
    server.start()
    assert [event.key for event in await reading][:1] == ["r1"]
    assert [event.seq for event in await kept] == [2]
    await asyncio.sleep(4.0)
    assert store.end_error is None and store._election and store._election.epoch == epoch
    assert waiting._election and waiting._election.epoch is None
    await flow.append(replace(report(3), seq=0))
    await flow.stop()
    await store.close()
    await waiting.wait_for_leadership()
    assert await waiting.open() == 3
    await waiting.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_a_connection_lost_during_commit_is_resolved(
    world: Base, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    store = world.store()
    flow = make_flow(store)
    await flow.start()
    await flow.append(replace(report(1), seq=0))
    dialect = store._engine.dialect  # type: ignore[union-attr]
    original, once = dialect.do_commit, [True]

    def commit(connection: Any) -> None:
        if not once or connection.driver_connection.info.backend_pid != writer:
            original(connection)
            return
        once.clear()
        if committed:
            original(connection)
        world.cut(store)
        original(connection)
        connection.driver_connection.execute("SELECT 1")  # an empty commit sends nothing to the server

    assert store._write_connection is not None
    writer = store._write_connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
    monkeypatch.setattr(dialect, "do_commit", commit)
    if committed:
        assert [event.seq for event in await flow.append(replace(report(2), seq=0))] == [2]
    else:
        with acting_as("you"), pytest.raises(Temporary):
            await flow.append(replace(report(2), seq=0))
        assert [event.seq for event in await flow.append(replace(report(2), seq=0))] == [2]
    assert [event.seq for event in await flow.append(replace(report(3), seq=0))] == [3]
    assert [event.key for event in await store.events()] == ["r1", "r2", "r3"]
    assert not once
    await flow.stop()
    await store.close()
