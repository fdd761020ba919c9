"""The flow on a real database: what was appended is there after a restart, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.rules import DEFAULT_RULES
from agent_orchestrator.store.database import Database

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


async def opened(path: Path) -> tuple[Flow, Database]:
    store = Database.sqlite(path / "ao.db")
    flow = Flow(store, lambda: 100.0, lambda _project, _profile: tuple(DEFAULT_RULES))
    return flow, store


async def test_a_restart_finds_facts_and_pending_rows(tmp_path: Path) -> None:
    flow, store = await opened(tmp_path)
    assert await flow.start() == []
    stored = await flow.append(created(), Event(e.SessionAdmitted(), 2.0, "scheduler", "admit", "app", "app-x"))
    assert [event.seq for event in stored] == [1, 2]
    assert await flow.append(created()) == []
    facts = flow.sessions["app-x"]
    await store.close()  # as after a kill: nothing saved but the log

    flow, store = await opened(tmp_path)
    pending = await flow.start()
    assert [row.intent.kind for row in pending] == ["prepare"]
    assert flow.sessions["app-x"] == facts
    await flow.stop()
    await store.close()

    flow, store = await opened(tmp_path)
    assert [row.intent.kind for row in await flow.start()] == ["prepare"]
    assert flow.sessions["app-x"] == facts
    assert (await store.snapshot()) is not None
    await flow.stop()
    await store.close()
