"""Requests that viewers, operators and agents may not make are refused and logged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.tcp_client import ADDRESSES, TcpClient


def agents_token(box: Sandbox, session: str) -> str:
    """Return the token in the environment of a session's agent."""
    environ = Path(f"/proc/{box.session(session)['pid']}/environ").read_bytes().split(b"\0")
    return next(entry for entry in environ if entry.startswith(b"AO_TOKEN=")).decode().partition("=")[2]


def routes(box: Sandbox, session: str) -> list[tuple[str, str, str]]:
    """Return method, path and description of every route that is not public."""
    parameters = {
        "id": session,
        "number": "1",
        "message": "x",
        "name": "x",
        "label": "x",
        "kind": "sessions",
        "plan": "P1",
    }
    return [
        (method.upper(), path.format_map(parameters), json.dumps(description))
        for path, operations in box.request("GET", "/openapi.json")["paths"].items()
        if path not in ("/healthz", "/api/login", "/api/logout") and not path.startswith(("/api/webhooks", "/answer/"))
        for method, description in operations.items()
    ]


def test_a_viewer_can_watch_but_not_send(tcp_client: TcpClient, working_session: str) -> None:
    token = tcp_client.token("viewer")
    signed_in = tcp_client.sign_in(token=token)
    for credentials in (signed_in, {"Authorization": f"Bearer {token}"}):
        assert tcp_client.ask("GET", f"/api/sessions/{working_session}", **credentials).status == 200
        for method, path, body in (
            ("POST", f"/api/sessions/{working_session}/message", {"content": "x"}),
            ("POST", f"/api/sessions/{working_session}/answer", {"text": "x"}),
            ("DELETE", f"/api/sessions/{working_session}", None),
            ("POST", "/api/login-links", {}),
            ("POST", "/api/tokens", {"name": "x", "role": "admin"}),
        ):
            assert tcp_client.ask(method, path, body, **credentials).status == 403, path
            tcp_client.assert_last_refusal(f"method={method}", f"path={path}", "role operator")
        with tcp_client.terminal(working_session, **credentials) as terminal:
            assert terminal.recv(60) is not None  # it watches
            terminal.send(b"x")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    terminal.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        tcp_client.assert_last_refusal("method=WebSocket", "cannot type")


def test_a_viewer_is_refused_by_every_route_that_changes_something(tcp_client: TcpClient, working_session: str) -> None:
    token = tcp_client.token("viewer")
    changing = [(method, path) for method, path, _ in routes(tcp_client.box, working_session) if method != "GET"]
    assert len(changing) > 30
    session_before = tcp_client.box.request("GET", f"/api/sessions/{working_session}")
    for method, path in [*changing, ("CONNECT", "/api/sessions"), ("OPTIONS", "/api/sessions"), ("MKCOL", "/api/x")]:
        answer = tcp_client.ask(method, path, {}, Authorization=f"Bearer {token}", X_HTTP_Method_Override="GET")
        assert answer.status == 403, (method, path, answer.body)
        tcp_client.assert_last_refusal(f"method={method}", "this needs the role operator")
    assert tcp_client.box.request("GET", f"/api/sessions/{working_session}") == session_before


def test_an_operator_is_refused_by_every_admin_route(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in(token=tcp_client.token("operator"))
    admin_routes = [
        (method, path)
        for method, path, description in routes(tcp_client.box, working_session)
        if "dministrators only" in description
    ]
    assert {
        ("POST", "/api/tokens"),
        ("GET", "/api/tokens"),
        ("DELETE", f"/api/tokens/{working_session}"),
        ("POST", "/api/login-links"),
        ("POST", "/api/shutdown"),
        ("POST", "/api/projects"),
        ("POST", "/api/projects/trust"),
        ("DELETE", f"/api/projects/{working_session}"),
        ("PUT", "/api/config/value"),
        ("GET", "/api/config/value"),
        ("GET", f"/api/sessions/{working_session}/environment"),
    } <= {*admin_routes}
    bodies = {
        "/api/tokens": {"name": "x"},
        "/api/projects": {"path": "/"},
        "/api/config/value": {"key": "x", "value": 1},
    }
    for method, path in admin_routes:
        query = {"/api/doctor": "?fix=true", "/api/config/value": "?key=x"}.get(path, "")
        answer = tcp_client.ask(method, path + query, None if method == "GET" else bodies.get(path, {}), **signed_in)
        assert answer.status == 403, (method, path, answer.body)
        tcp_client.assert_last_refusal(f"method={method}", f"path={path}", "role admin")


def test_an_agents_token_opens_its_own_session_and_nothing_else(tcp_client: TcpClient, working_session: str) -> None:
    token = agents_token(tcp_client.box, working_session)
    credentials = {"Authorization": f"Bearer {token}"}
    tcp_client.box.ao("new", "[[wait]]", "--name", "ww")  # its id begins with the other's
    for path in ("/api/me", f"/api/sessions/{working_session}", f"/api/sessions/{working_session}/messages"):
        assert tcp_client.ask("GET", path, **credentials).status == 200
    for other in (
        "app-ww",
        "w",
        f"{working_session}%2F..%2Fapp-ww",
        f"{working_session}/../app-ww",
        f"{working_session}%00",
    ):
        assert tcp_client.ask("GET", f"/api/sessions/{other}", **credentials).status in (403, 404), other
    assert tcp_client.ask("GET", f"/api/sessions/{working_session}?project=none", **credentials).status == 404
    other_routes = [(method, path) for method, path, _ in routes(tcp_client.box, "app-ww") if path != "/api/me"]
    forbidden_routes = [
        (method, path)
        for method, path, _ in routes(tcp_client.box, working_session)
        if path.endswith(("/environment", "/attach")) or (method != "GET" and working_session in path)
    ]
    for number, (method, path) in enumerate([*other_routes, *forbidden_routes]):
        if not number % 50:  # only so many refusals are logged per address
            tcp_client.address = f"127.0.0.{next(ADDRESSES)}"
        answer = tcp_client.ask(method, path, None if method == "GET" else {"verdict": "approved"}, **credentials)
        assert answer.status == 403, (method, path, answer.body)
        tcp_client.assert_last_refusal(f"method={method}", "session")
    tcp_client.box.ao("stop", "app-ww")


def test_a_viewers_window_does_not_resize_a_terminal_used_by_others(
    tcp_client: TcpClient, working_session: str
) -> None:
    def columns() -> int:
        with Path(f"/proc/{tcp_client.box.session(working_session)['pid']}/fd/0").open("rb") as terminal:
            return os.get_terminal_size(terminal.fileno()).columns

    operator = {"Authorization": f"Bearer {tcp_client.token('operator')}"}
    viewer = {"Authorization": f"Bearer {tcp_client.token('viewer')}"}
    with tcp_client.terminal(working_session, **operator) as person:
        person.send(json.dumps({"resize": [77, 30]}))
        tcp_client.box.wait_until(lambda: columns() == 77, "the size")
        with tcp_client.terminal(working_session, **viewer) as watcher:
            assert watcher.recv(60) is not None
            watcher.send(json.dumps({"resize": [50, 10]}))
            with pytest.raises(TimeoutError):
                tcp_client.box.wait_until(lambda: columns() != 77, "another size", 0.7)


def test_an_operator_can_type_in_a_terminal_and_an_agent_cannot_open_one(
    tcp_client: TcpClient, working_session: str
) -> None:
    with tcp_client.terminal(working_session, **tcp_client.sign_in(token=tcp_client.token("operator"))) as terminal:
        terminal.send(b"x")
        assert terminal.recv(60) is not None
    assert tcp_client.refusal_lines() == []
    token = agents_token(tcp_client.box, working_session)
    with pytest.raises(InvalidStatus) as closed:
        tcp_client.terminal(working_session, Authorization=f"Bearer {token}")
    assert closed.value.response.status_code == 403
    tcp_client.assert_last_refusal("method=WebSocket", f"the token of session {working_session}")
    assert tcp_client.ask("POST", "/api/login", {"token": token}).status == 401
    tcp_client.assert_last_refusal("path=/api/login", "valid for signing in")
