"""Tests for every database: order, idempotency, group commit, restarts, versions. Import them and provide a `world` fixture."""

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
from agent_orchestrator.core.outbox import Batch, LogEntryFilter, OutboxRow, StoredKeys
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store import migrations
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import Conflict
from tests.unit.core.world import SESSION, ManualClock, created


class DatabaseWorld(Protocol):
    """One database."""

    @property
    def other_changes(self) -> Sequence[str]:
        """Return statements of this database that would change or remove events."""
        ...

    @property
    def remove_guards(self) -> Sequence[str]:
        """Return statements that remove the protection against such changes."""
        ...

    def store(self) -> Database:
        """Return a store on the database that is not open yet; the previous one must be closed."""
        ...

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement directly on the database and return its rows."""
        ...


@pytest.fixture
async def store(world: DatabaseWorld) -> AsyncIterator[Database]:
    store = world.store()
    await store.open()
    yield store
    await store.close()


def report(number: int, size: int = 1) -> Event:
    return Event(e.AgentReport("x", {"text": "x" * size}), 1.0, "test", f"r{number}", "app", SESSION, seq=number)


def make_flow(store: Database) -> Flow:
    return Flow(store, ManualClock(100.0), lambda _project, _profile: DEFAULT_RULES)


async def write_batch(store: Database, batch: Batch) -> None:
    await store.write(lambda _stored_keys: (batch, None))


async def test_many_appends_share_few_commits(store: Database) -> None:
    flow = make_flow(store)
    await flow.start()
    commits: list[object] = []
    assert store._engine is not None
    event.listen(store._engine, "commit", commits.append)
    stored = await asyncio.gather(*(flow.append(replace(report(number), seq=0)) for number in range(200)))
    assert [stored_event.seq for part in stored for stored_event in part] == list(range(1, 201))
    assert 0 < len(commits) < 20
    assert [stored_event.key for stored_event in await store.events(limit=500)] == [
        f"r{number}" for number in range(200)
    ]
    await flow.stop()


async def test_events_are_paged_by_session_project_and_from_the_end(store: Database) -> None:
    other = replace(report(4), session="app-y", project="lib")
    await write_batch(store, Batch([report(1), report(2), report(3), other]))
    assert [stored_event.seq for stored_event in await store.events(1, 2)] == [2, 3]
    assert [stored_event.seq for stored_event in await store.events(newest=True, limit=2)] == [3, 4]
    assert [stored_event.seq for stored_event in await store.events(session=SESSION)] == [1, 2, 3]
    assert [stored_event.seq for stored_event in await store.events(project="lib")] == [4]
    assert await store.event_by_key("r2") == report(2)
    assert await store.event_by_key("none") is None


async def test_any_text_and_number_is_stored_unchanged(store: Database) -> None:
    odd = "nul \x00, quote ' \" \\, percent % %s :x, ünïcödé 漢字 🚀, \r\n\t"
    body = e.AgentReport("x", {"text": odd, "n": 2**53 - 1})
    odd_event = Event(body, 1794798976.123457, "test", "kéy:%s':x", "app", SESSION, 2**40, seq=1)
    row = OutboxRow(
        Intent("launch", "k", SESSION, 1, 0.1, {"a": odd}), 1, 2**60, 1794798976.123457, result="broken \x00 % ü"
    )
    await write_batch(store, Batch([odd_event], [row]))
    assert await store.events() == [odd_event]
    assert await store.event_by_key(odd_event.key) == odd_event
    (stored_row,) = await store.pending()
    assert replace(stored_row, result="") == replace(row, result="")
    assert stored_row.result.startswith("broken ") and stored_row.result.endswith("% ü")


async def test_a_key_is_stored_once_within_a_commit_and_across_restarts(world: DatabaseWorld) -> None:
    store = world.store()
    flow = make_flow(store)
    await flow.start()
    twice = [replace(report(1), seq=0), replace(report(2), seq=0), replace(report(1), seq=0)]
    assert [stored_event.seq for stored_event in await flow.append(*twice)] == [1, 2]
    again = await asyncio.gather(*(flow.append(replace(report(number), seq=0)) for number in (2, 3, 3, 1)))
    assert [[stored_event.seq for stored_event in part] for part in again] == [[], [3], [], []]
    await flow.stop()
    await store.close()
    store = world.store()
    flow = make_flow(store)
    await flow.start()
    assert await flow.append(replace(report(3), seq=0)) == []
    assert [stored_event.seq for stored_event in await flow.append(replace(report(4), seq=0))] == [4]
    await flow.stop()
    await store.close()


async def test_only_the_key_of_a_dropped_row_can_be_used_again(store: Database) -> None:
    row = OutboxRow(Intent("launch", "launch:1", SESSION, 1), cause=1, order=100, due=0.0)
    await write_batch(store, Batch(rows=[row]))

    async def used_keys() -> set[str]:
        def read_keys(stored_keys: StoredKeys) -> tuple[Batch, set[str]]:
            return Batch(), stored_keys.intent_keys(["launch:1", "other"])

        return await store.write(read_keys)

    assert await used_keys() == {"launch:1"}
    await write_batch(store, Batch(rows=[replace(row, state="dropped", updated_at=5.0)]))
    assert await used_keys() == set()
    assert await store.pending() == []
    again = replace(row, cause=7, order=700)
    await write_batch(store, Batch(rows=[again]))
    assert await store.pending() == [again]
    await write_batch(store, Batch(rows=[replace(again, state="done", updated_at=6.0)]))
    assert await used_keys() == {"launch:1"}
    assert [stored_row.state for stored_row in await store.rows(SESSION)] == ["done"]


async def test_a_restart_finds_facts_and_pending_rows(world: DatabaseWorld) -> None:
    store = world.store()
    flow = make_flow(store)
    assert await flow.start() == []
    stored = await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "admit", "app", SESSION))
    assert [stored_event.seq for stored_event in stored] == [1, 2]
    assert await flow.append(created()) == []
    facts = flow.sessions[SESSION]
    await store.close()  # as after a kill: nothing saved but the log

    for saved in (False, True):
        store = world.store()
        flow = make_flow(store)
        assert [row.intent.kind for row in await flow.start()] == ["prepare"]
        assert flow.sessions[SESSION] == facts
        assert (await store.snapshot() is not None) == saved
        await flow.stop()
        await store.close()


async def test_a_newer_database_is_refused_and_not_changed(world: DatabaseWorld) -> None:
    store = world.store()
    await store.open()
    await store.close()
    world.sql("UPDATE meta SET value = '99' WHERE name = 'schema'")
    newer_store = world.store()
    with pytest.raises(Conflict, match="newer version \\(99\\)") as refused:
        await newer_store.open()
    assert refused.value.remedy
    await newer_store.close()


async def test_a_broken_migration_changes_nothing(world: DatabaseWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    store = world.store()
    await store.open()
    await write_batch(store, Batch([report(1)]))
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
    assert [stored_event.key for stored_event in await store.events()] == ["r1"]
    await store.close()
    with pytest.raises(Exception, match="half"):
        world.sql("SELECT * FROM half")


async def test_snapshots_with_an_outdated_format_are_rebuilt_from_events(world: DatabaseWorld) -> None:
    store = world.store()
    flow = make_flow(store)
    await flow.start()
    await flow.append(created())
    await flow.stop()
    assert await store.snapshot() is not None
    await store.close()
    world.sql("""UPDATE snapshots SET body = '{"gone": 1}' WHERE id LIKE 'session:%'""")
    store = world.store()
    again = make_flow(store)
    await again.start()
    assert again.sessions == flow.sessions
    await again.stop()
    await store.close()


async def verify_chain(store: Database) -> hash_chain.ChainResult:
    chain = hash_chain.ChainVerifier()
    chain.verify(await store.entries(LogEntryFilter()))
    return chain.result


async def test_audit_entries_are_chained_across_restarts_and_failed_writes(world: DatabaseWorld) -> None:
    def damaged(_stored_keys: StoredKeys) -> tuple[Batch, None]:
        return Batch([replace(report(3), key="r1")]), None

    store = world.store()
    await store.open()
    await write_batch(store, Batch([replace(report(1), actor="token ci"), report(2)]))
    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.write(damaged)
    await write_batch(store, Batch([replace(report(3), actor="rule ci-failed", cause=2)]))
    await store.close()
    store = world.store()
    await store.open()
    await write_batch(store, Batch([replace(report(4), time=5)]))
    entries = await store.entries(LogEntryFilter())
    assert await verify_chain(store) == hash_chain.ChainResult(4, hash_chain.ChainHead(4, entries[-1]["digest"]))
    assert [(entry["actor"], entry["cause"]) for entry in entries[:3]] == [
        ("token ci", None),
        ("", None),
        ("rule ci-failed", 2),
    ]
    assert [(entry.actor, entry.cause) for entry in await store.events(2, 1)] == [("rule ci-failed", 2)]
    assert await store.event_types([3, 4, 9]) == {3: "agent-report", 4: "agent-report"}
    await store.close()


async def test_recorded_events_cannot_be_changed_removed_or_replaced(world: DatabaseWorld) -> None:
    store = world.store()
    await store.open()
    await write_batch(store, Batch([report(1), report(2)]))
    before = await store.entries(LogEntryFilter())
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
    for statement in [*tries, *world.other_changes]:
        with pytest.raises(Exception, match=r"never|UNIQUE|unique"):
            world.sql(statement)
    store = world.store()
    await store.open()
    assert await store.entries(LogEntryFilter()) == before
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
async def test_forced_changes_of_events_are_detected(
    world: DatabaseWorld, statement: str, broken: int, reason: str
) -> None:
    store = world.store()
    await store.open()
    await write_batch(store, Batch([replace(report(number), actor="token ci") for number in range(1, 6)]))
    await store.close()
    for sql_statement in (*world.remove_guards, statement):
        world.sql(sql_statement)
    store = world.store()
    await store.open()
    await write_batch(store, Batch([report(6)]))
    verdict = await verify_chain(store)
    assert (verdict.first_invalid, verdict.entries) == (broken, broken - 1)
    assert reason in verdict.reason
    await store.close()


async def test_audit_entries_are_filtered_by_actor_type_time_project_and_session(store: Database) -> None:
    actors = [("rule a", 1.0), ("rule", 2.0), ("ruler", 3.0), ("token 100%", 4.0)]
    events = [replace(report(number), actor=actor, time=at) for number, (actor, at) in enumerate(actors, 1)]
    other = Event(e.DaemonStopped(), 5.0, "daemon", "d", "web", None, seq=5, actor="daemon")
    await write_batch(store, Batch([*events, other]))

    async def matching_entries(**filters: Any) -> list[int]:
        return [entry["seq"] for entry in await store.entries(LogEntryFilter(**filters))]

    assert await matching_entries(actor="rule") == [1, 2]
    assert await matching_entries(actor="rule a") == [1]
    assert await matching_entries(actor="token 100%") == [4]
    assert await matching_entries(actor="token 10_%") == []
    assert await matching_entries(since=2.0, until=4.0) == [2, 3]
    assert await matching_entries(kind="daemon-stopped") == await matching_entries(project="web") == [5]
    assert await matching_entries(session=SESSION, actor="ruler") == [3]
    newest = await store.entries(LogEntryFilter(), 1, 2, newest=True)
    assert [entry["seq"] for entry in newest] == [4, 5]
