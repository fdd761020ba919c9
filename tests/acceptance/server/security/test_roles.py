"""What viewers, operators and agents may not: refused, and written down in the daemon's log."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.stranger import ADDRESSES, Stranger


def agents_token(box: Sandbox, session: str) -> str:
    """What the agent of a session has in its environment."""
    environ = Path(f"/proc/{box.session(session)['pid']}/environ").read_bytes().split(b"\0")
    return next(entry for entry in environ if entry.startswith(b"AO_TOKEN=")).decode().partition("=")[2]


def routes(box: Sandbox, session: str) -> list[tuple[str, str, str]]:
    """Every route that there is: its method, a path to it, and what is said of it. What is open to all is left out."""
    given = {"id": session, "number": "1", "message": "x", "name": "x", "label": "x", "kind": "sessions", "plan": "P1"}
    return [
        (method.upper(), path.format_map(given), json.dumps(about))
        for path, operations in box.request("GET", "/openapi.json")["paths"].items()
        if path not in ("/healthz", "/api/login", "/api/logout") and not path.startswith(("/api/webhooks", "/answer/"))
        for method, about in operations.items()
    ]


def test_a_viewer_sends_nothing(stranger: Stranger, working: str) -> None:
    token = stranger.token("viewer")
    signed_in = stranger.sign_in(token=token)
    for way in (signed_in, {"Authorization": f"Bearer {token}"}):
        assert stranger.ask("GET", f"/api/sessions/{working}", **way).status == 200
        for method, path, body in (
            ("POST", f"/api/sessions/{working}/message", {"content": "x"}),
            ("POST", f"/api/sessions/{working}/answer", {"text": "x"}),
            ("DELETE", f"/api/sessions/{working}", None),
            ("POST", "/api/login-links", {}),
            ("POST", "/api/tokens", {"name": "x", "role": "admin"}),
        ):
            assert stranger.ask(method, path, body, **way).status == 403, path
            stranger.was_refused(f"method={method}", f"path={path}", "role operator")
        with stranger.terminal(working, **way) as terminal:
            assert terminal.recv(60) is not None  # it watches
            terminal.send(b"x")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    terminal.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        stranger.was_refused("method=WebSocket", "cannot type")


def test_a_viewer_is_refused_by_every_route_that_changes_something(stranger: Stranger, working: str) -> None:
    token = stranger.token("viewer")
    changing = [(method, path) for method, path, _ in routes(stranger.box, working) if method != "GET"]
    assert len(changing) > 30
    seen = stranger.box.request("GET", f"/api/sessions/{working}")
    for method, path in [*changing, ("CONNECT", "/api/sessions"), ("OPTIONS", "/api/sessions"), ("MKCOL", "/api/x")]:
        answer = stranger.ask(method, path, {}, Authorization=f"Bearer {token}", X_HTTP_Method_Override="GET")
        assert answer.status == 403, (method, path, answer.body)
        stranger.was_refused(f"method={method}", "this needs the role operator")
    assert stranger.box.request("GET", f"/api/sessions/{working}") == seen


def test_an_operator_is_refused_by_every_route_for_administrators(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in(token=stranger.token("operator"))
    house = [(method, path) for method, path, about in routes(stranger.box, working) if "dministrators only" in about]
    assert {
        ("POST", "/api/tokens"),
        ("GET", "/api/tokens"),
        ("DELETE", f"/api/tokens/{working}"),
        ("POST", "/api/login-links"),
        ("POST", "/api/shutdown"),
        ("POST", "/api/projects"),
        ("POST", "/api/projects/trust"),
        ("DELETE", f"/api/projects/{working}"),
        ("PUT", "/api/config/value"),
        ("GET", "/api/config/value"),
        ("GET", f"/api/sessions/{working}/environment"),
    } <= {*house}
    bodies = {
        "/api/tokens": {"name": "x"},
        "/api/projects": {"path": "/"},
        "/api/config/value": {"key": "x", "value": 1},
    }
    for method, path in house:
        query = {"/api/doctor": "?fix=true", "/api/config/value": "?key=x"}.get(path, "")
        answer = stranger.ask(method, path + query, None if method == "GET" else bodies.get(path, {}), **signed_in)
        assert answer.status == 403, (method, path, answer.body)
        stranger.was_refused(f"method={method}", f"path={path}", "role admin")


def test_an_agents_token_opens_its_own_session_and_nothing_else(stranger: Stranger, working: str) -> None:
    token = agents_token(stranger.box, working)
    way = {"Authorization": f"Bearer {token}"}
    stranger.box.ao("new", "[[wait]]", "--name", "ww")  # its id begins as the other's does
    for path in ("/api/me", f"/api/sessions/{working}", f"/api/sessions/{working}/messages"):
        assert stranger.ask("GET", path, **way).status == 200
    for other in ("app-ww", "w", f"{working}%2F..%2Fapp-ww", f"{working}/../app-ww", f"{working}%00"):
        assert stranger.ask("GET", f"/api/sessions/{other}", **way).status in (403, 404), other
    assert stranger.ask("GET", f"/api/sessions/{working}?project=none", **way).status == 404
    every = [(method, path) for method, path, _ in routes(stranger.box, "app-ww") if path != "/api/me"]
    own = [
        (method, path)
        for method, path, _ in routes(stranger.box, working)
        if path.endswith(("/environment", "/attach")) or (method != "GET" and working in path)
    ]
    for number, (method, path) in enumerate([*every, *own]):
        if not number % 50:  # so many refusals are written down for one address
            stranger.address = f"127.0.0.{next(ADDRESSES)}"
        answer = stranger.ask(method, path, None if method == "GET" else {"verdict": "approved"}, **way)
        assert answer.status == 403, (method, path, answer.body)
        stranger.was_refused(f"method={method}", "session")
    stranger.box.ao("stop", "app-ww")


def test_a_viewers_window_does_not_change_the_agents_size_while_others_work_in_it(
    stranger: Stranger, working: str
) -> None:
    def columns() -> int:
        with Path(f"/proc/{stranger.box.session(working)['pid']}/fd/0").open("rb") as terminal:
            return os.get_terminal_size(terminal.fileno()).columns

    operator = {"Authorization": f"Bearer {stranger.token('operator')}"}
    viewer = {"Authorization": f"Bearer {stranger.token('viewer')}"}
    with stranger.terminal(working, **operator) as person:
        person.send(json.dumps({"resize": [77, 30]}))
        stranger.box.until(lambda: columns() == 77, "the size")
        with stranger.terminal(working, **viewer) as watcher:
            assert watcher.recv(60) is not None
            watcher.send(json.dumps({"resize": [50, 10]}))
            with pytest.raises(TimeoutError):
                stranger.box.until(lambda: columns() != 77, "another size", 0.7)


def test_an_operator_types_and_an_agent_does_not_even_look(stranger: Stranger, working: str) -> None:
    with stranger.terminal(working, **stranger.sign_in(token=stranger.token("operator"))) as terminal:
        terminal.send(b"x")
        assert terminal.recv(60) is not None
    assert stranger.logged() == []
    token = agents_token(stranger.box, working)
    with pytest.raises(InvalidStatus) as closed:
        stranger.terminal(working, Authorization=f"Bearer {token}")
    assert closed.value.response.status_code == 403
    stranger.was_refused("method=WebSocket", f"the token of session {working}")
    assert stranger.ask("POST", "/api/login", {"token": token}).status == 401
    stranger.was_refused("path=/api/login", "valid for signing in")
