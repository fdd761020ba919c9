"""What every database must do alike: order, idempotency, group commit, restarts, versions. Import it, and give a `world` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest
from sqlalchemy import Connection, event, text

from agent_orchestrator.base import hash_chain
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import Batch, EntryFilter, Row, StoredKeys
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules import DEFAULT_RULES
from agent_orchestrator.core.store import migrations
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import Conflict
from tests.unit.core.world import SESSION, Time, created


class World(Protocol):
    """One database."""

    @property
    def other_ways(self) -> Sequence[str]:
        """Statements of its own that would change or remove events."""
        ...

    @property
    def unguard(self) -> Sequence[str]:
        """Statements that take away what forbids that."""
        ...

    def store(self) -> Database:
        """A store on it, not open yet; the one before is closed."""
        ...

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Look at it, or change it, past the store."""
        ...


@pytest.fixture
async def store(world: World) -> AsyncIterator[Database]:
    store = world.store()
    await store.open()
    yield store
    await store.close()


def report(number: int, size: int = 1) -> Event:
    return Event(e.AgentReport("x", {"text": "x" * size}), 1.0, "test", f"r{number}", "app", SESSION, seq=number)


def flow_on(store: Database) -> Flow:
    return Flow(store, Time(100.0), lambda _project, _profile: DEFAULT_RULES)


async def put(store: Database, batch: Batch) -> None:
    await store.write(lambda _known: (batch, None))


async def test_many_appends_share_few_commits(store: Database) -> None:
    flow = flow_on(store)
    await flow.start()
    commits: list[object] = []
    assert store._engine is not None
    event.listen(store._engine, "commit", commits.append)
    stored = await asyncio.gather(*(flow.append(replace(report(number), seq=0)) for number in range(200)))
    assert [one.seq for part in stored for one in part] == list(range(1, 201))
    assert 0 < len(commits) < 20
    assert [one.key for one in await store.events(limit=500)] == [f"r{number}" for number in range(200)]
    await flow.stop()


async def test_pages_by_session_project_and_from_the_end(store: Database) -> None:
    other = replace(report(4), session="app-y", project="lib")
    await put(store, Batch([report(1), report(2), report(3), other]))
    assert [one.seq for one in await store.events(1, 2)] == [2, 3]
    assert [one.seq for one in await store.events(newest=True, limit=2)] == [3, 4]
    assert [one.seq for one in await store.events(session=SESSION)] == [1, 2, 3]
    assert [one.seq for one in await store.events(project="lib")] == [4]
    assert await store.event_by_key("r2") == report(2)
    assert await store.event_by_key("none") is None


async def test_any_text_and_number_comes_back_as_it_was(store: Database) -> None:
    odd = "nul \x00, quote ' \" \\, percent % %s :x, ünïcödé 漢字 🚀, \r\n\t"
    body = e.AgentReport("x", {"text": odd, "n": 2**53 - 1})
    one = Event(body, 1794798976.123457, "test", "kéy:%s':x", "app", SESSION, 2**40, seq=1)
    row = Row(Intent("launch", "k", SESSION, 1, 0.1, {"a": odd}), 1, 2**60, 1794798976.123457, result="broken \x00 % ü")
    await put(store, Batch([one], [row]))
    assert await store.events() == [one]
    assert await store.event_by_key(one.key) == one
    (back,) = await store.pending()
    assert replace(back, result="") == replace(row, result="")
    assert back.result.startswith("broken ") and back.result.endswith("% ü")


async def test_a_key_is_told_once_also_within_one_commit_and_after_a_restart(world: World) -> None:
    store = world.store()
    flow = flow_on(store)
    await flow.start()
    twice = [replace(report(1), seq=0), replace(report(2), seq=0), replace(report(1), seq=0)]
    assert [one.seq for one in await flow.append(*twice)] == [1, 2]
    again = await asyncio.gather(*(flow.append(replace(report(number), seq=0)) for number in (2, 3, 3, 1)))
    assert [[one.seq for one in part] for part in again] == [[], [3], [], []]
    await flow.stop()
    await store.close()
    store = world.store()
    flow = flow_on(store)
    await flow.start()
    assert await flow.append(replace(report(3), seq=0)) == []
    assert [one.seq for one in await flow.append(replace(report(4), seq=0))] == [4]
    await flow.stop()
    await store.close()


async def test_a_dropped_rows_key_is_free_and_no_other(store: Database) -> None:
    row = Row(Intent("launch", "launch:1", SESSION, 1), cause=1, order=100, due=0.0)
    await put(store, Batch(rows=[row]))

    async def taken() -> set[str]:
        def ask(known: StoredKeys) -> tuple[Batch, set[str]]:
            return Batch(), known.intent_keys(["launch:1", "other"])

        return await store.write(ask)

    assert await taken() == {"launch:1"}
    await put(store, Batch(rows=[replace(row, state="dropped", updated=5.0)]))
    assert await taken() == set()
    assert await store.pending() == []
    again = replace(row, cause=7, order=700)
    await put(store, Batch(rows=[again]))
    assert await store.pending() == [again]
    await put(store, Batch(rows=[replace(again, state="done", updated=6.0)]))
    assert await taken() == {"launch:1"}
    assert [one.state for one in await store.rows(SESSION)] == ["done"]


async def test_a_restart_finds_facts_and_pending_rows(world: World) -> None:
    store = world.store()
    flow = flow_on(store)
    assert await flow.start() == []
    stored = await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "admit", "app", SESSION))
    assert [one.seq for one in stored] == [1, 2]
    assert await flow.append(created()) == []
    facts = flow.sessions[SESSION]
    await store.close()  # as after a kill: nothing saved but the log

    for saved in (False, True):
        store = world.store()
        flow = flow_on(store)
        assert [row.intent.kind for row in await flow.start()] == ["prepare"]
        assert flow.sessions[SESSION] == facts
        assert (await store.snapshot() is not None) == saved
        await flow.stop()
        await store.close()


async def test_a_newer_database_is_left_alone_and_said_so(world: World) -> None:
    store = world.store()
    await store.open()
    await store.close()
    world.sql("UPDATE meta SET value = '99' WHERE name = 'schema'")
    newer = world.store()
    with pytest.raises(Conflict, match="newer version \\(99\\)") as refused:
        await newer.open()
    assert refused.value.remedy
    await newer.close()


async def test_a_broken_migration_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = world.store()
    await store.open()
    await put(store, Batch([report(1)]))
    await store.close()

    def broken(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (x TEXT)"))
        raise Conflict("killed")

    def more(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE events ADD COLUMN extra TEXT"))

    released = migrations.MIGRATIONS
    monkeypatch.setattr(migrations, "MIGRATIONS", (*released, broken))
    store = world.store()
    with pytest.raises(Conflict, match="killed"):
        await store.open()
    await store.close()
    assert world.sql("SELECT value FROM meta WHERE name = 'schema'") == [(str(len(released)),)]
    monkeypatch.setattr(migrations, "MIGRATIONS", (*released, more))
    store = world.store()
    assert await store.open() == 1
    assert [one.key for one in await store.events()] == ["r1"]
    await store.close()
    with pytest.raises(Exception, match="half"):
        world.sql("SELECT * FROM half")


async def test_saved_facts_of_another_shape_are_folded_anew(world: World) -> None:
    store = world.store()
    flow = flow_on(store)
    await flow.start()
    await flow.append(created())
    await flow.stop()
    assert await store.snapshot() is not None
    await store.close()
    world.sql("""UPDATE snapshots SET body = '{"gone": 1}' WHERE id LIKE 'session:%'""")
    store = world.store()
    again = flow_on(store)
    await again.start()
    assert again.sessions == flow.sessions
    await again.stop()
    await store.close()


async def verdict_on(store: Database) -> hash_chain.ChainResult:
    chain = hash_chain.ChainVerifier()
    chain.follow(await store.entries(EntryFilter()))
    return chain.verdict


async def test_entries_are_chained_from_the_first_on_across_restarts_and_failed_writes(world: World) -> None:
    def damaged(_known: StoredKeys) -> tuple[Batch, None]:
        return Batch([replace(report(3), key="r1")]), None

    store = world.store()
    await store.open()
    await put(store, Batch([replace(report(1), actor="token ci"), report(2)]))
    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.write(damaged)
    await put(store, Batch([replace(report(3), actor="rule ci-failed", cause=2)]))
    await store.close()
    store = world.store()
    await store.open()
    await put(store, Batch([replace(report(4), time=5)]))
    found = await store.entries(EntryFilter())
    assert await verdict_on(store) == hash_chain.ChainResult(4, hash_chain.Head(4, found[-1]["digest"]))
    assert [(one["actor"], one["cause"]) for one in found[:3]] == [
        ("token ci", None),
        ("", None),
        ("rule ci-failed", 2),
    ]
    assert [(one.actor, one.cause) for one in await store.events(2, 1)] == [("rule ci-failed", 2)]
    assert await store.types([3, 4, 9]) == {3: "agent-report", 4: "agent-report"}
    await store.close()


async def test_what_was_recorded_is_neither_changed_nor_removed_nor_replaced(world: World) -> None:
    store = world.store()
    await store.open()
    await put(store, Batch([report(1), report(2)]))
    before = await store.entries(EntryFilter())
    await store.close()
    columns = "seq, key, type, generation, source, time, data, actor, digest"
    values = "'agent-report', 0, 'test', 1.0, '{}', 'daemon', ''"
    tries = [
        "UPDATE events SET actor = 'daemon' WHERE seq = 1",
        "UPDATE events SET seq = 7 WHERE seq = 2",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events",
        f"INSERT INTO events ({columns}) VALUES (1, 'new', {values})",
        f"INSERT INTO events ({columns}) VALUES (9, 'r1', {values}) ON CONFLICT (key) DO UPDATE SET actor = 'x'",
    ]
    for statement in [*tries, *world.other_ways]:
        with pytest.raises(Exception, match=r"never|UNIQUE|unique"):
            world.sql(statement)
    store = world.store()
    await store.open()
    assert await store.entries(EntryFilter()) == before
    await store.close()


@pytest.mark.parametrize(
    ("statement", "broken", "reason"),
    [
        ("UPDATE events SET actor = 'daemon' WHERE seq = 3", 3, "changed"),
        ("UPDATE events SET data = '{}' WHERE seq = 1", 1, "changed"),
        ("UPDATE events SET time = time + 0.001 WHERE seq = 5", 5, "changed"),
        ("UPDATE events SET cause = 1 WHERE seq = 2", 2, "changed"),
        ("UPDATE events SET session = NULL WHERE seq = 4", 4, "changed"),
        ("DELETE FROM events WHERE seq IN (2, 3)", 2, "2 entries are missing"),
        ("DELETE FROM events WHERE seq = 1", 1, "1 entry is missing"),
    ],
)
async def test_what_was_changed_all_the_same_is_seen(world: World, statement: str, broken: int, reason: str) -> None:
    store = world.store()
    await store.open()
    await put(store, Batch([replace(report(number), actor="token ci") for number in range(1, 6)]))
    await store.close()
    for each in (*world.unguard, statement):
        world.sql(each)
    store = world.store()
    await store.open()
    await put(store, Batch([report(6)]))
    found = await verdict_on(store)
    assert (found.broken, found.entries) == (broken, broken - 1)
    assert reason in found.reason
    await store.close()


async def test_entries_are_found_by_who_what_when_and_where(store: Database) -> None:
    ways = [("rule a", 1.0), ("rule", 2.0), ("ruler", 3.0), ("token 100%", 4.0)]
    events = [replace(report(number), actor=who, time=at) for number, (who, at) in enumerate(ways, 1)]
    other = Event(e.DaemonStopped(), 5.0, "daemon", "d", "web", None, seq=5, actor="daemon")
    await put(store, Batch([*events, other]))

    async def found(**wanted: Any) -> list[int]:
        return [one["seq"] for one in await store.entries(EntryFilter(**wanted))]

    assert await found(actor="rule") == [1, 2]
    assert await found(actor="rule a") == [1]
    assert await found(actor="token 100%") == [4]
    assert await found(actor="token 10_%") == []
    assert await found(since=2.0, until=4.0) == [2, 3]
    assert await found(kind="daemon-stopped") == await found(project="web") == [5]
    assert await found(session=SESSION, actor="ruler") == [3]
    newest = await store.entries(EntryFilter(), 1, 2, newest=True)
    assert [one["seq"] for one in newest] == [4, 5]
