"""Requests of other origins, by other names, hidden in others, too long, or with paths that climb: refused and logged."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from websockets.exceptions import InvalidStatus

from tests.acceptance.server.security.stranger import Stranger


def test_numbers_without_an_end_are_refused_and_are_no_fault(stranger: Stranger, working: str) -> None:
    hands, long = f"Bearer {stranger.token('operator')}", "9" * 5000
    for path in ("/api/events", f"/api/sessions/{working}/events"):
        assert stranger.ask("GET", f"{path}?after={10**30}", Authorization=hands).status == 422
    for path in ("/api/events", "/api/live"):
        followed = {"Accept": "text/event-stream", "Last-Event-ID": long, "Authorization": hands}
        assert stranger.ask("GET", path, **followed).status == 422
    assert stranger.ask("POST", "/api/sessions", {"projectId": "app", "issue": long}, Authorization=hands).status < 500


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
