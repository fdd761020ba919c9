"""The store on real SQLite: what every database does, a copy before a new version, a full disk, and what a kill leaves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import Batch, EntryFilter
from agent_orchestrator.core.store import migrations
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import Temporary
from tests.integration.core.store_suite import *  # noqa: F403
from tests.integration.core.store_suite import flow_on, put, report, verdict_on
from tests.unit.core.world import SESSION, created
from tests.upgrade.homes import old_database

pytestmark = pytest.mark.anyio


_REST = "type, project, session, generation, source, time, data"


class File:
    """One SQLite database."""

    other_ways = (
        f"INSERT OR REPLACE INTO events SELECT seq, 'other', {_REST}, 'x', 0, '' FROM events",
        f"INSERT OR REPLACE INTO events SELECT 9, key, {_REST}, 'x', 0, '' FROM events LIMIT 1",
        "REPLACE INTO events SELECT * FROM events",
        "UPDATE OR REPLACE events SET seq = 2 WHERE seq = 1",
    )
    unguard = tuple(f"DROP TRIGGER events_{name}" for name in ("stay", "remain", "follow"))

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self) -> Database:
        return Database.sqlite(self.path)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute(statement).fetchall()
            connection.commit()
        return rows


@pytest.fixture
def world(tmp_path: Path) -> File:
    return File(tmp_path / "ao.db")


async def test_what_an_earlier_version_recorded_says_who_it_was_and_is_chained(world: File, tmp_path: Path) -> None:
    old_database(1, world.path, tmp_path)
    before = world.sql(f"SELECT seq, key, {_REST} FROM events ORDER BY seq")
    store = world.store()
    assert await store.open() == len(before) > 50
    await put(store, Batch([report(len(before) + 1)]))
    found = await verdict_on(store)
    assert (found.entries, found.broken) == (len(before) + 1, None)
    assert world.sql(f"SELECT seq, key, {_REST} FROM events ORDER BY seq")[:-1] == before
    actors = {one["source"]: one["actor"] for one in await store.entries(EntryFilter())}
    assert (actors["person"], actors["daemon"], actors["spool"][:6]) == ("person", "daemon", "agent ")
    await store.close()
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        world.sql("DELETE FROM events WHERE seq = 1")


async def test_a_full_disk_is_temporary_and_loses_nothing_acknowledged(store: Database) -> None:
    flow = flow_on(store)
    await flow.start()
    await flow.append(replace(report(1), seq=0))
    assert store._write_connection is not None
    pages = store._write_connection.execute(text("PRAGMA page_count")).scalar()
    store._write_connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    store._write_connection.rollback()
    with acting_as("local person"), pytest.raises(Temporary, match="full"):
        await flow.append(replace(report(2, 100_000), seq=0))
    assert [one.key for one in await store.events()] == ["r1"]
    store._write_connection.execute(text("PRAGMA max_page_count = 1000000"))
    store._write_connection.rollback()
    assert [one.seq for one in await flow.append(replace(report(2, 100_000), seq=0))] == [2]
    await flow.stop()


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


async def test_a_copy_is_kept_before_a_new_version_and_none_of_a_newer_one(
    world: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.store()
    await store.open()
    await put(store, Batch([report(1)]))
    await store.close()
    assert list(tmp_path.glob("*.bak")) == []

    def more(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE events ADD COLUMN extra TEXT"))

    released = migrations.MIGRATIONS
    monkeypatch.setattr(migrations, "MIGRATIONS", (*released, more))
    store = world.store()
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / f"ao.v{len(released)}.bak")) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)
