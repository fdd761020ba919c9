"""The HTTP API and its JSON: all keys present, problem documents, tokens over TCP, events, idempotency."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

SESSION = {
    "id",
    "name",
    "project",
    "task",
    "kind",
    "title",
    "status",
    "activity",
    "evidence",
    "column",
    "branch",
    "base",
    "head",
    "workspacePath",
    "agent",
    "profile",
    "runtime",
    "node",
    "pid",
    "exitCode",
    "issue",
    "pr",
    "progress",
    "usage",
    "attempts",
    "waitingFor",
    "createdAt",
    "updatedAt",
}
STATUS = {"state", "status", "activity", "currentTask", "lastActivity", "branch", "workspacePath", "agent", "progress"}
EVENT = {"seq", "type", "session", "project", "source", "time", "data"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _tcp(box: Sandbox, path: str, token: str | None, method: str = "GET", body: Any = None) -> tuple[int, Any, Any]:
    url = json.loads(box.home.daemon_info.read_text())["url"]
    request = Request(url + path, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text, answer.headers
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers


def _check_session(session: dict[str, Any]) -> None:
    assert set(session) >= SESSION, SESSION - set(session)
    assert set(session["evidence"]) == {"source", "at"} and TIME.fullmatch(session["evidence"]["at"])
    assert set(session["progress"]) == {"done", "total", "step", "testsPassed"}
    assert set(session["usage"]) == {"input", "output", "usd"}
    assert isinstance(session["attempts"], dict)
    for key in ("createdAt", "updatedAt"):
        assert TIME.fullmatch(session[key]), session[key]


def test_every_key_is_always_present(shared: Sandbox) -> None:
    _check_session(shared.json("new", "[[wait]]", "--name", "k-run"))
    _check_session(shared.request("POST", "/api/sessions", {"name": "k-defer", "defer": True, "projectId": "app"}))
    shared.ao("new", "[[exit: 2]]", "--name", "k-bad", check=False)
    shared.ao("stop", "k-run")
    listed = shared.json("status")["sessions"]
    assert {"app-k-run", "app-k-defer", "app-k-bad"} <= {session["id"] for session in listed}
    for session in listed:
        _check_session(session)
        _check_session(shared.json("status", session["id"]))
        status = shared.request("GET", f"/api/sessions/{session['id']}/status")
        assert set(status) == STATUS and status["state"] in ("idle", "working", "waiting", "error")
    assert shared.session("app-k-run")["status"] == "stopped"
    assert shared.request("GET", "/api/sessions?all=1")["sessions"][0].keys() == listed[0].keys()
    assert set(shared.json("send", "k-defer", "hi")) == {"messageId", "state"}


def test_events_are_one_json_object_per_line(shared: Sandbox) -> None:
    shared.ao("new", "[[say: x]]", "--name", "ev")
    lines = shared.ao("events", "ev", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert len(events) > 2
    for event in events:
        assert set(event) >= EVENT and TIME.fullmatch(event["time"]) and event["session"] == "app-ev"
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)


def _has_done(box: Sandbox, number: int) -> bool:
    return bool(box.session("quick")["progress"]["done"] == number)


def test_a_spool_line_is_an_event_at_once(shared: Sandbox) -> None:
    shared.ao("new", "[[wait]]", "--name", "quick")
    shared.wait_until(lambda: shared.session("quick")["activity"] == "idle")
    env = shared.request("GET", "/api/sessions/quick/environment")["env"]
    numbers, best = iter(range(100)), 10.0
    while best >= 0.5:  # a moment of load on the machine does not count
        number = next(numbers)
        with Path(env["AO_SPOOL"]).open("a") as spool:
            spool.write(json.dumps({"event": "progress", "done": number, "total": 999}) + "\n")
        started_at = time.monotonic()
        shared.wait_until(partial(_has_done, shared, number), "the report")
        best = min(best, time.monotonic() - started_at)
    assert [e["data"]["done"] for e in shared.events("quick") if e["type"] == "agent-progress"][-1] == number


def test_errors_are_problem_documents(shared: Sandbox) -> None:
    token = (shared.home.path / "token").read_text().strip()
    cases: list[tuple[str, str, Any, int]] = [
        ("GET", "/api/sessions/nope", None, 404),
        ("POST", "/api/sessions", {"projectId": "nope", "prompt": "x"}, 404),
        ("POST", "/api/sessions", {"prompt": "x"}, 422),
        ("POST", "/api/sessions", {"projectId": "app"}, 422),
        ("POST", "/api/sessions", {"projectId": "app", "promt": "x"}, 422),
        ("POST", "/api/sessions", [], 422),
        ("GET", "/api/nothing", None, 404),
        ("PATCH", "/api/sessions", None, 405),
        ("GET", "/api/events?after=x", None, 422),
    ]
    for method, path, body, code in cases:
        status, problem, headers = _tcp(shared, path, token, method, body)
        assert status == code or (code == 422 and status == 400), (method, path, status, problem)
        assert headers["Content-Type"].startswith("application/problem+json"), (path, headers["Content-Type"])
        assert {"type", "title", "status", "detail"} <= set(problem) and problem["status"] == status


def test_tcp_needs_a_token(shared: Sandbox) -> None:
    token_file = shared.home.path / "token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    token = token_file.read_text().strip()
    assert _tcp(shared, "/healthz", None)[0] == 200
    assert _tcp(shared, "/", None)[0] == 200
    for bad in (None, "wrong", "aot_x.y", "aos_app-a.1.zzz"):
        status, problem, _ = _tcp(shared, "/api/sessions", bad)
        assert status == 401 and "ao token" in json.dumps(problem)
    assert _tcp(shared, "/openapi.json", token)[0] == 200
    assert _tcp(shared, "/api/sessions", token)[0] == 200


def test_named_tokens_can_be_created_used_and_revoked(shared: Sandbox) -> None:
    created = shared.json("token", "new", "ci", "--role", "viewer")
    assert _tcp(shared, "/api/sessions", created["token"])[0] == 200
    assert _tcp(shared, "/api/sessions", created["token"], "POST", {"projectId": "app", "prompt": "x"})[0] == 403
    assert (
        "ci" in shared.ao("token", "list").stdout
        and created["token"] not in shared.ao("token", "list", "--json").stdout
    )
    assert_refused(shared.ao("token", "new", "ci", check=False), 1, "ci")
    shared.ao("token", "revoke", "ci")
    assert _tcp(shared, "/api/sessions", created["token"])[0] == 401
    assert_refused(shared.ao("token", "revoke", "ci", check=False), 3, "ci")


def test_an_idempotency_key_creates_one_session_and_one_message(shared: Sandbox) -> None:
    body = {"projectId": "app", "prompt": "[[wait]]", "name": None}
    ask = lambda _: shared.request("POST", "/api/sessions", body, **{"Idempotency-Key": "same-key"})["id"]  # noqa: E731
    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(ask, range(6)))
    assert len(ids) == 1
    session = ids.pop()
    say = lambda _: shared.request(  # noqa: E731
        "POST", f"/api/sessions/{session}/message", {"content": "once"}, **{"Idempotency-Key": "m-key"}
    )["messageId"]
    with ThreadPoolExecutor(6) as pool:
        messages = set(pool.map(say, range(6)))
    assert len(messages) == 1
    assert len(shared.request("GET", f"/api/sessions/{session}/messages")["messages"]) == 1


def test_an_idempotency_key_survives_a_crash_of_the_daemon(process_box: Sandbox) -> None:
    body = {"projectId": "app", "prompt": "[[wait]]"}
    key = {"Idempotency-Key": "k1"}
    process_box.ao("status")
    first = process_box.request("POST", "/api/sessions", body, **key)["id"]
    sent = process_box.request("POST", f"/api/sessions/{first}/message", {"content": "[[say: hi]]"}, **key)["messageId"]
    process_box.stop(signal.SIGKILL)
    process_box.start()
    assert process_box.request("POST", "/api/sessions", body, **key)["id"] == first
    assert (
        process_box.request("POST", f"/api/sessions/{first}/message", {"content": "[[say: hi]]"}, **key)["messageId"]
        == sent
    )
    assert len(process_box.sessions()) == 1
    assert len(process_box.request("GET", f"/api/sessions/{first}/messages")["messages"]) == 1


def test_the_event_stream_can_be_resumed(shared: Sandbox) -> None:
    shared.ao("new", "[[say: x]]", "--name", "sse")
    shared.wait_until(lambda: shared.session("sse")["activity"] == "idle")
    sequence = [event["seq"] for event in shared.events()]
    after = sequence[-4]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(shared.home.socket("daemon.sock")))
        head = f"GET /api/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n"
        sock.sendall(head.encode())
        text = b""
        while not re.search(rb"^id: %d\r?\n" % sequence[-1], text, re.MULTILINE):
            chunk = sock.recv(65536)
            assert chunk
            text += chunk
    assert b"text/event-stream" in text
    ids = [int(number) for number in re.findall(rb"^id: (\d+)", text, re.MULTILINE)]
    assert ids[:3] == sequence[-3:]


def test_the_openapi_document_contains_every_route(shared: Sandbox) -> None:
    paths = set(shared.request("GET", "/openapi.json")["paths"])
    base = "/api/sessions/{id}"
    expected = {
        "/api/sessions",
        base,
        *(
            f"{base}/{name}"
            for name in ["status", "message", "messages", "answer", "restore", "diff", "log", "events", "why"]
        ),
    }
    assert {re.sub(r"\{\w+\}", "{id}", path) for path in paths} >= expected
    for path in ("/api/projects", "/api/tasks", "/api/agents", "/api/tokens", "/api/events", "/healthz"):
        assert path in paths
