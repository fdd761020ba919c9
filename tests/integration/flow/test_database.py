"""The store on real SQLite: one commit for many, schema by version, a full disk, and what a kill leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text

from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.outbox import Batch, Known, Row
from agent_orchestrator.flow.reactions import Intent
from agent_orchestrator.flow.rules import DEFAULT_RULES
from agent_orchestrator.store import migrations
from agent_orchestrator.store.database import Database
from tests.unit.flow.world import SESSION, created

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    store = Database.sqlite(tmp_path / "ao.db")
    await store.open()
    yield store
    await store.close()


def report(number: int, size: int = 1) -> Event:
    return Event(e.AgentReport("x", {"text": "x" * size}), 1.0, "test", f"r{number}", "app", SESSION, seq=number)


def flow_on(store: Database) -> Flow:
    return Flow(store, lambda: 100.0, lambda _project, _profile: DEFAULT_RULES)


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


async def test_a_full_disk_is_temporary_and_loses_nothing_acknowledged(store: Database) -> None:
    flow = flow_on(store)
    await flow.start()
    await flow.append(replace(report(1), seq=0))
    assert store._write_connection is not None
    pages = store._write_connection.execute(text("PRAGMA page_count")).scalar()
    store._write_connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    store._write_connection.rollback()
    with pytest.raises(Temporary, match="full"):
        await flow.append(replace(report(2, 100_000), seq=0))
    assert [one.key for one in await store.events()] == ["r1"]
    store._write_connection.execute(text("PRAGMA max_page_count = 1000000"))
    store._write_connection.rollback()
    assert [one.seq for one in await flow.append(replace(report(2, 100_000), seq=0))] == [2]
    await flow.stop()


async def test_a_dropped_rows_key_is_free_and_no_other(store: Database) -> None:
    row = Row(Intent("launch", "launch:1", SESSION, 1), cause=1, order=100, due=0.0)
    await put(store, Batch(rows=[row]))

    async def taken() -> set[str]:
        def ask(known: Known) -> tuple[Batch, set[str]]:
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


async def test_a_kill_leaves_what_was_acknowledged_and_rows_to_carry_on_with(tmp_path: Path) -> None:
    store = Database.sqlite(tmp_path / "ao.db")
    flow = flow_on(store)
    await flow.start()
    await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "a", "app", SESSION))
    for name in ("ao.db", "ao.db-wal"):
        (tmp_path / f"killed-{name}").write_bytes((tmp_path / name).read_bytes())
    await flow.stop()
    await store.close()
    (tmp_path / "killed-ao.db-wal").rename(tmp_path / "killed.db-wal")
    (tmp_path / "killed-ao.db").rename(tmp_path / "killed.db")
    after = Database.sqlite(tmp_path / "killed.db")
    again = flow_on(after)
    assert [row.intent.kind for row in await again.start()] == ["prepare"]
    assert again.sessions == flow.sessions
    await again.stop()
    await after.close()


async def test_a_newer_database_is_left_alone_and_said_so(tmp_path: Path) -> None:
    store = Database.sqlite(tmp_path / "ao.db")
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "ao.db")) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
        connection.commit()
    newer = Database.sqlite(tmp_path / "ao.db")
    with pytest.raises(Conflict, match="newer version \\(99\\)") as refused:
        await newer.open()
    assert refused.value.remedy
    await newer.close()
    assert list(tmp_path.glob("*.bak")) == []


async def test_a_migration_keeps_a_copy_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Database.sqlite(tmp_path / "ao.db")
    await store.open()
    await put(store, Batch([report(1)]))
    await store.close()

    def broken(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (x TEXT)"))
        raise OSError("killed")

    def second(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE events ADD COLUMN extra TEXT"))

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))
    store = Database.sqlite(tmp_path / "ao.db")
    with pytest.raises(OSError, match="killed"):
        await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "ao.db")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "half" not in tables and "events" in tables
    with closing(sqlite3.connect(tmp_path / "ao.v1.bak")) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)

    monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.MIGRATIONS[0], second))
    store = Database.sqlite(tmp_path / "ao.db")
    assert await store.open() == 1
    assert [one.key for one in await store.events()] == ["r1"]
    await store.close()


async def test_saved_facts_of_another_shape_are_folded_anew(tmp_path: Path) -> None:
    store = Database.sqlite(tmp_path / "ao.db")
    flow = flow_on(store)
    await flow.start()
    await flow.append(created())
    await flow.stop()
    assert await store.snapshot() is not None
    await store.close()
    with closing(sqlite3.connect(tmp_path / "ao.db")) as connection:
        connection.execute("""UPDATE snapshots SET body = '{"gone": 1}' WHERE id LIKE 'session:%'""")
        connection.commit()
    store = Database.sqlite(tmp_path / "ao.db")
    again = flow_on(store)
    await again.start()
    assert again.sessions == flow.sessions
    await again.stop()
    await store.close()
