"""Requests from other origins, to other host names, smuggled, oversized or with traversing paths are refused and logged."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from websockets.exceptions import InvalidStatus

from tests.acceptance.server.security.tcp_client import TcpClient


def test_huge_numbers_are_refused_without_a_server_error(tcp_client: TcpClient, working_session: str) -> None:
    authorization, huge_number = f"Bearer {tcp_client.token('operator')}", "9" * 5000
    for path in ("/api/events", f"/api/sessions/{working_session}/events"):
        assert tcp_client.ask("GET", f"{path}?after={10**30}", Authorization=authorization).status == 422
    for path in ("/api/events", "/api/live"):
        followed = {"Accept": "text/event-stream", "Last-Event-ID": huge_number, "Authorization": authorization}
        assert tcp_client.ask("GET", path, **followed).status == 422
    assert (
        tcp_client.ask(
            "POST", "/api/sessions", {"projectId": "app", "issue": huge_number}, Authorization=authorization
        ).status
        < 500
    )


def test_requests_of_another_origin_are_refused(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in()
    evil = {**signed_in, "Origin": "http://evil.example"}
    assert tcp_client.ask("GET", "/api/sessions", **evil).status == 403
    tcp_client.assert_last_refusal("path=/api/sessions", "pages of http://evil.example may not use this server")
    assert tcp_client.ask("POST", f"/api/sessions/{working_session}/message", {"content": "x"}, **evil).status == 403
    tcp_client.assert_last_refusal("method=POST", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        tcp_client.terminal(working_session, **evil)
    assert closed.value.response.status_code == 403
    tcp_client.assert_last_refusal("method=WebSocket", "/terminal", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        tcp_client.terminal(
            working_session, Cookie=signed_in["Cookie"], X_AO_Page=signed_in["X-AO-Page"]
        )  # browsers always send it
    assert closed.value.response.status_code == 403
    tcp_client.assert_last_refusal("method=WebSocket", "must say its Origin")


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
def test_origins_similar_to_ours_are_refused(tcp_client: TcpClient, origin: str) -> None:
    cookie = tcp_client.sign_in()["Cookie"]
    answer = tcp_client.send("GET /api/me HTTP/1.1", "Host: HOST", f"Cookie: {cookie}", f"Origin: {origin}")
    assert answer.startswith(b"HTTP/1.1 403"), answer
    tcp_client.assert_last_refusal("path=/api/me", "may not use this server")


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
def test_host_names_similar_to_ours_are_refused(tcp_client: TcpClient, host: str) -> None:
    for line in ("GET / HTTP/1.1", "GET http://HOST/healthz HTTP/1.1"):
        answer = tcp_client.send(line, f"Host: {host}")
        assert answer.startswith(b"HTTP/1.1 403"), answer
        tcp_client.assert_last_refusal("this server is not")


@pytest.mark.parametrize("host", ["[::1]:1", "localhost", "LocalHost:3000", "127.9.9.9"])
def test_our_host_names_are_accepted(tcp_client: TcpClient, host: str) -> None:
    assert tcp_client.send("GET /healthz HTTP/1.1", f"Host: {host}").startswith(b"HTTP/1.1 200")


def test_duplicate_headers_are_refused(tcp_client: TcpClient) -> None:
    cookie = tcp_client.sign_in()["Cookie"]
    for name, first, second in (
        ("Host", "evil.example", "HOST"),
        ("Host", "HOST", "evil.example"),
        ("Origin", "http://evil.example", "http://HOST"),
        ("Authorization", "Bearer a", "Bearer b"),
        ("Content-Type", "text/plain", "application/json"),
        ("Sec-Fetch-Site", "cross-site", "same-origin"),
    ):
        hosts = () if name == "Host" else ("Host: HOST",)
        both = (f"{name}: {first}", f"{name}: {second}")
        answer = tcp_client.send("GET /api/me HTTP/1.1", *hosts, f"Cookie: {cookie}", *both)
        assert answer.startswith(b"HTTP/1.1 403"), (name, answer)
        tcp_client.assert_last_refusal("was sent twice")


def test_smuggled_requests_are_not_executed(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    cookie = f"Cookie: {signed_in['Cookie']}\r\nX-AO-Page: {signed_in['X-AO-Page']}"
    hidden = f"GET /api/me HTTP/1.1\r\nHost: {tcp_client.host}\r\n{cookie}\r\n\r\n".encode()
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
        answer = tcp_client.send(*lines, body=body, quiet_seconds=0.5)
        assert b" 200 " not in answer and b'"login"' not in answer, (lines, answer)
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    answer = tcp_client.send("GET /healthz HTTP/1.1", "Host: HOST", *upgrade, body=hidden, quiet_seconds=0.5)
    assert b" 101 " not in answer and b'"login"' not in answer


def test_trailers_are_not_read_as_headers(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    cookie = f"Cookie: {signed_in['Cookie']}\r\nX-AO-Page: {signed_in['X-AO-Page']}"
    head = ("POST /api/logout HTTP/1.1", "Host: HOST", "Content-Type: application/json", "Transfer-Encoding: chunked")
    trailer = f"2\r\n{{}}\r\n0\r\nOrigin: {tcp_client.url}\r\n{cookie}\r\n\r\n".encode()
    assert tcp_client.send(*head, body=trailer).startswith(b"HTTP/1.1 401")
    assert tcp_client.send(*head, cookie, body=trailer).startswith(b"HTTP/1.1 403")
    tcp_client.assert_last_refusal("must say its Origin")


def test_oversized_heads_and_bodies_are_refused(tcp_client: TcpClient) -> None:
    for lines in (
        ("GET /healthz HTTP/1.1", "Host: HOST", f"X: {'x' * 70_000}"),
        ("GET /healthz HTTP/1.1", "Host: HOST", *(f"X{number}: {'x' * 1000}" for number in range(80))),
        (f"GET /{'x' * 70_000} HTTP/1.1", "Host: HOST"),
    ):
        assert b"200 OK" not in tcp_client.send(*lines)
    answer = tcp_client.ask("POST", "/api/login", {"token": "x" * 10_000})
    assert answer.status == 413  # unauthenticated bodies are limited


def test_a_cookie_without_its_page_secret_is_read_only(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in()
    page = signed_in.pop("X-AO-Page")
    other = tcp_client.sign_in()["X-AO-Page"]
    message = f"/api/sessions/{working_session}/message"
    for page_headers in ({}, {"X_AO_Page": ""}, {"X_AO_Page": other}, {"X_AO_Page": page[:-1]}):
        assert tcp_client.ask("GET", "/api/me", **signed_in, **page_headers).json()["role"] == "viewer"
        assert tcp_client.ask("POST", message, {"content": "x"}, **signed_in, **page_headers).status == 403
        assert (
            tcp_client.ask("GET", f"/api/sessions/{working_session}/environment", **signed_in, **page_headers).status
            == 403
        )
    assert tcp_client.ask("GET", f"/api/me?page={other}", **signed_in).json()["role"] == "viewer"
    assert tcp_client.ask("GET", f"/api/me?page={page}", **signed_in).json()["role"] == "admin"
    assert tcp_client.ask("GET", "/api/me", Authorization=f"Bearer {page}").status == 401


def test_cookies_tossed_by_another_port_do_not_sign_a_browser_out(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    name, _, _ = signed_in["Cookie"].partition("=")
    for cookies in (
        f"{name}=aol_00.x; {signed_in['Cookie']}",
        f"{signed_in['Cookie']}; {name}=aol_00.x",
        f"{name}=; {signed_in['Cookie']}",
    ):
        assert tcp_client.ask("GET", "/api/me", Cookie=cookies, X_AO_Page=signed_in["X-AO-Page"]).status == 200, cookies
    assert tcp_client.ask("GET", "/api/me", Cookie=f"{name}=aol_00.x; {name}=aol_01.y").status == 401


def test_responses_forbid_caching_and_use_by_other_sites(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    for path in ("/api/me", "/api/sessions", "/api/overview", "/api/none", "/openapi.json", "/"):
        headers = tcp_client.ask("GET", path, **signed_in).headers
        assert headers["cache-control"] in ("no-store", "no-cache"), path
        assert headers["cross-origin-resource-policy"] == "same-origin", path
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY"), path
        assert not [name for name in headers if name.lower().startswith("access-control-")], path
    answer = tcp_client.ask("OPTIONS", "/api/sessions", Origin=tcp_client.url, Access_Control_Request_Method="POST")
    assert answer.status == 401 and not [name for name in answer.headers if name.startswith("access-control-")]


def test_get_requests_change_nothing(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    assert (
        tcp_client.ask("GET", "/api/doctor?fix=true", **signed_in).status == 403
    )  # as an embedded image would request it
    tcp_client.assert_last_refusal("path=/api/doctor", "only looks")


def test_another_host_name_is_refused_even_when_signed_in(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in()
    for path in ("/", "/healthz", "/api/sessions"):
        assert (
            tcp_client.ask("GET", path, **{**signed_in, "Host": "evil.example", "Origin": "http://evil.example"}).status
            == 403
        )
        tcp_client.assert_last_refusal(f"path={path}", "this server is not evil.example")
    assert (
        tcp_client.ask("POST", "/api/login", {"code": tcp_client.sign_in_code()}, Host="evil.example:80").status == 403
    )
    tcp_client.assert_last_refusal("path=/api/login", "evil.example")
    with pytest.raises(InvalidStatus) as closed:
        tcp_client.terminal(working_session, **{**signed_in, "Host": "evil.example", "Origin": "http://evil.example"})
    assert closed.value.response.status_code == 403
    tcp_client.assert_last_refusal("method=WebSocket", "evil.example")


def test_forms_of_other_sites_are_refused(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in()
    form = urlencode({"content": "rm -rf"}).encode()
    path = f"/api/sessions/{working_session}/message"
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        assert tcp_client.ask("POST", path, form, **signed_in, Content_Type=kind).status == 403
        tcp_client.assert_last_refusal("must be sent as application/json")
    assert tcp_client.ask("POST", path, form, **{**signed_in, "Origin": "null"}).status == 403
    tcp_client.assert_last_refusal("pages of null")
    without = {name: value for name, value in signed_in.items() if name != "Origin"}
    assert tcp_client.ask("POST", path, {"content": "x"}, **without).status == 403
    tcp_client.assert_last_refusal("must say its Origin")
    assert tcp_client.ask("POST", path, {"content": "x"}, **signed_in, Sec_Fetch_Site="cross-site").status == 403
    tcp_client.assert_last_refusal("pages of another site")
    assert tcp_client.ask("POST", "/api/login", form, Content_Type="text/plain").status == 403
    tcp_client.assert_last_refusal("path=/api/login")
    assert tcp_client.box.request("GET", f"/api/sessions/{working_session}/messages")["messages"] == []


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
def test_traversing_paths_are_refused(tcp_client: TcpClient, path: str) -> None:
    answer = tcp_client.ask("GET", path)
    assert answer.status == 404 and b"root:" not in answer.body
    tcp_client.assert_last_refusal("no such path")


def test_an_absolute_path_shows_the_dashboard_and_no_file(tcp_client: TcpClient) -> None:
    answer = tcp_client.ask("GET", "/etc/passwd")
    assert answer.status == 200 and answer.body == tcp_client.ask("GET", "/").body


def test_a_flood_does_not_fill_the_log(tcp_client: TcpClient) -> None:
    for _ in range(80):
        assert tcp_client.ask("GET", "/api/sessions").status == 401
    assert len(tcp_client.refusal_lines()) == 60
    more = [line for line in tcp_client.box.home.log.read_text().splitlines() if f"peer={tcp_client.address}" in line]
    assert len(more) == 61 and "more often than is written down" in more[-1]


def test_refusals_do_not_reveal_what_exists(tcp_client: TcpClient) -> None:
    guesses = [
        tcp_client.ask("GET", path, Authorization=f"Bearer {token}").body
        for path in ("/api/sessions/app-w", "/api/sessions/none", "/api/none")
        for token in ("aot_00000000.x", "aot_.", "aos_app-w.1.x", "aos_none.1.x", "aol_x.x", "x")
    ]
    assert len({*guesses}) == 1  # neither existing paths and sessions nor the kind of token can be guessed


def test_log_lines_contain_no_control_characters(tcp_client: TcpClient) -> None:
    evil = 'http://x\x1b[2J\u202e level=info event=fake "quoted\\'
    assert tcp_client.ask("GET", "/api/me", Origin=evil.encode().decode("latin-1")).status == 400  # not a valid header
    assert tcp_client.ask("GET", "/api/me", Origin='http://x level=info event=fake "quoted\\ \xa0\x85').status == 403
    (line,) = tcp_client.refusal_lines()
    assert 'reason="pages of http://x level=info event=fake \\"quoted\\' in line and "\x85" not in line
    assert tcp_client.ask("GET", "/%1b%5b2J%0aevent=fake").status == 404
    tcp_client.assert_last_refusal("path=/%1B%5B2J%0Aevent%3Dfake")
    assert "\x1b" not in tcp_client.box.home.log.read_text()
