"""Reports about a launch: missed ones, during it, and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.agents.opencode import plugin, server_calls
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader
from agent_orchestrator.plugins.agents.shared.loopback_client import LoopbackClient
from agent_orchestrator.protocols import (
    Delivered,
    ReportBatch,
    RunningLaunch,
)
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.opencode.reports import (
    ACTIVE,
    IDLE,
    batches_of_section,
    recorded_reports,
    reports_of,
    states,
)
from tests.unit.plugins.agents.opencode.server import SESSION, SimulatedOpenCode, make_launch, record, recorded

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("section", ["turn", "permission", "denied", "subagent"])
async def test_missed_reports_have_the_same_keys(server: SimulatedOpenCode, tmp_path: Path, section: str) -> None:
    events = recorded(section)
    server.messages = record(events)
    server.children = [
        event["properties"]["info"]
        for event in events
        if event["type"] == "session.created" and "parentID" in event["properties"]["info"]
    ]
    live = {
        (batch.source_id, batch.start, batch.end): batch.reports
        for batch in batches_of_section(section)
        if batch.source_id
    }
    missed = [batch async for batch in _missed(server, tmp_path)]
    assert {(batch.source_id, batch.start, batch.end): batch.reports for batch in missed if batch.source_id} == live


async def _missed(server: SimulatedOpenCode, private: Path, **more: Any) -> AsyncIterator[ReportBatch]:
    run = make_launch(private, server, **more)
    ears = ConversationReader(
        run.conversation, float(run.plugin_data["since"]), run.cursors, awaits=not run.plugin_data["told"]
    )
    async for heard in server_calls.missed_reports(LoopbackClient(server.port, "opencode", server.password), ears):
        yield heard


async def test_earlier_reports_are_not_repeated(server: SimulatedOpenCode, tmp_path: Path) -> None:
    server.messages = record(recorded("turn"))
    before = [batch async for batch in _missed(server, tmp_path)]
    cursors = {batch.source_id: batch.end + 1 for batch in before if batch.source_id}
    assert [batch async for batch in _missed(server, tmp_path, cursors=cursors)] == []


async def test_a_resumed_agent_is_idle_and_earlier_usage_is_not_counted(
    server: SimulatedOpenCode, tmp_path: Path
) -> None:
    server.messages = record(recorded("interrupted"))
    later = {"since": str(datetime(2027, 1, 1, tzinfo=UTC).timestamp())}
    assert recorded_reports([batch async for batch in _missed(server, tmp_path, memo=later)]) == [IDLE]
    expecting = {**later, "told": ""}
    assert [batch async for batch in _missed(server, tmp_path, memo=expecting)] == []


async def test_a_dialog_opened_while_the_daemon_was_down_is_reported(server: SimulatedOpenCode, tmp_path: Path) -> None:
    server.status = {SESSION: {"type": "busy"}}
    server.permissions = [
        {"id": "per_1", "sessionID": SESSION, "permission": "edit", "patterns": ["a.py"], "metadata": {}}
    ]
    assert states([batch async for batch in _missed(server, tmp_path)])[-1] == r.PermissionReport(
        "edit", "a.py", request="per_1"
    )


async def test_listening_lasts_until_the_agent_has_ended(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "RECONNECT_SECONDS", 0.01)
    run = make_launch(tmp_path, server, None)
    events = recorded("turn")
    heard: list[ReportBatch] = []
    task = asyncio.create_task(_listen(agent, run, heard))
    for number, event in enumerate(events):
        server.events.put_nowait(event)
        if number == len(events) // 2:
            await _until(lambda: server.events.empty())
            server.messages = record(events[: number + 1])
            server.status = {SESSION: {"type": "busy"}}
            server.events.put_nowait(None)  # the stream is cut
    await _until(lambda: bool(reports_of(r.TurnReport, heard)))
    run.ended.set()
    server.events.put_nowait(None)
    await asyncio.wait_for(task, 60)
    assert states(heard) == [IDLE, ACTIVE, r.TurnReport("Hello.")]
    assert len(reports_of(r.MessageTakenReport, heard)) == 1 and len(reports_of(r.UsageReport, heard)) == 1


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_message_that_a_stopped_turn_left_behind_is_given_again(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path
) -> None:
    run = make_launch(tmp_path, server)
    assert await agent.deliver(run, "m-1", "meanwhile", interrupt=False) == Delivered()
    typed = {"id": "msg_typed", "sessionID": SESSION, "role": "user", "time": {"created": 2}}
    server.messages.append({"info": typed, "parts": []})
    posted = f"/session/{SESSION}/prompt_async"
    heard: list[ReportBatch] = []
    task = asyncio.create_task(_listen(agent, run, heard))
    await _until(lambda: server.paths().count(posted) == 2)
    assert len({body["messageID"] for _, path, body in server.requests if path == posted}) == 1
    for status in ("busy", "idle"):
        properties = {"sessionID": SESSION, "status": {"type": status}}
        server.events.put_nowait({"type": "session.status", "properties": properties})
    await _until(lambda: len(heard) == 3)
    run.ended.set()
    server.events.put_nowait(None)
    await asyncio.wait_for(task, 60)
    assert server.paths().count(posted) == 2, "it is given again once, not for ever"


async def _listen(agent: OpenCode, run: RunningLaunch, heard: list[ReportBatch]) -> None:
    async for batch in agent.listen(run):
        heard.append(batch)  # noqa: PERF401 - looked at while it grows
