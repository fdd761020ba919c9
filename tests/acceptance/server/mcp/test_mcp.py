"""The MCP server, used by the official client over `ao mcp` and HTTP as a person, a viewer and a worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.mcp.clients import (
    EXTRA_TOOLS,
    STEERING_TOOLS,
    WORKER_TOOLS,
    agent_token,
    call_refused,
    call_tool,
    event_sources,
    http,
    last_event_source,
    new_session,
    read_resource,
    stdio,
    tool_names,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_person_steers_the_fleet_over_ao_mcp(box: Sandbox, mode: str) -> None:
    async with stdio(box, mode=mode) as client:
        assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
        available_tools = await tool_names(client)
        assert available_tools >= EXTRA_TOOLS | {"spawn_session", "list_sessions", "get_diff"}
        assert not available_tools & WORKER_TOOLS

        session = await call_tool(client, "spawn_session", prompt="note the tide", title="Tide", files=["notes/*"])
        assert session["id"] == "app-tide"
        assert session["project"] == "app"
        await asyncio.to_thread(box.wait_until, lambda: box.session("app-tide")["pr"], "its pull request")
        await asyncio.to_thread(
            box.wait_until, lambda: "demo agent" in box.ao("logs", "tide").stdout, "what it printed"
        )

        (row,) = (await call_tool(client, "list_sessions"))["sessions"]
        assert (row["id"], row["title"]) == ("app-tide", "Tide")
        change = await call_tool(client, "get_diff", session="app-tide")
        assert "note the tide" in change["text"]
        assert change["next"] is None
        (file,) = change["files"]
        assert (await call_tool(client, "get_diff", session="app-tide", file=file))["text"] == change["text"]
        assert "demo agent" in (await call_tool(client, "get_log", session="app-tide"))["text"]
        assert (await call_tool(client, "why", session="app-tide"))["lines"][0].startswith("app-tide is ")
        assert (await call_tool(client, "list_conflicts"))["pairs"] == []
        assert (await call_tool(client, "list_queue"))["entries"] == []

        issue = await call_tool(client, "create_issue", title="Mind the ebb", body="at night", labels=["sea"])
        listed = await call_tool(client, "list_issues", number=issue["number"])
        assert "> at night" in listed["issues"][0]["text"]
        assert (await call_tool(client, "list_backlog"))["entries"][0]["title"] == "Mind the ebb"

        sent = await call_tool(client, "send_message", session="app-tide", text="and the moon")
        assert sent["state"] in ("queued", "delivered")
        transcript = json.loads(await read_resource(client, "ao://sessions/app-tide/transcript"))
        assert transcript["sentence"]
        assert "demo agent" in await read_resource(client, "ao://sessions/app-tide/log")
        assert json.loads(await read_resource(client, "ao://sessions/app-tide"))["branch"] == session["branch"]
        assert json.loads(await read_resource(client, "ao://queue")) == {"entries": []}

        stopped = await call_tool(client, "stop_session", session="app-tide")
        assert stopped["session"]["status"] == "stopped"
    assert last_event_source(box, "app-tide", "stop-requested") == "person"


async def test_events_name_the_token_that_caused_them_and_a_viewer_can_only_read(box: Sandbox) -> None:
    new_session(box, "one", "one")
    operator = box.request("POST", "/api/tokens", {"name": "robot", "role": "operator"})["token"]
    viewer = box.request("POST", "/api/tokens", {"name": "eyes", "role": "viewer"})["token"]
    async with http(box, operator) as client:
        session = await call_tool(client, "spawn_session", prompt="two", project="app")
        assert "name one: `project`" in await call_refused(client, "spawn_session", prompt="three")
        await call_tool(client, "stop_session", session=session["id"])
    assert last_event_source(box, session["id"], "session-created") == "robot"
    assert last_event_source(box, session["id"], "stop-requested") == "robot"
    async with http(box, viewer, mode="legacy") as client:
        available_tools = await tool_names(client)
        assert "list_sessions" in available_tools
        assert not available_tools & (WORKER_TOOLS | STEERING_TOOLS | EXTRA_TOOLS)
        assert (await call_tool(client, "list_sessions", state="all"))["sessions"]
        assert "there is no tool 'stop_session' for you" in await call_refused(
            client, "stop_session", session="app-one"
        )
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in (await client.list_tools()).tools)


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_worker_can_report_and_ask_but_not_read_other_sessions(box: Sandbox, way: str) -> None:
    own_session, other = (
        new_session(box, "one [[write: notes/sea.md|a]]", "one"),
        new_session(box, "two [[write: notes/sea.md|b]]", "two"),
    )
    token = agent_token(box, own_session)
    connection = stdio(box, AO_SESSION=own_session, AO_TOKEN=token) if way == "stdio" else http(box, token)
    async with connection as client:
        assert await tool_names(client) == WORKER_TOOLS
        for tool in ("list_sessions", "get_log", "send_message", "stop_session", "spawn_session", "merge_session"):
            assert "there is no tool" in await call_refused(client, tool, session=other, text="x", prompt="x")
        for address in (f"ao://sessions/{other}", f"ao://sessions/{other}/log", "ao://sessions", "ao://queue"):
            with pytest.raises(MCPError):
                await read_resource(client, address)
        assert {str(resource.uri).split("/")[3] for resource in (await client.list_resources()).resources} == {
            own_session
        }
        assert (await call_tool(client, "my_session"))["id"] == own_session

        await call_tool(client, "report_progress", step="sounding", done=1, total=4)
        assert box.session(own_session)["progress"] == {"done": 1, "total": 4, "step": "sounding", "testsPassed": None}
        with anyio.fail_after(60):  # files of the other session are noticed a moment later
            while not (overlaps := (await call_tool(client, "who_touches"))["others"]):
                await anyio.sleep(0.1)
        (overlap,) = overlaps
        assert overlap == {"session": other, "title": box.session(other)["title"], "files": ["notes/sea.md"]}
        assert (await call_tool(client, "who_touches", files=["src/"]))["others"] == []

        question = await call_tool(client, "ask_person", question="How deep?")
        assert question["status"] == "needs_input"
        assert box.session(own_session)["waitingFor"] == "How deep?"
        assert last_event_source(box, own_session, "agent-ask") == "mcp"
        box.ao("answer", own_session, "nine fathoms")
        box.wait_until(lambda: event_sources(box, own_session, "agent-done") == ["spool"], "the answer to be used")
        inbox = await call_tool(client, "my_messages")
        assert inbox["messages"][-1]["text"] == "nine fathoms"
        await call_tool(client, "report_done", summary="sounded")
        assert last_event_source(box, own_session, "agent-done") == "mcp"


async def test_a_question_asked_in_a_turn_stays_open_until_it_is_answered(box: Sandbox) -> None:
    own_session = new_session(box, "one", "one")
    spool = Path(box.request("GET", f"/api/sessions/{own_session}/environment")["env"]["AO_SPOOL"])
    async with http(box, agent_token(box, own_session)) as client:
        await call_tool(client, "ask_person", question="How deep?")

    def report(kind: str, line: dict[str, str]) -> None:
        before = len(event_sources(box, own_session, kind))
        with spool.open("a") as file:
            file.write(json.dumps(line) + "\n")
        box.wait_until(lambda: len(event_sources(box, own_session, kind)) > before, kind)

    for kind, line in (
        ("agent-activity", {"event": "activity", "state": "active"}),
        ("agent-turn-ended", {"event": "turn", "text": "I have asked."}),
    ):
        report(kind, line)
        assert box.session(own_session)["status"] == "needs_input"
        assert box.session(own_session)["waitingFor"] == "How deep?"


async def test_reports_of_old_launches_and_stopped_sessions_are_refused(box: Sandbox) -> None:
    own_session = new_session(box, "one", "one")
    old = agent_token(box, own_session)
    box.ao("stop", own_session, "--keep")
    async with http(box, old) as client:
        assert "is stopped" in await call_refused(client, "report_progress", step="x")
    box.ao("restore", own_session)
    box.wait_until(lambda: box.session(own_session)["activity"] == "idle", "it to be back")
    assert agent_token(box, own_session) != old
    async with http(box, old) as client:
        for name, parameter in (("report_progress", "step"), ("ask_person", "question"), ("report_done", "summary")):
            assert "launch 1" in await call_refused(client, name, **{parameter: "x"})
        assert (await call_tool(client, "my_session"))["id"] == own_session
    async with http(box, agent_token(box, own_session)) as client:
        await call_tool(client, "report_progress", step="again")


def count_connections(box: Sandbox) -> int:
    """Return the number of connections to the daemon's socket, including those not accepted yet."""
    return Path("/proc/net/unix").read_text().count(f" {box.home.socket('daemon.sock')}")


async def test_ao_mcp_reconnects_after_a_crash_of_the_daemon(box: Sandbox) -> None:
    new_session(box, "one", "one")
    bridge = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=box.env,
        cwd=box.repo,
        text=True,
    )
    assert bridge.stdin is not None
    assert bridge.stdout is not None

    def ask(id_: Any, method: str, **params: Any) -> None:
        assert bridge.stdin is not None
        bridge.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}) + "\n")
        bridge.stdin.flush()

    def answer() -> Any:
        assert bridge.stdout is not None
        return json.loads(bridge.stdout.readline())

    try:
        ask(1, "ping")
        assert answer() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        pid = box.daemon_pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        before = count_connections(box)
        ask("slow", "tools/list")
        box.wait_until(lambda: count_connections(box) > before, "the daemon to be asked")
        os.kill(pid, signal.SIGKILL)
        broken = answer()
        assert broken["id"] == "slow"
        assert "broke" in broken["error"]["message"]
        ask(3, "tools/call", name="list_sessions", arguments={})
        assert answer()["result"]["structuredContent"]["sessions"][0]["id"] == "app-one"
        bridge.stdin.write("nonsense\n")
        bridge.stdin.flush()
        assert answer()["error"]["code"] == -32700
        bridge.stdin.close()
        assert bridge.wait(60) == 0
    finally:
        bridge.kill()
        bridge.wait(10)
        bridge.stdin.close()
        bridge.stdout.close()


async def test_ao_mcp_can_act_for_a_session_and_prints_its_configuration(box: Sandbox) -> None:
    own_session = new_session(box, "one", "one")
    async with stdio(box, "--session", own_session) as client:
        assert await tool_names(client) == WORKER_TOOLS
        await call_tool(client, "report_progress", step="by hand")
    assert box.session(own_session)["progress"]["step"] == "by hand"
    added = json.loads(box.ao("mcp", "--print-config").stdout)["mcpServers"]["agent-orchestrator"]
    assert [added["command"], *added["args"]] == [sys.executable, "-P", "-m", "agent_orchestrator", "mcp"]
    assert added["env"] == {"AO_HOME": str(box.home.path)}
    assert "claude mcp add agent-orchestrator" in box.ao("mcp", "--print-config", "claude").stdout
    assert (
        "[mcp_servers.agent-orchestrator]" in box.ao("mcp", "--print-config", "codex", "--session", own_session).stdout
    )
