"""Databases of earlier versions on PostgreSQL: the same sessions as before, and a backup of the old tables."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store import migrations
from agent_orchestrator.core.store.leader import DaemonDescription
from agent_orchestrator.core.store.postgres import Postgres
from agent_orchestrator.errors import Conflict
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.sessions.session_view import SessionViews
from tests.parts import make_core
from tests.unit.core.world import ManualClock
from tests.upgrade.homes import FOLDER, RELEASED_VERSIONS, old_database, recorded_answers

pytestmark = pytest.mark.anyio

TABLES = ("meta", "events", "outbox", "snapshots")


@pytest.fixture(params=RELEASED_VERSIONS)
def version(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> int:
    """The version of a released schema, with its recorded data in the database."""
    file, statements = tmp_path / "ao.db", (FOLDER / f"schema-{request.param}.postgres.sql").read_text()
    old_database(request.param, file, tmp_path)
    with closing(sqlite3.connect(file)) as old, psycopg.connect(url) as new:
        new.execute(statements.encode())
        for table in TABLES:
            rows = old.execute(f"SELECT * FROM {table}").fetchall()
            marks = ", ".join(["%s"] * len(rows[0]))
            new.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})".encode(), rows)
    return int(request.param)


def store_on(url: str) -> Postgres:
    return Postgres(url, DaemonDescription("one", "/home/one", os.getpid(), time.time()))


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


async def test_every_session_is_shown_as_before(version: int, url: str, tmp_path: Path) -> None:
    events = rows(url, "SELECT seq, key, type, data FROM events ORDER BY seq")
    [(last,)] = rows(url, "SELECT max(time) FROM events WHERE type <> 'daemon-stopped'")
    store = store_on(url)
    flow = Flow(store, ManualClock(last), lambda _project, _profile: DEFAULT_RULES)
    flow.seq = await store.open()
    await flow.catch_up_from_store()
    views = SessionViews(make_core(tmp_path / "ao", flow), Health())
    statuses = {facts.id: views.session(facts)["status"] for facts in flow.sessions.values()}
    await store.close()
    assert statuses == {
        session["id"]: session["status"]
        for session in recorded_answers(version, tmp_path)["/api/sessions?all=1"]["sessions"]
    }
    assert rows(url, "SELECT seq, key, type, data FROM events ORDER BY seq") == events
    assert rows(url, "SELECT value FROM meta WHERE name = 'schema'") == [(str(len(migrations.MIGRATIONS)),)]
    if version < len(migrations.MIGRATIONS):
        assert rows(url, f"SELECT seq, key, type, data FROM events_v{version}_bak ORDER BY seq") == events
        assert rows(url, f"SELECT value FROM meta_v{version}_bak WHERE name = 'schema'") == [(str(version),)]


async def test_a_failed_migration_keeps_the_old_tables(version: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Any) -> None:
        connection.exec_driver_sql("ALTER TABLE events ADD COLUMN half TEXT")
        raise Conflict("killed")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS[:version], broken))
    before = rows(url, "SELECT * FROM events ORDER BY seq")
    for _ in range(2):
        store = store_on(url)
        with pytest.raises(Conflict, match="killed"):
            await store.open()
        await store.close()
        assert rows(url, "SELECT * FROM events ORDER BY seq") == before
        assert rows(url, f"SELECT * FROM events_v{version}_bak ORDER BY seq") == before
