"""The flow on a real database: appended events are there once after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store.database import Database
from tests.unit.core.world import ManualClock

pytestmark = pytest.mark.anyio


def created(session: str = "app-x") -> Event:
    body = e.SessionCreated(
        task="T1",
        name="x",
        title="x",
        prompt="do x",
        agent="demo",
        runtime="process",
        workspace="worktree",
        branch="feature/x",
        base="main",
        repo="/r",
        path="/w",
    )
    return Event(body, 1.0, "person", f"created:{session}", "app", session)


async def open_flow(path: Path) -> tuple[Flow, Database]:
    store = Database.sqlite(path / "ao.db")
    flow = Flow(store, ManualClock(100.0), lambda _project, _profile: tuple(DEFAULT_RULES))
    return flow, store


async def test_a_restart_finds_facts_and_pending_rows(tmp_path: Path) -> None:
    flow, store = await open_flow(tmp_path)
    assert await flow.start() == []
    stored = await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "admit", "app", "app-x"))
    assert [event.seq for event in stored] == [1, 2]
    assert await flow.append(created()) == []
    facts = flow.sessions["app-x"]
    await store.close()  # as after a kill: nothing saved but the log

    flow, store = await open_flow(tmp_path)
    pending = await flow.start()
    assert [row.intent.kind for row in pending] == ["prepare"]
    assert flow.sessions["app-x"] == facts
    await flow.stop()
    await store.close()

    flow, store = await open_flow(tmp_path)
    assert [row.intent.kind for row in await flow.start()] == ["prepare"]
    assert flow.sessions["app-x"] == facts
    assert (await store.snapshot()) is not None
    await flow.stop()
    await store.close()


async def test_a_write_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    flow, store = await open_flow(tmp_path)
    await flow.start()
    with closing(sqlite3.connect(tmp_path / "ao.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        other.execute("create table theirs (a)")
        with capture_logs() as logs:
            writing = asyncio.create_task(flow.append(created()))
            await asyncio.sleep(0.3)
            assert not writing.done()
            other.execute("commit")
            assert [event.seq for event in await writing] == [1]
        assert logs == [], "it was not refused and tried again"
    await flow.stop()
    await store.close()
