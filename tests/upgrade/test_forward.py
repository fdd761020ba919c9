"""A home of an earlier version is upgraded completely, whatever happens on the way."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import FACTS_VERSION
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store import codec, migrations
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.testing.sandbox import Sandbox
from tests.parts import make_core
from tests.unit.core.world import ManualClock
from tests.upgrade.homes import RELEASED_VERSIONS, old_database, old_home, recorded_answers

LIVE = ("working", "idle", "needs_input", "blocked", "review_pending", "starting", "queued")
"""Statuses that may change as soon as a daemon notices that the agents are gone."""

pytestmark = pytest.mark.anyio


@pytest.fixture(params=RELEASED_VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


EVENTS = "SELECT seq, key, type, project, session, generation, source, time, data FROM events ORDER BY seq"
OUTBOX = "SELECT key, kind, session, args, due, attempts, state, result FROM outbox ORDER BY key"


def schema_of(path: Path) -> str:
    return str(rows(path, "SELECT value FROM meta WHERE name = 'schema'")[0][0])


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Add a migration, so that there is always one to test; returns the number of migrations."""

    def change(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE events ADD COLUMN later TEXT")
        connection.exec_driver_sql("UPDATE outbox SET result = result")
        connection.exec_driver_sql("CREATE TABLE afterwards (x TEXT)")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, change))
    return lambda: len(migrations.MIGRATIONS)


async def fold_database(path: Path) -> tuple[Flow, list[dict[str, Any]]]:
    """Return what a daemon shows before it has checked anything."""
    store = Database.sqlite(path)
    [(last,)] = rows(path, "SELECT max(time) FROM events WHERE type <> 'daemon-stopped'")
    flow = Flow(store, ManualClock(last), lambda _project, _profile: DEFAULT_RULES)
    flow.seq = await store.open()
    await flow.catch_up_from_store()
    views = SessionViews(make_core(path.parent, flow), Health())
    sessions = [views.session(facts) for facts in sorted(flow.sessions.values(), key=lambda facts: facts.created_at)]
    await store.close()
    return flow, sessions


@pytest.mark.parametrize("afresh", [False, True], ids=["from the snapshot", "from the log"])
async def test_every_session_is_shown_as_before(version: int, afresh: bool, tmp_path: Path) -> None:
    path = tmp_path / "ao" / "ao.db"
    old_database(version, path, tmp_path)
    if afresh:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM snapshots")
    events, outbox = rows(path, EVENTS), rows(path, OUTBOX)
    flow, sessions = await fold_database(path)
    before = recorded_answers(version, tmp_path)
    expected = before["/api/sessions?all=1"]["sessions"]
    assert len(expected) > 20 and len({each["status"] for each in expected}) >= 8
    assert [(each["id"], each["status"]) for each in sessions] == [(each["id"], each["status"]) for each in expected]
    for now, then in zip(sessions, expected, strict=True):
        # Texts may change; questions may not.
        words = {"why", "waitingFor"} if then["status"] == "idle" else {"why"}
        assert _as_then({key: now[key] for key in then.keys() - words}, then) == {
            key: then[key] for key in then.keys() - words
        }
        messages = before[f"/api/sessions/{now['id']}/messages"]["messages"]
        facts = flow.sessions[now["id"]]
        assert [(each.id, each.text, each.state) for each in facts.messages if not each.is_task] == [
            (each["messageId"], each["content"], each["state"]) for each in messages
        ]
    assert [plan.state for plan in flow.home.plans.values() if plan.state != "discarded"] == [
        each["state"] for each in before["/api/plans?all=1"]["plans"]
    ]
    assert rows(path, EVENTS) == events and rows(path, OUTBOX) == outbox
    assert schema_of(path) == str(len(migrations.MIGRATIONS))


def _as_then(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return a session without fields of checks that are new since then, and with the earlier comparison with the base branch."""
    if not now["pr"]:
        return now
    pairs = zip(now["pr"]["checks"], then["pr"]["checks"], strict=True)
    checks = [{**{key: check[key] for key in before}, "onBase": before["onBase"]} for check, before in pairs]
    return {**now, "pr": {**now["pr"], "checks": checks}}


def test_a_daemon_starts_with_an_old_home(version: int, tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        old_home(version, box)
        before = recorded_answers(version, tmp_path)
        box.start()
        now = {each["id"]: each for each in box.sessions()}
        for each in before["/api/sessions?all=1"]["sessions"]:
            assert each["id"] in now
            if each["status"] not in LIVE:
                assert now[each["id"]]["status"] == each["status"], each["id"]
            messages = box.request("GET", f"/api/sessions/{each['id']}/messages")["messages"]
            contents = {message["messageId"]: message["content"] for message in messages}
            for message in before[f"/api/sessions/{each['id']}/messages"]["messages"]:
                assert contents[message["messageId"]] == message["content"]
        assert [each["id"] for each in box.request("GET", "/api/projects")["projects"]] == [
            each["id"] for each in before["/api/projects"]["projects"]
        ]
        assert [each["name"] for each in box.json("token", "list")["tokens"]] == ["phone", "desk"]
        restored = box.ao("restore", "shop-stopped")
        assert restored.returncode == 0
        kept_file = tmp_path / "ao" / "worktrees" / "shop" / "stopped" / "kept.txt"
        box.wait_until(kept_file.exists, "the saved work of an earlier version")


def test_every_project_of_an_old_home_gets_one_notice_about_its_set_up(version: int, tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        old_home(version, box)
        box.start()
        names = sorted(project["id"] for project in box.request("GET", "/api/projects")["projects"])

        def notices() -> list[str]:
            notifications = box.request("GET", "/api/notifications?all=1")["notifications"]
            return sorted(
                str(notification["title"])
                for notification in notifications
                if "ao init --check" in notification["message"]
            )

        assert notices() == [f"{name}: prove the set-up once" for name in names]
        box.ao("shutdown")
        box.start()
        assert notices() == [f"{name}: prove the set-up once" for name in names]


async def test_the_database_is_backed_up_before_a_migration(
    version: int, tmp_path: Path, later: Callable[[], int]
) -> None:
    path = tmp_path / "ao.db"
    old_database(version, path, tmp_path)
    before = "\n".join(_dump(path))
    store = Database.sqlite(path)
    await store.open()
    await store.close()
    backup = tmp_path / f"ao.v{version}.bak"
    assert "\n".join(_dump(backup)) == before
    assert backup.stat().st_mode & 0o777 == 0o600
    assert schema_of(path) == str(later()) and not list(tmp_path.glob("*~"))
    await fold_database(backup)  # it can be restored


def _dump(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as database:
        yield from database.iterdump()


def test_a_kill_at_any_statement_leaves_the_old_or_the_new_schema(
    version: int, tmp_path: Path, later: Callable[[], int]
) -> None:
    original = tmp_path / "original.db"
    old_database(version, original, tmp_path)
    events = rows(original, EVENTS)
    for number in range(200):
        path = tmp_path / f"{number}" / "ao.db"
        path.parent.mkdir()
        with closing(sqlite3.connect(original)) as old, closing(sqlite3.connect(path)) as new:
            old.backup(new)
        killed = _open_and_die(path, number)
        assert schema_of(path) in {str(schema_version) for schema_version in range(version, later() + 1)}
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        assert rows(path, EVENTS) == events
        columns = {row[1] for row in rows(path, "PRAGMA table_info(events)")}
        tables = {row[0] for row in rows(path, "SELECT name FROM sqlite_master")}
        changed = schema_of(path) == str(later())
        assert ("later" in columns, "afterwards" in tables) == (changed, changed)
        assert not _open_and_die(path, -1), "the next start finishes the migration"
        assert schema_of(path) == str(later()) and rows(path, EVENTS) == events
        if not killed:
            assert number > 8
            return
    raise AssertionError("the migration was never completed")


def _open_and_die(path: Path, number: int) -> bool:
    """Open the store in a process that is killed before its statement of this number; return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            statement_numbers = iter(range(1000))

            def die(*_: object) -> None:
                if next(statement_numbers) == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            event.listen(Engine, "before_cursor_execute", die)
            event.listen(Engine, "commit", die)
            asyncio.run(_opened(path))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


async def _opened(path: Path) -> None:
    store = Database.sqlite(path)
    await store.open()
    await store.close()


async def test_without_room_for_the_backup_nothing_is_changed(
    version: int, tmp_path: Path, later: Callable[[], int]
) -> None:
    path = tmp_path / "ao.db"
    old_database(version, path, tmp_path)
    before = list(_dump(path))
    room = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, room[1]))
    try:
        store = Database.sqlite(path)
        with pytest.raises(Temporary, match="could not be kept") as refused:
            await store.open()
        await store.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "\n" not in str(refused.value) and "make room" in refused.value.remedy
    assert list(_dump(path)) == before
    assert not list(tmp_path.glob("*bak*"))
    assert later() > version


def test_a_newer_database_is_refused_in_one_line(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        old_database(RELEASED_VERSIONS[-1], box.home.database, tmp_path)
        with closing(sqlite3.connect(box.home.database)) as database, database:
            database.execute("UPDATE meta SET value = '99'")
            database.execute("ALTER TABLE events ADD COLUMN unheard_of TEXT")
        before = list(_dump(box.home.database))
        status = box.ao("status", check=False)
        assert status.returncode == 4 and status.stdout == ""
        assert status.stderr.count("\n") == 1 and "Traceback" not in status.stderr
        assert "newer version (99)" in status.stderr and "install the newer agent-orchestrator" in status.stderr
        assert "newer version (99)" in box.home.log.read_text()
        doctor = box.ao("doctor", check=False)
        assert doctor.returncode == 1 and "Traceback" not in doctor.stderr
        assert "newer version (99)" in doctor.stdout and "install the newer agent-orchestrator" in doctor.stdout
        assert list(_dump(box.home.database)) == before
        assert not list(box.home.path.glob("*.bak"))


@pytest.mark.parametrize("other", [FACTS_VERSION - 1, FACTS_VERSION + 1])
async def test_facts_saved_by_another_version_are_folded_again(other: int, tmp_path: Path) -> None:
    path = tmp_path / "ao.db"
    old_database(RELEASED_VERSIONS[-1], path, tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM snapshots")
    _, expected = await fold_database(path)
    path.unlink()
    old_database(RELEASED_VERSIONS[-1], path, tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        wrong = "json_set(body, '$.wanted', 'stop', '$.stopped', json('true'))"
        database.execute(f"UPDATE snapshots SET body = {wrong} WHERE id LIKE 'session:%'")
        database.execute("UPDATE snapshots SET body = json_set(body, '$.version', ?) WHERE id = 'as-of'", (other,))
    _, sessions = await fold_database(path)
    assert sessions == expected


async def test_events_of_a_newer_version_are_kept_and_ignored(tmp_path: Path) -> None:
    path = tmp_path / "ao.db"
    old_database(RELEASED_VERSIONS[-1], path, tmp_path)
    _, expected = await fold_database(path)
    [(last,)] = rows(path, "SELECT max(seq) FROM events")
    strange = [
        ("thought-read", '{"of": ["everybody"]}'),
        ("session-admitted", '{"unheardOf": {"x": 1}}'),
        ("message-queued", '{"text": 5, "unheardOf": 1}'),
        ("agent-usage", '{"input": "many"}'),
        ("check-finished", '["no", "object"]'),
        ("head-moved", "torn {"),
    ]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM snapshots")
        for number, (kind, data) in enumerate(strange, last + 1):
            database.execute(
                "INSERT INTO events (seq, key, type, project, session, generation, source, time, data)"
                " VALUES (?, ?, ?, 'shop', 'shop-stopped', 1, 'x', 0, ?)",
                (number, f"strange:{number}", kind, data),
            )
    flow, sessions = await fold_database(path)
    assert flow.seq == last + len(strange)
    assert [(session["id"], session["status"]) for session in sessions] == [
        (session["id"], session["status"]) for session in expected
    ]
    store = Database.sqlite(path)
    await store.open()
    (first, *_) = await store.events(after=last)
    await store.close()
    assert (first.type, codec.dump(first.body)["data"]) == ("thought-read", {"of": ["everybody"]})


async def test_an_older_program_refuses_a_newer_schema(
    tmp_path: Path, later: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ao.db"
    old_database(RELEASED_VERSIONS[-1], path, tmp_path)
    await _opened(path)
    newest = later()
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:-1])
    store = Database.sqlite(path)
    with pytest.raises(Conflict, match=rf"newer version \({newest}\)"):
        await store.open()
    await store.close()
    assert time.time() > path.stat().st_mtime - 1
