"""The store on real SQLite: the common tests, a copy before a migration, a full disk, and a kill."""

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
from agent_orchestrator.core.outbox import Batch, LogEntryFilter
from agent_orchestrator.core.store import migrations
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import Temporary
from tests.integration.core.store_suite import *  # noqa: F403
from tests.integration.core.store_suite import make_flow, report, verify_chain, write_batch
from tests.unit.core.world import SESSION, created
from tests.upgrade.homes import old_database

pytestmark = pytest.mark.anyio


_COLUMNS = "type, project, session, generation, source, time, data"


class SqliteWorld:
    """One SQLite database."""

    other_changes = (
        f"INSERT OR REPLACE INTO events SELECT seq, 'other', {_COLUMNS}, 'x', 0, '' FROM events",
        f"INSERT OR REPLACE INTO events SELECT 9, key, {_COLUMNS}, 'x', 0, '' FROM events LIMIT 1",
        "REPLACE INTO events SELECT * FROM events",
        "UPDATE OR REPLACE events SET seq = 2 WHERE seq = 1",
    )
    remove_guards = tuple(f"DROP TRIGGER events_{name}" for name in ("stay", "remain", "follow"))

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
def world(tmp_path: Path) -> SqliteWorld:
    return SqliteWorld(tmp_path / "ao.db")


async def test_events_of_an_earlier_version_get_actors_and_digests(world: SqliteWorld, tmp_path: Path) -> None:
    old_database(1, world.path, tmp_path)
    before = world.sql(f"SELECT seq, key, {_COLUMNS} FROM events ORDER BY seq")
    store = world.store()
    assert await store.open() == len(before) > 50
    await write_batch(store, Batch([report(len(before) + 1)]))
    verification = await verify_chain(store)
    assert (verification.entries, verification.first_invalid) == (len(before) + 1, None)
    assert world.sql(f"SELECT seq, key, {_COLUMNS} FROM events ORDER BY seq")[:-1] == before
    actors = {entry["source"]: entry["actor"] for entry in await store.entries(LogEntryFilter())}
    assert (actors["person"], actors["daemon"], actors["spool"][:6]) == ("person", "daemon", "agent ")
    await store.close()
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        world.sql("DELETE FROM events WHERE seq = 1")


async def test_a_full_disk_is_a_temporary_error_and_loses_no_acknowledged_event(store: Database) -> None:
    flow = make_flow(store)
    await flow.start()
    await flow.append(replace(report(1), seq=0))
    assert store._write_connection is not None
    pages = store._write_connection.execute(text("PRAGMA page_count")).scalar()
    store._write_connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    store._write_connection.rollback()
    with acting_as("local person"), pytest.raises(Temporary, match="full"):
        await flow.append(replace(report(2, 100_000), seq=0))
    assert [stored_event.key for stored_event in await store.events()] == ["r1"]
    store._write_connection.execute(text("PRAGMA max_page_count = 1000000"))
    store._write_connection.rollback()
    assert [stored_event.seq for stored_event in await flow.append(replace(report(2, 100_000), seq=0))] == [2]
    await flow.stop()


async def test_acknowledged_events_and_pending_rows_survive_a_kill(tmp_path: Path) -> None:
    store = Database.sqlite(tmp_path / "ao.db")
    flow = make_flow(store)
    await flow.start()
    await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "a", "app", SESSION))
    for name in ("ao.db", "ao.db-wal"):
        (tmp_path / f"killed-{name}").write_bytes((tmp_path / name).read_bytes())
    await flow.stop()
    await store.close()
    (tmp_path / "killed-ao.db-wal").rename(tmp_path / "killed.db-wal")
    (tmp_path / "killed-ao.db").rename(tmp_path / "killed.db")
    after = Database.sqlite(tmp_path / "killed.db")
    again = make_flow(after)
    assert [row.intent.kind for row in await again.start()] == ["prepare"]
    assert again.sessions == flow.sessions
    await again.stop()
    await after.close()


async def test_a_copy_of_the_database_is_kept_before_a_migration(
    world: SqliteWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.store()
    await store.open()
    await write_batch(store, Batch([report(1)]))
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
