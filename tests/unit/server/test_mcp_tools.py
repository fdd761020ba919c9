"""What the MCP tools say of themselves, and the small things that they are made of."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.inbound import encode_header_value

from agent_orchestrator.base.http_client import Answer
from agent_orchestrator.cli.daemon.mcp import Bridge, _header_value
from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.caller import Scope
from agent_orchestrator.server.mcp import protocol, worker_tools
from agent_orchestrator.server.mcp.endpoint import _fault
from agent_orchestrator.server.mcp.fleet_tools import _of_file
from agent_orchestrator.server.mcp.resources import RESOURCE_KINDS
from agent_orchestrator.server.mcp.tools import MAX_TEXT_LENGTH, Tool, text_page
from agent_orchestrator.server.mcp.worker_tools import Files, NamedFiles, common_files, who_touches

TOOLS = list(Tool.registry.values())


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from parts(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.name))
def test_a_tool_says_what_it_is_and_bounds_what_it_takes(tool: Tool) -> None:
    assert len(tool.about) > 30
    assert "\n" not in tool.about
    assert tool.output_schema()["type"] == "object"
    taken = tool.input_schema()
    assert taken["type"] == "object"
    assert taken["additionalProperties"] is False
    for part in parts(taken):
        match part.get("type"):
            case "string":
                assert {"maxLength", "enum", "pattern"} & part.keys(), part
            case "integer":
                assert {"minimum", "maximum"} <= part.keys(), part
            case "array":
                assert "maxItems" in part, part


def test_hints_are_true() -> None:
    hints = {tool.name: protocol._listed_tool(tool).annotations for tool in TOOLS}
    assert {name for name, hint in hints.items() if hint and hint.destructive_hint} == {"stop_session"}
    reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
    assert reading >= {"list_sessions", "get_diff", "my_session", "who_touches", "get_plan"}
    changing = {tool.name for tool in TOOLS if tool.scope is Scope.STEER} | {"ask_person", "report_done"}
    assert not reading & changing


def test_what_a_coordinator_may_only_by_leave() -> None:
    assert {tool.extra: tool.name for tool in TOOLS if tool.extra} == {
        "merge": "merge_session",
        "review": "review_session",
        "answer": "answer_session",
    }


def test_a_text_comes_in_pages() -> None:
    text = "x" * (MAX_TEXT_LENGTH + 5)
    first = text_page(text)
    assert first["next"] == MAX_TEXT_LENGTH
    assert first["text"] + text_page(text, first["next"])["text"] == text
    assert text_page(text, MAX_TEXT_LENGTH)["next"] is None
    assert text_page(text, 10**9) == {"text": "", "next": None}


def test_one_file_of_a_change() -> None:
    parts_ = [f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n+ diff --git not\n" for name in ("a", "b/a")]
    found = {"diff": "".join(parts_), "files": ["a", "b/a"]}
    assert _of_file(found, "a").strip() == parts_[0].strip()
    assert _of_file(found, "b/a").strip() == parts_[1].strip()
    with pytest.raises(NotFound):
        _of_file(found, "c")


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ({"a.py"}, {"a.py", "b.py"}, {"a.py"}),
        ({"src/"}, {"src/a.py"}, {"src/"}),
        ({"src/*.py"}, {"src/a.py"}, {"src/a.py"}),
        ({"src/a.py"}, {"src/*"}, {"src/a.py"}),
        ({"./a.py"}, {"a.py"}, {"./a.py"}),
        ({"src"}, {"srcs/a.py"}, set()),
        ({"src/a.py"}, {"src/"}, {"src/a.py"}),
        ({"src/*"}, {"src/*"}, {"src/*"}),
        (set(), {"a"}, set()),
    ],
)
def test_files_meet_by_path_folder_and_pattern(mine: set[str], theirs: set[str], both: set[str]) -> None:
    assert common_files(NamedFiles(mine), {"other": NamedFiles(theirs)}) == {"other": both}


def test_a_file_is_never_a_pattern_whatever_it_is_called() -> None:
    mine = NamedFiles([], ["a.py", "[ab].py", "deep/x"])
    assert common_files(mine, {"other": NamedFiles([], ["*", "?.py", "**", "deep/*"])}) == {"other": set()}
    assert common_files(mine, {"other": NamedFiles([], ["[ab].py"])}) == {"other": {"[ab].py"}}


def test_more_patterns_than_can_be_compared_with_all_files_are_refused_at_once() -> None:
    many = NamedFiles([], [f"gen/m{number % 100:03d}/file_{number:05d}.py" for number in range(20_000)])
    asked = NamedFiles([f"*007*{'a*' * 30}{number}b" for number in range(200)])
    with pytest.raises(UsageError, match="4000000, 500000 at most") as refused:
        common_files(asked, {"other": many})
    assert "folders" in refused.value.remedy
    assert len(common_files(NamedFiles(["gen/m007/", "*_00107.py"]), {"other": many})["other"]) == 2


def test_files_are_compared_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a question costs, the daemon goes on with its other work meanwhile."""
    spec = SimpleNamespace(files=("a*.py",), kind="task", title="other")
    me, other = (
        SimpleNamespace(id=name, project="app", spec=spec, stopped=False, landed=None, pr=None) for name in ("me", "o")
    )

    async def expected(_sessions: object) -> dict[str, frozenset[str]]:
        return {"me": frozenset(), "o": frozenset({"ab.py"})}

    threads: list[str] = []

    def compare(mine: NamedFiles, others: dict[str, NamedFiles]) -> dict[str, set[str]]:
        threads.append(threading.current_thread().name)
        return common_files(mine, others)

    monkeypatch.setattr(worker_tools, "common_files", compare)
    monkeypatch.setattr(worker_tools, "is_over", lambda _facts: False)
    flow = SimpleNamespace(sessions={"me": me, "o": other})
    services = SimpleNamespace(sessions=SimpleNamespace(flow=flow), conflicts=SimpleNamespace(expected=expected))
    caller: Any = SimpleNamespace(own=lambda: (me, 1), services=services)

    async def ask() -> dict[str, Any]:
        return await who_touches(caller, Files(files=["ab.py"]))

    assert asyncio.run(ask()) == {"others": [{"session": "o", "title": "other", "files": ["ab.py"]}]}
    assert threads and threads[0] != threading.main_thread().name


@pytest.mark.parametrize("text", ["get_log", "", " x", "ü", "a\r\nB: c", "=?base64?x?=", "ao://sessions/x"])
def test_a_header_is_written_as_the_protocol_writes_it(text: str) -> None:
    assert _header_value(text) == encode_header_value(text)


@pytest.mark.parametrize("id_", ["1", '"x"', str(2**53), f'"{"x" * 200}"'])
def test_ids_that_are_taken(id_: str) -> None:
    assert _fault(f'{{"id": {id_}}}'.encode()) is None


@pytest.mark.parametrize("id_", ["null", "1.5", "true", "[]", str(2**54), f'"{"x" * 201}"', "NaN", '"\\ud800"'])
def test_ids_that_are_not(id_: str) -> None:
    fault = _fault(f'{{"id": {id_}}}'.encode())
    assert fault is not None
    assert fault["error"]["code"] in (-32600, -32700)


@pytest.mark.parametrize(
    ("address", "place", "id_"),
    [
        ("ao://sessions/a", "session", "a"),
        ("ao://sessions/a/log", "log", "a"),
        ("ao://sessions/a%2Fb/diff", "diff", "a/b"),
        ("ao://plans/P1", "plan", "P1"),
        ("ao://sessions", "sessions", ""),
    ],
)
def test_an_address_leads_to_one_place(address: str, place: str, id_: str) -> None:
    assert [(one.name, one.match(address)) for one in RESOURCE_KINDS if one.match(address) is not None] == [
        (place, id_)
    ]


@pytest.mark.parametrize("address", ["ao://sessions/", "ao://sessions/a/b/log", "ao://sessions//log", "ao://x"])
def test_no_address(address: str) -> None:
    assert [one.name for one in RESOURCE_KINDS if one.match(address) is not None] == []


@pytest.mark.parametrize(
    ("method", "path", "may", "allowed"),
    [
        ("GET", "/api/sessions", (), True),
        ("GET", "/api/sessions/x/attach", (), False),
        ("GET", "/api/sessions/x/log", (), True),
        ("GET", "/api/sessions/x/events", (), False),
        ("GET", "/api/sessions/x/review", (), False),
        ("GET", "/api/sessions/x/../y/log", (), False),
        ("GET", "/api/events", (), False),
        ("GET", "/api/live", (), False),
        ("GET", "/api/config/value", (), False),
        ("GET", "/api/plans/P1", (), True),
        ("GET", "/api/sessions/x/environment", (), False),
        (auth.WEBSOCKET, "/api/sessions/x/terminal", (), False),
        ("POST", "/api/sessions", (), True),
        ("DELETE", "/api/sessions", (), False),
        ("DELETE", "/api/sessions/x", (), True),
        ("POST", "/api/sessions/x/merge", (), False),
        ("POST", "/api/sessions/x/merge", ("merge",), True),
        ("POST", "/api/sessions/x/answer", ("merge",), False),
        ("POST", "/api/tokens", ("merge", "review", "answer", "edit"), False),
        ("POST", "/api/shutdown", (), False),
    ],
)
def test_what_a_coordinators_command_may(method: str, path: str, may: tuple[str, ...], allowed: bool) -> None:
    if allowed:
        auth.allow_coordinator("app-coordinator", may, method, path)
    else:
        with pytest.raises(Denied):
            auth.allow_coordinator("app-coordinator", may, method, path)


def test_the_bridge_says_the_version_that_was_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge, told = Bridge({"Accept": "x"}), list[dict[str, Any]]()
    monkeypatch.setattr(bridge, "_write", told.append)
    hello, ping = ({"jsonrpc": "2.0", "id": 7, "method": method} for method in ("initialize", "ping"))
    assert bridge._request_headers(ping) == {"Accept": "x"}
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"protocolVersion": "2025-06-18"}}
    bridge._relay(hello, 7, True, Answer(200, {}, json.dumps(answer).encode()))
    assert told == [answer]
    assert bridge._request_headers(ping) == {"Accept": "x", "MCP-Protocol-Version": "2025-06-18"}
    assert bridge._request_headers(hello) == {"Accept": "x"}
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, "name": "why"}
    assert bridge._request_headers({"id": 1, "method": "tools/call", "params": meta}) == {
        "Accept": "x",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "why",
    }


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(403, {}, b'{"status": 403, "detail": "no", "remedy": "ask"}'), "no: ask"),
        (Answer(500, {}, b"<html>"), "the daemon answered 500: <html>"),
        (Answer(200, {}, b""), "the daemon's answer makes no sense"),
        (Answer(400, {}, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "bad"}}'), "bad"),
    ],
)
def test_the_bridge_answers_whoever_asked_whatever_the_daemon_says(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, text: str
) -> None:
    bridge, told = Bridge({}), list[dict[str, Any]]()
    monkeypatch.setattr(bridge, "_write", told.append)
    bridge._relay({"id": "q", "method": "ping"}, "q", True, answer)
    (said,) = told
    assert (said["id"], said["error"]["message"]) == ("q", text)
