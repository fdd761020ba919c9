"""Who tries to get in and may not: refused, and written down in the daemon's log, by a real daemon on real sockets.

Each test comes from a loopback address of its own, so that its lines in the log are known by that.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.saying import refused

_ADDRESSES = itertools.count(10)


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stranger:
    """Somebody at an address of his own, who asks the daemon over TCP."""

    box: Sandbox
    address: str

    @property
    def url(self) -> str:
        return str(json.loads(self.box.home.info.read_text())["url"])

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def ask(self, method: str, path: str, body: Any = None, /, **headers: str) -> Answer:
        """One request; underscores in header names stand for dashes, and no path is made better than it is."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if body is not None:
            fields.setdefault("Content-Type", "application/json")
        name, _, port = self.host.partition(":")
        connection = http.client.HTTPConnection(name, int(port), timeout=60, source_address=(self.address, 0))
        try:
            connection.putrequest(method, path, skip_host="Host" in fields)
            for key, value in fields.items():
                connection.putheader(key, value)
            if content is not None:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def send(self, *lines: str, body: bytes = b"", patience: float = 0.0) -> bytes:
        """What comes back when these very lines are sent; `HOST` stands for the daemon's own name.

        With `patience` the connection is to stay, and nothing more is awaited after so many seconds of silence.
        """
        closes = () if patience else ("Connection: close",)
        head = "\r\n".join((*lines, *closes, "", "")).replace("HOST", self.host)
        name, _, port = self.host.partition(":")
        with socket.create_connection((name, int(port)), 60, (self.address, 0)) as connection:
            connection.sendall(head.encode("latin-1") + body)
            connection.settimeout(patience or 60)
            answer = b""
            with contextlib.suppress(ConnectionResetError, *([TimeoutError] if patience else [])):
                while more := connection.recv(1 << 16):
                    answer += more
        return answer

    def sign_in(self, **body: str) -> dict[str, str]:
        """What a page of ours sends once it is signed in."""
        answer = self.ask("POST", "/api/login", body or {"code": self.code()}, Origin=self.url)
        assert answer.status == 200, answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "Origin": self.url, "X-AO-Page": answer.json()["page"]}

    def code(self, **body: str) -> str:
        made = self.box.request("POST", "/api/login-links", body)
        return str(made["url"]).partition("#login=")[2]

    def token(self, role: str) -> str:
        return str(self.box.json("token", "new", f"{role}-{self.address}", "--role", role)["token"])

    def terminal(self, session: str, **headers: str) -> ClientConnection:
        name, _, port = self.host.partition(":")
        sock = socket.create_connection((name, int(port)), 60, (self.address, 0))
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        host = fields.pop("Host", self.host)
        try:
            path = f"ws://{host}/api/sessions/{session}/terminal"
            return connect(path, sock=sock, additional_headers=fields, open_timeout=60)
        except BaseException:
            sock.close()
            raise

    def logged(self) -> list[str]:
        """The lines about refusals to this address."""
        lines = self.box.home.log.read_text().splitlines()
        return [line for line in lines if "event=refused" in line and f"peer={self.address}" in line]

    def was_refused(self, *words: str) -> None:
        """The last refusal is written down, with these words in it."""
        lines = self.logged()
        assert lines and "level=warning" in lines[-1], lines
        for word in words:
            assert word in lines[-1], lines[-1]


@pytest.fixture
def stranger(shared: Sandbox) -> Iterator[Stranger]:
    stranger = Stranger(shared, f"127.0.0.{next(_ADDRESSES)}")
    before = len(shared.home.log.read_text())
    yield stranger
    log = shared.home.log.read_text()[before:]
    found = re.search("(aot|aol|aoc)_|Traceback", log)
    assert not found, log[max(0, found.start() - 300) : found.start() + 1500]


@pytest.fixture(scope="module")
def working(shared: Sandbox) -> str:
    """A session with a live agent."""
    shared.ao("new", "[[wait]]", "--name", "w")
    shared.until(lambda: shared.session("app-w")["activity"] == "idle", "it to be at rest")
    return "app-w"


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


def test_no_token_and_a_wrong_one(stranger: Stranger) -> None:
    assert stranger.ask("GET", "/api/sessions").status == 401
    stranger.was_refused("path=/api/sessions", "this needs a token")
    assert stranger.ask("GET", "/api/sessions", Authorization="Bearer aot_guess.guess").status == 401
    stranger.was_refused("no longer, valid")
    port = stranger.host.partition(":")[2]
    assert stranger.ask("GET", "/api/me", Cookie=f"ao_session_{port}=aol_00.guess").status == 401
    stranger.was_refused("path=/api/me", "no longer, valid")


def test_numbers_without_an_end_are_refused_and_are_no_fault(stranger: Stranger, working: str) -> None:
    hands, long = f"Bearer {stranger.token('operator')}", "9" * 5000
    for path in ("/api/events", f"/api/sessions/{working}/events"):
        assert stranger.ask("GET", f"{path}?after={10**30}", Authorization=hands).status == 422
    for path in ("/api/events", "/api/live"):
        followed = {"Accept": "text/event-stream", "Last-Event-ID": long, "Authorization": hands}
        assert stranger.ask("GET", path, **followed).status == 422
    assert stranger.ask("POST", "/api/sessions", {"projectId": "app", "issue": long}, Authorization=hands).status < 500


def test_a_link_is_good_once_and_ends_with_its_daemon(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository()
        box.start()
        stranger = Stranger(box, "127.0.0.9")
        code, other = stranger.code(), stranger.code()
        stranger.sign_in(code=code)
        assert stranger.ask("POST", "/api/login", {"code": code}).status == 401
        stranger.was_refused("path=/api/login", "used already, or is older than 2 minutes")
        box.stop()
        box.start()
        assert stranger.ask("POST", "/api/login", {"code": other}).status == 401
        assert len(stranger.logged()) == 2
        assert code not in box.home.log.read_text() and other not in box.home.log.read_text()


def test_a_sign_in_outlives_the_daemon_and_its_cookie_is_for_it_alone(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository()
        box.start()
        stranger = Stranger(box, "127.0.0.9")
        answer = stranger.ask("POST", "/api/login", {"code": stranger.code()}, Origin=stranger.url)
        port = int(stranger.host.partition(":")[2])
        value, *attributes = answer.headers["set-cookie"].split("; ")
        assert sorted(attributes) == ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=strict"]
        assert value.partition("=")[2] not in (box.home.path / "tokens.json").read_text()
        box.stop()
        box.start(port=port)
        page = answer.json()["page"]
        assert stranger.ask("GET", "/api/me", Cookie=value, X_AO_Page=page).json()["role"] == "admin"


def test_another_origin(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in()
    evil = {**signed_in, "Origin": "http://evil.example"}
    assert stranger.ask("GET", "/api/sessions", **evil).status == 403
    stranger.was_refused("path=/api/sessions", "pages of http://evil.example may not use this server")
    assert stranger.ask("POST", f"/api/sessions/{working}/message", {"content": "x"}, **evil).status == 403
    stranger.was_refused("method=POST", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        stranger.terminal(working, **evil)
    assert closed.value.response.status_code == 403
    stranger.was_refused("method=WebSocket", "/terminal", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        stranger.terminal(
            working, Cookie=signed_in["Cookie"], X_AO_Page=signed_in["X-AO-Page"]
        )  # no browser leaves it out
    assert closed.value.response.status_code == 403
    stranger.was_refused("method=WebSocket", "must say its Origin")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://HOST",
        "chrome-extension://HOST",
        "http://HOST/",
        "http://HOST@evil.example",
        "http://evil.example@HOST",
        "http://HOST.evil.example",
        "http://127.0.0.1",
        "http://localhost",
        "http://[::1",
        "",
    ],
)
def test_origins_that_are_nearly_ours(stranger: Stranger, origin: str) -> None:
    cookie = stranger.sign_in()["Cookie"]
    answer = stranger.send("GET /api/me HTTP/1.1", "Host: HOST", f"Cookie: {cookie}", f"Origin: {origin}")
    assert answer.startswith(b"HTTP/1.1 403"), answer
    stranger.was_refused("path=/api/me", "may not use this server")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.",
        "evil.example@HOST",
        "HOST@evil.example",
        "HOST/evil",
        "HOST?evil",
        "HOST#evil",
        "HOST evil",
        "local\thost",
        "127.0.0.1.evil.example",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "[::]",
        "[::ffff:10.0.0.1]",
        "[::1]evil",
        "[::1%25evil]",
        "[fe80::1]",
        "127.0.0.1:x",
        "127.0.0.1:1:2",
        "",
    ],
)
def test_names_that_are_nearly_ours(stranger: Stranger, host: str) -> None:
    for line in ("GET / HTTP/1.1", "GET http://HOST/healthz HTTP/1.1"):
        answer = stranger.send(line, f"Host: {host}")
        assert answer.startswith(b"HTTP/1.1 403"), answer
        stranger.was_refused("this server is not")


@pytest.mark.parametrize("host", ["[::1]:1", "localhost", "LocalHost:3000", "127.9.9.9"])
def test_names_that_are_ours(stranger: Stranger, host: str) -> None:
    assert stranger.send("GET /healthz HTTP/1.1", f"Host: {host}").startswith(b"HTTP/1.1 200")


def test_two_heads_in_one(stranger: Stranger) -> None:
    cookie = stranger.sign_in()["Cookie"]
    for name, one, two in (
        ("Host", "evil.example", "HOST"),
        ("Host", "HOST", "evil.example"),
        ("Origin", "http://evil.example", "http://HOST"),
        ("Authorization", "Bearer a", "Bearer b"),
        ("Content-Type", "text/plain", "application/json"),
        ("Sec-Fetch-Site", "cross-site", "same-origin"),
    ):
        hosts = () if name == "Host" else ("Host: HOST",)
        both = (f"{name}: {one}", f"{name}: {two}")
        answer = stranger.send("GET /api/me HTTP/1.1", *hosts, f"Cookie: {cookie}", *both)
        assert answer.startswith(b"HTTP/1.1 403"), (name, answer)
        stranger.was_refused("was sent twice")


def test_requests_hidden_in_requests(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    cookie = f"Cookie: {signed_in['Cookie']}\r\nX-AO-Page: {signed_in['X-AO-Page']}"
    hidden = f"GET /api/me HTTP/1.1\r\nHost: {stranger.host}\r\n{cookie}\r\n\r\n".encode()
    login = ("POST /api/login HTTP/1.1", "Host: HOST", "Content-Type: application/json")
    chunked = "Transfer-Encoding: chunked"
    for lines, body in (
        ((*login, "Content-Length: 4", chunked), b"0\r\n\r\n" + hidden),
        ((*login, chunked, "Content-Length: 4"), b"0\r\n\r\n" + hidden),
        ((*login, "Content-Length: 2", "Content-Length: 300"), b"{}" + hidden),
        ((*login, "Transfer-Encoding: xchunked"), b"0\r\n\r\n" + hidden),
        ((*login, "Transfer-Encoding: chunked, identity"), b"0\r\n\r\n" + hidden),
        ((*login, "Transfer-Encoding : chunked"), b"0\r\n\r\n" + hidden),
        ((*login, "X: y", " Transfer-Encoding: chunked"), b"0\r\n\r\n" + hidden),
        ((*login, "Content-Length: +2"), b"{}" + hidden),
        (("CONNECT evil.example:80 HTTP/1.1", "Host: HOST"), hidden),
        (("PRI * HTTP/2.0",), b"SM\r\n\r\n" + hidden),
    ):
        answer = stranger.send(*lines, body=body, patience=0.5)
        assert b" 200 " not in answer and b'"login"' not in answer, (lines, answer)
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    answer = stranger.send("GET /healthz HTTP/1.1", "Host: HOST", *upgrade, body=hidden, patience=0.5)
    assert b" 101 " not in answer and b'"login"' not in answer


def test_what_follows_a_body_is_no_header(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    cookie = f"Cookie: {signed_in['Cookie']}\r\nX-AO-Page: {signed_in['X-AO-Page']}"
    head = ("POST /api/logout HTTP/1.1", "Host: HOST", "Content-Type: application/json", "Transfer-Encoding: chunked")
    trailer = f"2\r\n{{}}\r\n0\r\nOrigin: {stranger.url}\r\n{cookie}\r\n\r\n".encode()
    assert stranger.send(*head, body=trailer).startswith(b"HTTP/1.1 401")
    assert stranger.send(*head, cookie, body=trailer).startswith(b"HTTP/1.1 403")
    stranger.was_refused("must say its Origin")


def test_heads_and_bodies_without_end(stranger: Stranger) -> None:
    for lines in (
        ("GET /healthz HTTP/1.1", "Host: HOST", f"X: {'x' * 70_000}"),
        ("GET /healthz HTTP/1.1", "Host: HOST", *(f"X{number}: {'x' * 1000}" for number in range(80))),
        (f"GET /{'x' * 70_000} HTTP/1.1", "Host: HOST"),
    ):
        assert b"200 OK" not in stranger.send(*lines)
    answer = stranger.ask("POST", "/api/login", {"token": "x" * 10_000})
    assert answer.status == 413  # nobody who is not known has us keep much


def test_a_cookie_that_another_port_of_this_host_was_sent_changes_nothing(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in()
    page = signed_in.pop("X-AO-Page")
    other = stranger.sign_in()["X-AO-Page"]
    message = f"/api/sessions/{working}/message"
    for shown in ({}, {"X_AO_Page": ""}, {"X_AO_Page": other}, {"X_AO_Page": page[:-1]}):
        assert stranger.ask("GET", "/api/me", **signed_in, **shown).json()["role"] == "viewer"
        assert stranger.ask("POST", message, {"content": "x"}, **signed_in, **shown).status == 403
        assert stranger.ask("GET", f"/api/sessions/{working}/environment", **signed_in, **shown).status == 403
    assert stranger.ask("GET", f"/api/me?page={other}", **signed_in).json()["role"] == "viewer"
    assert stranger.ask("GET", f"/api/me?page={page}", **signed_in).json()["role"] == "admin"
    assert stranger.ask("GET", "/api/me", Authorization=f"Bearer {page}").status == 401


def test_another_port_of_this_host_cannot_sign_a_browser_out(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    name, _, _ = signed_in["Cookie"].partition("=")
    for tossed in (
        f"{name}=aol_00.x; {signed_in['Cookie']}",
        f"{signed_in['Cookie']}; {name}=aol_00.x",
        f"{name}=; {signed_in['Cookie']}",
    ):
        assert stranger.ask("GET", "/api/me", Cookie=tossed, X_AO_Page=signed_in["X-AO-Page"]).status == 200, tossed
    assert stranger.ask("GET", "/api/me", Cookie=f"{name}=aol_00.x; {name}=aol_01.y").status == 401


def test_nothing_is_kept_by_a_cache_or_taken_by_another_page(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    for path in ("/api/me", "/api/sessions", "/api/overview", "/api/none", "/openapi.json", "/"):
        headers = stranger.ask("GET", path, **signed_in).headers
        assert headers["cache-control"] in ("no-store", "no-cache"), path
        assert headers["cross-origin-resource-policy"] == "same-origin", path
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY"), path
        assert not [name for name in headers if name.lower().startswith("access-control-")], path
    answer = stranger.ask("OPTIONS", "/api/sessions", Origin=stranger.url, Access_Control_Request_Method="POST")
    assert answer.status == 401 and not [name for name in answer.headers if name.startswith("access-control-")]


def test_looking_changes_nothing(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    assert stranger.ask("GET", "/api/doctor?fix=true", **signed_in).status == 403  # as an image would ask
    stranger.was_refused("path=/api/doctor", "only looks")


def test_another_name_leads_nowhere_whoever_asks(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in()
    for path in ("/", "/healthz", "/api/sessions"):
        assert (
            stranger.ask("GET", path, **{**signed_in, "Host": "evil.example", "Origin": "http://evil.example"}).status
            == 403
        )
        stranger.was_refused(f"path={path}", "this server is not evil.example")
    assert stranger.ask("POST", "/api/login", {"code": stranger.code()}, Host="evil.example:80").status == 403
    stranger.was_refused("path=/api/login", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        stranger.terminal(working, **{**signed_in, "Host": "evil.example", "Origin": "http://evil.example"})
    assert closed.value.response.status_code == 403
    stranger.was_refused("method=WebSocket", "evil.example")


def test_a_form_of_another_site(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in()
    form = urlencode({"content": "rm -rf"}).encode()
    path = f"/api/sessions/{working}/message"
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        assert stranger.ask("POST", path, form, **signed_in, Content_Type=kind).status == 403
        stranger.was_refused("must be sent as application/json")
    assert stranger.ask("POST", path, form, **{**signed_in, "Origin": "null"}).status == 403
    stranger.was_refused("pages of null")
    without = {name: value for name, value in signed_in.items() if name != "Origin"}
    assert stranger.ask("POST", path, {"content": "x"}, **without).status == 403
    stranger.was_refused("must say its Origin")
    assert stranger.ask("POST", path, {"content": "x"}, **signed_in, Sec_Fetch_Site="cross-site").status == 403
    stranger.was_refused("pages of another site")
    assert stranger.ask("POST", "/api/login", form, Content_Type="text/plain").status == 403
    stranger.was_refused("path=/api/login")
    assert stranger.box.request("GET", f"/api/sessions/{working}/messages")["messages"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/assets/../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/%252e%252e%252f%252e%252e%252fetc%252fpasswd",
        "/..%5c..%5cetc%5cpasswd",
        "/..\\..\\etc\\passwd",
        "/..;/..;/etc/passwd",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/assets/%00/etc/passwd",
        "/.%2e/daemon.json",
    ],
)
def test_a_path_that_climbs(stranger: Stranger, path: str) -> None:
    answer = stranger.ask("GET", path)
    assert answer.status == 404 and b"root:" not in answer.body
    stranger.was_refused("no such path")


def test_an_absolute_path_is_a_view_and_no_file(stranger: Stranger) -> None:
    answer = stranger.ask("GET", "/etc/passwd")
    assert answer.status == 200 and answer.body == stranger.ask("GET", "/").body


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
            stranger.address = f"127.0.0.{next(_ADDRESSES)}"
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


def test_guessing_is_limited(stranger: Stranger) -> None:
    code = stranger.code()
    for number in range(10):
        said = dict.fromkeys(("X_Forwarded_For", "X_Real_IP", "Forwarded"), f"10.0.0.{number}")
        assert stranger.ask("POST", "/api/login", {"token": f"aot_{number}.guess"}, **said).status == 401
    answer = stranger.ask("POST", "/api/login", {"code": code}, X_Forwarded_For="127.0.0.1")
    assert answer.status == 429 and 0 < int(answer.headers["retry-after"]) <= 61
    stranger.was_refused("path=/api/login", "too many sign-ins failed")
    assert len(stranger.logged()) == 11
    Stranger(stranger.box, f"127.0.0.{next(_ADDRESSES)}").sign_in(code=code)  # nobody else waits


def test_a_flood_does_not_fill_the_log(stranger: Stranger) -> None:
    for _ in range(80):
        assert stranger.ask("GET", "/api/sessions").status == 401
    assert len(stranger.logged()) == 60
    more = [line for line in stranger.box.home.log.read_text().splitlines() if f"peer={stranger.address}" in line]
    assert len(more) == 61 and "more often than is written down" in more[-1]


def test_what_is_refused_tells_nobody_what_there_is(stranger: Stranger) -> None:
    guesses = [
        stranger.ask("GET", path, Authorization=f"Bearer {token}").body
        for path in ("/api/sessions/app-w", "/api/sessions/none", "/api/none")
        for token in ("aot_00000000.x", "aot_.", "aos_app-w.1.x", "aos_none.1.x", "aol_x.x", "x")
    ]
    assert len({*guesses}) == 1  # neither which paths and sessions there are, nor what kind of token was nearly right


def test_what_is_logged_cannot_draw_on_the_readers_terminal(stranger: Stranger) -> None:
    evil = 'http://x\x1b[2J\u202e level=info event=fake "quoted\\'
    assert stranger.ask("GET", "/api/me", Origin=evil.encode().decode("latin-1")).status == 400  # no header at all
    assert stranger.ask("GET", "/api/me", Origin='http://x level=info event=fake "quoted\\ \xa0\x85').status == 403
    (line,) = stranger.logged()
    assert 'reason="pages of http://x level=info event=fake \\"quoted\\' in line and "\x85" not in line
    assert stranger.ask("GET", "/%1b%5b2J%0aevent=fake").status == 404
    stranger.was_refused("path=/%1B%5B2J%0Aevent%3Dfake")
    assert "\x1b" not in stranger.box.home.log.read_text()


def test_signing_out_and_revoking_end_it(stranger: Stranger) -> None:
    signed_in = stranger.sign_in()
    assert stranger.ask("POST", "/api/logout", {}, **signed_in).status == 204
    assert stranger.ask("GET", "/api/sessions", **signed_in).status == 401
    stranger.was_refused("no longer, valid")
    second = stranger.sign_in(token=stranger.token("admin"))
    assert stranger.ask("GET", "/api/sessions", **second).status == 200
    listed = stranger.box.ao("token", "list").stdout
    assert re.search(rf"login +admin-{stranger.address} +admin", listed), listed
    stranger.box.ao("token", "revoke", f"admin-{stranger.address}")
    assert stranger.ask("GET", "/api/sessions", **second).status == 401
    stranger.was_refused("path=/api/sessions", "no longer, valid")
    assert stranger.address not in stranger.box.ao("token", "list").stdout


def test_a_revoked_token_ends_the_streams_of_browsers_that_came_by_it(stranger: Stranger, working: str) -> None:
    signed_in = stranger.sign_in(token=stranger.token("viewer"))
    name, _, port = stranger.host.partition(":")
    stream = http.client.HTTPConnection(name, int(port), timeout=60)
    stream.request("GET", "/api/live", headers=signed_in)
    live = stream.getresponse()
    assert live.status == 200 and live.read(10)
    with stranger.terminal(working, **signed_in) as terminal:
        assert terminal.recv(60) is not None
        stranger.box.ao("token", "revoke", f"viewer-{stranger.address}")
        live.read()  # to its end
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                terminal.recv(60)
    assert closed.value.rcvd is not None and (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "signed out")
    stream.close()


def test_one_browser_is_signed_out_by_its_id(stranger: Stranger) -> None:
    known = {entry["id"] for entry in stranger.box.json("token", "list")["tokens"]}
    signed_in = stranger.sign_in()
    (mine,) = [entry for entry in stranger.box.json("token", "list")["tokens"] if entry["id"] not in known]
    assert (mine["kind"], mine["role"], mine["expiresAt"] > mine["createdAt"]) == ("login", "admin", True)
    stranger.box.ao("token", "revoke", mine["id"])
    assert stranger.ask("GET", "/api/me", **signed_in).status == 401
    stranger.was_refused("path=/api/me")


# -- beyond the loopback -----------------------------------------------------------------------------------------------


@pytest.fixture
def off(tmp_path: Path) -> Iterator[Sandbox]:
    """No daemon yet."""
    with Sandbox(tmp_path) as box:
        box.repository()
        box.home.make()
        yield box


def test_an_address_that_others_reach_needs_tls_or_a_word(off: Sandbox) -> None:
    remedy = ("0.0.0.0", "--tls", "--tls-cert", "--insecure")
    refused(off.ao("start", "--host", "0.0.0.0", "--port", "0", check=False), 4, *remedy)
    off.home.config.write_text("host: 0.0.0.0\nport: 0\n")
    refused(off.ao("status", check=False), 4, *remedy)
    (off.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo}\ntls: {insecure: true}\n")
    refused(off.ao("start", "--no-open", check=False), 4, *remedy)  # it may have come with the repository
    off.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {insecure: true}\n")
    assert "http://127.0.0.1:" in off.ao("start", "--no-open").stdout


def test_a_certificate_of_its_own_is_made_once_and_shown(off: Sandbox) -> None:
    said = off.ao("start", "--host", "0.0.0.0", "--port", "0", "--tls").stdout
    info = json.loads(off.home.info.read_text())
    assert info["url"].startswith("https://") and info["fingerprint"] in said and f"{info['url']}/#login=" in said
    folder = off.home.path / "tls"
    assert (folder.stat().st_mode & 0o777, (folder / "key.pem").stat().st_mode & 0o777) == (0o700, 0o600)
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    host, _, port = info["url"].partition("://")[2].partition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
    code = off.request("POST", "/api/login-links", {})["url"].partition("#login=")[2]
    connection.request("POST", "/api/login", json.dumps({"code": code}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    value, *attributes = answer.headers["set-cookie"].split("; ")
    page = json.loads(answer.read())["page"]
    assert value.startswith(f"__Host-ao_session_{port}=") and "Secure" in attributes
    connection.request("GET", "/api/me", headers={"Cookie": value, "X-AO-Page": page})
    assert json.loads(connection.getresponse().read())["kind"] == "login"
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection(host, int(port), timeout=60).request("GET", "/healthz")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        Stranger(off, "127.0.0.9").ask("GET", "/healthz")  # without TLS
    off.ao("shutdown")
    off.home.config.write_text("host: 0.0.0.0\nport: 0\ntls: {own: true}\n")
    off.ao("status")
    assert json.loads(off.home.info.read_text())["fingerprint"] == info["fingerprint"]


def test_a_certificate_that_is_given(off: Sandbox, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    refused(
        off.ao("start", "--tls-cert", str(cert), "--tls-key", str(key), check=False), 4, str(cert), "cannot be used"
    )
    refused(off.ao("start", "--tls-cert", str(cert), check=False), 4, "--tls-key")
    off.ao("start", "--tls", "--port", "0")
    off.ao("shutdown")
    for path in (cert, key):
        path.write_bytes((off.home.path / "tls" / path.name).read_bytes())
    said = off.ao("start", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key)).stdout
    assert "https://127.0.0.1" in said and "SHA-256" not in said
    refused(off.ao("start", "--port", "1", check=False), 1, "already runs at https://")
