"""The MCP tools: descriptions, schemas and helper functions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.inbound import encode_header_value

from agent_orchestrator.base.http_client import CompleteResponse
from agent_orchestrator.cli.daemon.mcp import McpBridge, _header_value
from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.caller import Scope
from agent_orchestrator.server.mcp import protocol, worker_tools
from agent_orchestrator.server.mcp.endpoint import _invalid_message_answer
from agent_orchestrator.server.mcp.fleet_tools import _diff_of_file
from agent_orchestrator.server.mcp.resources import RESOURCE_KINDS
from agent_orchestrator.server.mcp.tools import MAX_TEXT_LENGTH, Tool, text_page
from agent_orchestrator.server.mcp.worker_tools import Files, NamedFiles, common_files, who_touches

TOOLS = list(Tool.registry.values())


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from parts(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.name))
def test_a_tool_has_a_description_and_limits_its_arguments(tool: Tool) -> None:
    assert len(tool.about) > 30
    assert "\n" not in tool.about
    assert tool.output_schema()["type"] == "object"
    schema = tool.input_schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for part in parts(schema):
        match part.get("type"):
            case "string":
                assert {"maxLength", "enum", "pattern"} & part.keys(), part
            case "integer":
                assert {"minimum", "maximum"} <= part.keys(), part
            case "array":
                assert "maxItems" in part, part


def test_the_hints_of_tools_are_correct() -> None:
    hints = {tool.name: protocol._listed_tool(tool).annotations for tool in TOOLS}
    assert {name for name, hint in hints.items() if hint and hint.destructive_hint} == {"stop_session"}
    reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
    assert reading >= {"list_sessions", "get_diff", "my_session", "who_touches", "get_plan"}
    changing = {tool.name for tool in TOOLS if tool.scope is Scope.STEER} | {"ask_person", "report_done"}
    assert not reading & changing


def test_tools_that_need_an_extra_permission_of_a_coordinator() -> None:
    assert {tool.extra: tool.name for tool in TOOLS if tool.extra} == {
        "merge": "merge_session",
        "review": "review_session",
        "answer": "answer_session",
    }


def test_a_long_text_is_returned_in_pages() -> None:
    text = "x" * (MAX_TEXT_LENGTH + 5)
    first = text_page(text)
    assert first["next"] == MAX_TEXT_LENGTH
    assert first["text"] + text_page(text, first["next"])["text"] == text
    assert text_page(text, MAX_TEXT_LENGTH)["next"] is None
    assert text_page(text, 10**9) == {"text": "", "next": None}


def test_one_file_of_a_diff_can_be_selected() -> None:
    parts_ = [f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n+ diff --git not\n" for name in ("a", "b/a")]
    diff_document = {"diff": "".join(parts_), "files": ["a", "b/a"]}
    assert _diff_of_file(diff_document, "a").strip() == parts_[0].strip()
    assert _diff_of_file(diff_document, "b/a").strip() == parts_[1].strip()
    with pytest.raises(NotFound):
        _diff_of_file(diff_document, "c")


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
def test_files_are_compared_by_path_folder_and_pattern(mine: set[str], theirs: set[str], both: set[str]) -> None:
    assert common_files(NamedFiles(mine), {"other": NamedFiles(theirs)}) == {"other": both}


def test_a_file_name_is_never_a_pattern() -> None:
    mine = NamedFiles([], ["a.py", "[ab].py", "deep/x"])
    assert common_files(mine, {"other": NamedFiles([], ["*", "?.py", "**", "deep/*"])}) == {"other": set()}
    assert common_files(mine, {"other": NamedFiles([], ["[ab].py"])}) == {"other": {"[ab].py"}}


def test_too_many_patterns_are_refused() -> None:
    many = NamedFiles([], [f"gen/m{number % 100:03d}/file_{number:05d}.py" for number in range(20_000)])
    queried = NamedFiles([f"*007*{'a*' * 30}{number}b" for number in range(200)])
    with pytest.raises(UsageError, match="4000000, 500000 at most") as refused:
        common_files(queried, {"other": many})
    assert "folders" in refused.value.remedy
    assert len(common_files(NamedFiles(["gen/m007/", "*_00107.py"]), {"other": many})["other"]) == 2


def test_files_are_compared_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A costly comparison does not block the event loop."""
    spec = SimpleNamespace(files=("a*.py",), kind="task", title="other")
    me, other = (
        SimpleNamespace(id=name, project="app", spec=spec, stopped=False, merge_commit=None, pr=None)
        for name in ("me", "o")
    )

    async def expected(_sessions: object) -> dict[str, frozenset[str]]:
        return {"me": frozenset(), "o": frozenset({"ab.py"})}

    threads: list[str] = []

    def compare(mine: NamedFiles, others: dict[str, NamedFiles]) -> dict[str, set[str]]:
        threads.append(threading.current_thread().name)
        return common_files(mine, others)

    monkeypatch.setattr(worker_tools, "common_files", compare)
    monkeypatch.setattr(worker_tools, "has_ended", lambda _facts: False)
    flow = SimpleNamespace(sessions={"me": me, "o": other})
    services = SimpleNamespace(sessions=SimpleNamespace(flow=flow), conflicts=SimpleNamespace(expected_files=expected))
    caller: Any = SimpleNamespace(require_own_session=lambda: (me, 1), services=services)

    async def ask() -> dict[str, Any]:
        return await who_touches(caller, Files(files=["ab.py"]))

    assert asyncio.run(ask()) == {"others": [{"session": "o", "title": "other", "files": ["ab.py"]}]}
    assert threads and threads[0] != threading.main_thread().name


@pytest.mark.parametrize("text", ["get_log", "", " x", "ü", "a\r\nB: c", "=?base64?x?=", "ao://sessions/x"])
def test_a_header_is_encoded_as_the_protocol_requires(text: str) -> None:
    assert _header_value(text) == encode_header_value(text)


@pytest.mark.parametrize("id_", ["1", '"x"', str(2**53), f'"{"x" * 200}"'])
def test_valid_request_ids_are_accepted(id_: str) -> None:
    assert _invalid_message_answer(f'{{"id": {id_}}}'.encode()) is None


@pytest.mark.parametrize("id_", ["null", "1.5", "true", "[]", str(2**54), f'"{"x" * 201}"', "NaN", '"\\ud800"'])
def test_invalid_request_ids_are_refused(id_: str) -> None:
    fault = _invalid_message_answer(f'{{"id": {id_}}}'.encode())
    assert fault is not None
    assert fault["error"]["code"] in (-32600, -32700)


@pytest.mark.parametrize(
    ("address", "expected", "id_"),
    [
        ("ao://sessions/a", "session", "a"),
        ("ao://sessions/a/log", "log", "a"),
        ("ao://sessions/a%2Fb/diff", "diff", "a/b"),
        ("ao://plans/P1", "plan", "P1"),
        ("ao://sessions", "sessions", ""),
    ],
)
def test_a_resource_address_is_parsed(address: str, expected: str, id_: str) -> None:
    assert [(kind.name, kind.match(address)) for kind in RESOURCE_KINDS if kind.match(address) is not None] == [
        (expected, id_)
    ]


@pytest.mark.parametrize("address", ["ao://sessions/", "ao://sessions/a/b/log", "ao://sessions//log", "ao://x"])
def test_invalid_resource_addresses_match_nothing(address: str) -> None:
    assert [kind.name for kind in RESOURCE_KINDS if kind.match(address) is not None] == []


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
        (auth.WEBSOCKET_METHOD, "/api/sessions/x/terminal", (), False),
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
def test_the_requests_a_coordinator_may_make(method: str, path: str, may: tuple[str, ...], allowed: bool) -> None:
    if allowed:
        auth.check_coordinator_request("app-coordinator", may, method, path)
    else:
        with pytest.raises(Denied):
            auth.check_coordinator_request("app-coordinator", may, method, path)


def test_the_bridge_sends_the_negotiated_protocol_version(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge, messages = McpBridge({"Accept": "x"}), list[dict[str, Any]]()
    monkeypatch.setattr(bridge, "_write", messages.append)
    hello, ping = ({"jsonrpc": "2.0", "id": 7, "method": method} for method in ("initialize", "ping"))
    assert bridge._request_headers(ping) == {"Accept": "x"}
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"protocolVersion": "2025-06-18"}}
    bridge._relay(hello, 7, True, CompleteResponse(200, {}, json.dumps(answer).encode()))
    assert messages == [answer]
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
        (CompleteResponse(403, {}, b'{"status": 403, "detail": "no", "remedy": "ask"}'), "no: ask"),
        (CompleteResponse(500, {}, b"<html>"), "the daemon answered 500: <html>"),
        (CompleteResponse(200, {}, b""), "the daemon's answer makes no sense"),
        (
            CompleteResponse(400, {}, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "bad"}}'),
            "bad",
        ),
    ],
)
def test_the_bridge_answers_every_request_with_an_error_if_the_daemon_fails(
    monkeypatch: pytest.MonkeyPatch, answer: CompleteResponse, text: str
) -> None:
    bridge, messages = McpBridge({}), list[dict[str, Any]]()
    monkeypatch.setattr(bridge, "_write", messages.append)
    bridge._relay({"id": "q", "method": "ping"}, "q", True, answer)
    (message,) = messages
    assert (message["id"], message["error"]["message"]) == ("q", text)
