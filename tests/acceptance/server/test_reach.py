"""Over the Unix socket an agent's token gives access to its own session only."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Denied
from agent_orchestrator.testing.sandbox import Sandbox


@pytest.fixture(scope="module")
def fleet(shared: Sandbox) -> tuple[Sandbox, str]:
    """Return a daemon with two sessions, and the token of one of them."""
    for name in ("mine", "other"):
        shared.ao("new", f"task of {name}", "--name", name)
        session = f"app-{name}"
        shared.wait_until(partial(_is_idle, shared, session), f"{name} to be at rest")
    return shared, str(shared.request("GET", "/api/sessions/app-mine/environment")["env"]["AO_TOKEN"])


def _is_idle(box: Sandbox, session: str) -> bool:
    """Return whether the session's agent is idle."""
    return bool(box.session(session)["activity"] == "idle")


def call_mcp(box: Sandbox, token: str, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Call `/mcp` with a session's token, as `ao` does, and return the answer."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    all_headers = {"Accept": "application/json, text/event-stream", "X-AO-Token": token, **headers}
    answer: dict[str, Any] = box.request("POST", "/mcp", request, **all_headers)
    return answer


def test_reach_a_worker_has_its_own_tools_whatever_session_it_names(fleet: tuple[Sandbox, str]) -> None:
    box, token = fleet
    for headers in ({}, {"X-AO-Session": "app-other"}):
        listed = call_mcp(box, token, "tools/list", {}, **headers)["result"]["tools"]
        assert {"my_session", "ask_person"} <= {tool["name"] for tool in listed}
        assert not {"stop_session", "merge_session", "list_sessions"} & {tool["name"] for tool in listed}
        stop_call = {"name": "stop_session", "arguments": {"session": "app-other"}}
        assert "no tool" in call_mcp(box, token, "tools/call", stop_call, **headers)["error"]["message"]
        own_session = call_mcp(box, token, "tools/call", {"name": "my_session", "arguments": {}}, **headers)
        assert own_session["result"]["structuredContent"]["id"] == "app-mine"
    assert box.session("app-other")["status"] != "stopped"


@pytest.mark.parametrize("path", ["/api/sessions/app-other/environment", "/api/sessions/app-other/attach"])
def test_reach_a_worker_cannot_read_another_sessions_environment(fleet: tuple[Sandbox, str], path: str) -> None:
    box, token = fleet
    assert box.request("GET", path), "a person may"
    with pytest.raises(Denied, match="the agent of app-mine asks, and this is for people"):
        box.request("GET", path, **{"X-AO-Token": token})


def test_reach_a_worker_cannot_fix_anything_with_doctor(fleet: tuple[Sandbox, str]) -> None:
    box, token = fleet
    assert box.request("GET", "/api/doctor", **{"X-AO-Token": token})["checks"], "it may look"
    for fix in ("fix=1", "%66ix=1"):
        with pytest.raises(Denied, match="needs the role admin"):
            box.request("GET", f"/api/doctor?{fix}", **{"X-AO-Token": token})


def test_reach_a_worker_cannot_open_a_persons_shell(fleet: tuple[Sandbox, str], tmp_path: Path) -> None:
    box, token = fleet
    mark = tmp_path / "ran"
    box.env |= {"AO_SESSION": "app-mine", "AO_TOKEN": token}
    try:
        done = box.ao("sh", "app-mine", "--", "touch", str(mark), check=False)
    finally:
        del box.env["AO_SESSION"], box.env["AO_TOKEN"]
    assert done.returncode == 1
    assert "this is for people" in done.stderr
    assert not mark.exists()
