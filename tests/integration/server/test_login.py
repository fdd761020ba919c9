"""Sign-ins by one-time link and by token, the rights of the cookie, and the end of a sign-in."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from agent_orchestrator.base.api_tokens import SIGN_IN_DAYS
from agent_orchestrator.server.access.logins import MAX_FAILURES, InvalidLogin, TooManyFailures
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.doubles import PlainAnswer, PlainClient
from tests.integration.server.test_terminal import connect_terminal, read_until

pytestmark = pytest.mark.anyio

WRITE_REQUEST = ("POST", "/api/sessions/app-fix/message", {"content": "hello"})
STREAM = {"Accept": "text/event-stream"}


async def new_login_code(world: ServerWorld, **body: str) -> str:
    login_link = await world.unix.ask("POST", "/api/login-links", body or None)
    assert login_link.status == 201, login_link.body
    return str(login_link.json()["url"]).partition("#login=")[2]


async def sign_in(world: ServerWorld, **body: str) -> PlainAnswer:
    return await world.tcp().ask("POST", "/api/login", body, {"Origin": world.url})


def session_cookie(answer: PlainAnswer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def browser_headers(world: ServerWorld, answer: PlainAnswer) -> dict[str, str]:
    """Return the headers that the dashboard sends after a sign-in."""
    assert answer.status == 200, answer.body
    return {"Cookie": f"theme=dark; {session_cookie(answer)}", "Origin": world.url, "X-AO-Page": answer.json()["page"]}


async def test_a_link_signs_in_one_browser_with_a_restricted_cookie(world: ServerWorld) -> None:
    code = await new_login_code(world)
    answer = await sign_in(world, code=code)
    identity = {"kind": "login", "role": "admin", "name": "browser", "version": "9.9.9"}
    assert answer.json() == {**identity, "page": answer.json()["page"]}
    value, *attributes = answer.headers["set-cookie"].split("; ")
    assert value.startswith(f"ao_session_{world.port}=aol_")
    assert sorted(attributes) == ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=strict"]
    me = await world.tcp().ask("GET", "/api/me", headers=browser_headers(world, answer))
    assert (me.status, me.json()["kind"]) == (200, "login")
    again = await sign_in(world, code=code)
    assert (again.status, "used already" in again.json()["detail"]) == (401, True)


async def test_a_link_carries_its_code_in_the_url_fragment(world: ServerWorld) -> None:
    login_link = (await world.unix.ask("POST", "/api/login-links")).json()
    code = login_link["url"].partition("#login=")[2]
    assert len(code) >= 40 and login_link["expiresAt"].endswith("Z")
    over_tcp = (await world.tcp("admin").ask("POST", "/api/login-links", {})).json()["url"]
    assert over_tcp.startswith(f"{world.url}/#login=")


async def test_a_link_expires_after_two_minutes(world: ServerWorld) -> None:
    code = await new_login_code(world)
    world.services.now += 119
    fresh = await new_login_code(world)
    world.services.now += 1
    assert (await sign_in(world, code=code)).status == 401
    assert (await sign_in(world, code=fresh)).status == 200


async def test_only_an_administrator_creates_links_and_they_grant_the_named_role(world: ServerWorld) -> None:
    for role in ("viewer", "operator"):
        assert (await world.tcp(role).ask("POST", "/api/login-links", {})).status == 403
    assert (await world.tcp().ask("POST", "/api/login-links", {})).status == 401
    signed_in = browser_headers(world, await sign_in(world, code=await new_login_code(world, role="viewer")))
    assert (await world.tcp().ask("GET", "/api/sessions/app-fix", headers=signed_in)).status == 200
    assert (await world.tcp().ask(*WRITE_REQUEST, headers=signed_in)).status == 403


@pytest.mark.parametrize(("role", "expected"), [("viewer", 403), ("operator", 202), ("admin", 202)])
async def test_a_token_signs_in_with_its_role_until_it_is_revoked(world: ServerWorld, role: str, expected: int) -> None:
    id_, token = world.services.tokens.create("mine", role)
    signed_in = browser_headers(world, await sign_in(world, token=token))
    assert (await world.tcp().ask(*WRITE_REQUEST, headers=signed_in)).status == expected
    assert [entry["kind"] for entry in world.services.tokens.list()] == ["token", "login"]
    world.services.tokens.revoke(id_)
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 401
    assert world.services.tokens.list() == []


async def test_the_command_lines_token_signs_in_until_it_is_replaced(world: ServerWorld) -> None:
    answer = await sign_in(world, token=world.services.tokens.cli_token())
    secret = session_cookie(answer).partition("=")[2]
    assert world.services.tokens.check_sign_in(secret) is not None
    world.services.home.token.write_text("aoc_another\n")
    world.services.tokens._cli = None
    assert world.services.tokens.check_sign_in(secret) is None


async def test_a_sign_in_ends_after_thirty_days(world: ServerWorld) -> None:
    signed_in = browser_headers(world, await sign_in(world, code=await new_login_code(world)))
    world.services.now += 30 * 86_400 - 1
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 200
    world.services.now += 2
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 401
    assert world.services.tokens.list() == []


async def test_signing_out_or_signing_in_again_ends_a_sign_in(world: ServerWorld) -> None:
    first = browser_headers(world, await sign_in(world, code=await new_login_code(world, role="viewer")))
    out = await world.tcp().ask("POST", "/api/logout", {}, first)
    assert (out.status, "Max-Age=0" in out.headers["set-cookie"]) == (204, True)
    assert (await world.tcp().ask("GET", "/api/me", headers=first)).status == 401
    second = browser_headers(world, await sign_in(world, code=await new_login_code(world)))
    third = await world.tcp().ask("POST", "/api/login", {"code": await new_login_code(world)}, second)
    assert third.status == 200
    assert (await world.tcp().ask("GET", "/api/me", headers=second)).status == 401
    assert len(world.services.tokens.list()) == 1


async def test_stored_files_contain_no_usable_secret(world: ServerWorld) -> None:
    answer = await sign_in(world, code=await new_login_code(world))
    stored = (world.services.home.path / "tokens.json").read_text()
    assert session_cookie(answer).partition("=")[2] not in stored
    assert json.loads(stored)["tokens"][0]["kind"] == "login"


@pytest.mark.parametrize(
    "body",
    [{}, {"code": "x", "token": "y"}, {"code": 7}, {"password": "x"}, {"token": "x" * 1001}, [], "code"],
)
async def test_a_malformed_sign_in_does_not_count_as_a_failure(world: ServerWorld, body: object) -> None:
    for _ in range(11):
        assert (await world.tcp().ask("POST", "/api/login", body)).status == 422


@pytest.mark.parametrize("token", ["", "aot_x.y", "aoc_guess", "ünknown", "session", "login"])
async def test_invalid_tokens_cannot_sign_in(world: ServerWorld, token: str) -> None:
    if token == "session":
        token = world.services.tokens.for_session("app-fix", 1)
    elif token == "login":
        token = session_cookie(await sign_in(world, code=await new_login_code(world))).partition("=")[2]
    answer = await sign_in(world, token=token)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert "ao dashboard" in answer.json()["remedy"]


async def test_failed_sign_ins_delay_further_attempts(world: ServerWorld) -> None:
    code = await new_login_code(world)
    for _ in range(10):
        assert (await sign_in(world, code="guess")).status == 401
    refused = await sign_in(world, code=code)
    assert (refused.status, refused.headers["retry-after"]) == (429, "61")
    world.services.now += 61
    assert (await sign_in(world, code=code)).status == 200


async def test_failures_of_another_local_user_do_not_lock_out_others(world: ServerWorld) -> None:
    if os.geteuid() != 0 or not Path("/proc/net/tcp").exists():
        pytest.skip("only root may ask as another user, where the kernel tells whose a connection is")
    code = await new_login_code(world)
    os.seteuid(65_534)
    try:
        for _ in range(MAX_FAILURES):
            assert (await sign_in(world, code="guess")).status == 401
        assert (await sign_in(world, code="guess")).status == 429
    finally:
        os.seteuid(0)
    assert (await sign_in(world, code=code)).status == 200


async def test_failures_are_counted_per_user_of_an_address(world: ServerWorld) -> None:
    logins = world.services.logins
    for _ in range(MAX_FAILURES):
        with pytest.raises(InvalidLogin):
            logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=1001)
    with pytest.raises(TooManyFailures):
        logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=1001)
    for user in (1000, None):
        with pytest.raises(InvalidLogin):
            logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=user)


async def test_failures_are_counted_per_ipv6_network(world: ServerWorld) -> None:
    logins = world.services.logins
    for number in range(MAX_FAILURES):
        with pytest.raises(InvalidLogin):
            logins.sign_in(f"2001:db8::{number}", code=None, token="aot_0.x")
    for peer in ("2001:db8::ffff:1", "2001:db8:0:0:1:2:3:4"):
        with pytest.raises(TooManyFailures):
            logins.sign_in(peer, code=None, token="aot_0.x")
    for peer in ("2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.2"):
        with pytest.raises(InvalidLogin):
            logins.sign_in(peer, code=None, token="aot_0.x")


async def test_pending_unauthenticated_bodies_are_limited_without_blocking_sign_ins(world: ServerWorld) -> None:
    head = b"POST /api/webhooks/github HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    pending = [await world.tcp().open() for _ in range(16)]
    async with asyncio.timeout(60):
        for _, writer in pending:
            writer.write(head)
        while (await world.tcp().ask("POST", "/api/webhooks/github", {})).status != 503:
            pass
        assert (await world.tcp("viewer").get("/api/me")).status == 200
        assert (await sign_in(world, token="x")).status == 401
        assert (await sign_in(world, token="x" * 9000)).status == 413, "unauthenticated bodies are limited"
        for _, writer in pending:
            writer.close()
            await writer.wait_closed()
        while (await world.tcp().ask("POST", "/api/webhooks/github", {})).status == 503:
            pass


async def test_cookies_and_tokens_are_not_interchangeable(world: ServerWorld) -> None:
    answer = await sign_in(world, code=await new_login_code(world))
    secret, page = session_cookie(answer).partition("=")[2], answer.json()["page"]
    assert (await world.tcp(token=secret).get("/api/me")).status == 401
    token = world.services.tokens.create("x", "admin")[1]
    name = f"ao_session_{world.port}"
    assert (await world.tcp().get("/api/me", Cookie=f"{name}={token}", X_AO_Page=page)).status == 401
    assert (await world.tcp().get("/api/me", Cookie=f"{name}={secret}; other=1", X_AO_Page=page)).status == 200


async def test_a_change_by_cookie_must_come_from_the_dashboard(world: ServerWorld) -> None:
    signed_in = browser_headers(world, await sign_in(world, code=await new_login_code(world)))
    client, calls = world.tcp(), world.services.sessions.calls
    header_sets = [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": ""},
    ]
    for more in header_sets:
        assert (await client.ask(*WRITE_REQUEST, headers={**signed_in, **more})).status == 403, more
    assert (await client.ask("DELETE", "/api/sessions/app-fix", headers={**signed_in, "Origin": ""})).status == 403
    assert not any(call[0] in ("send", "stop") for call in calls)
    assert (await client.ask(*WRITE_REQUEST, headers=signed_in)).status == 202
    assert (await client.ask("DELETE", "/api/sessions/app-fix", headers=signed_in)).status == 200


async def test_a_sign_in_must_come_from_the_dashboard(world: ServerWorld) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "text/plain"},
    ):
        answer = await world.tcp().ask("POST", "/api/login", {"code": await new_login_code(world)}, headers)
        assert (answer.status, "set-cookie" in answer.headers) == (403, False), headers
    assert (await world.tcp().get("/api/login")).status == 401


async def test_signing_out_closes_streams_and_terminals(world: ServerWorld) -> None:
    signed_in = browser_headers(world, await sign_in(world, code=await new_login_code(world)))
    _, reader, writer = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    async with connect_terminal(world, None, **signed_in) as socket:
        await socket.send(b"hello\n")
        await read_until(socket, "hello\r\nhello\r\n")
        assert (await world.tcp().ask("POST", "/api/logout", {}, signed_in)).status == 204
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    async with asyncio.timeout(60):
        assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()


async def test_an_expired_sign_in_closes_its_streams_and_terminals(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(world.services.tokens, "_clock", lambda: now)
    signed_in = browser_headers(world, await sign_in(world, code=await new_login_code(world)))
    now += SIGN_IN_DAYS * 86_400 - 0.01
    _, reader, writer = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    async with connect_terminal(world, None, **signed_in) as socket:
        await socket.send(b"hello\n")
        await read_until(socket, "hello\r\nhello\r\n")
        await world.services.feed.add("still there?")
        while b"still there?" not in await reader.readline():
            pass
        now += 0.01
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionClosed) as closed:
                await read_until(socket, "never")
            assert (await reader.read()).endswith(b"0\r\n\r\n")
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "signed out")
    writer.close()


async def test_a_revoked_token_closes_only_its_own_streams(world: ServerWorld) -> None:
    own_token, other_token = (
        world.services.tokens.create("mine", "viewer")[1],
        world.services.tokens.create("other", "viewer")[1],
    )
    _, ending, first_writer = await world.tcp(token=own_token).begin("GET", "/api/events", headers=STREAM)
    signed_in = browser_headers(world, await sign_in(world, token=own_token))
    _, of_browser, third_writer = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    _, going_on, second_writer = await world.tcp(token=other_token).begin("GET", "/api/events", headers=STREAM)
    world.services.tokens.revoke("mine")
    async with asyncio.timeout(60):
        assert (await ending.read()).endswith(b"0\r\n\r\n")
        assert (await of_browser.read()).endswith(b"0\r\n\r\n")
        await world.services.feed.add("still there?")
        while b"still there?" not in await going_on.readline():
            pass
    for writer in (first_writer, second_writer, third_writer):
        writer.close()


async def test_a_viewer_can_watch_a_terminal_but_not_type(world: ServerWorld) -> None:
    world.services.session_details.argv = ["sh", "-c", "echo watched; exec cat"]
    async with connect_terminal(world, world.services.tokens.create("eye", "viewer")[1]) as socket:
        await read_until(socket, "watched")
        await socket.send(json.dumps({"resize": [100, 20]}))
        await socket.send(b"rm -rf\n")
        with pytest.raises(ConnectionClosed) as closed:
            while b"rm" not in await socket.recv():
                pass
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_an_agents_token_is_identified_as_a_session(world: ServerWorld) -> None:
    client = PlainClient(world.port, world.services.tokens.for_session("app-fix", 1))
    assert (await client.get("/api/me")).json()["kind"] == "session"
    assert (await client.ask("POST", "/api/logout", {})).status == 403


async def test_tokens_of_nodes_and_sessions_cannot_sign_in(world: ServerWorld) -> None:
    tokens = world.services.tokens
    of_session = tokens.for_session("app-fix", 1), tokens.for_upload("app-fix", 1)
    for token in (tokens.for_node("n1"), tokens.create_for_node("n2")[1], *of_session):
        answer = await sign_in(world, token=token)
        assert (answer.status, "set-cookie" in answer.headers) == (401, False), answer.body


async def test_unknown_paths_neither_redirect_nor_leave_an_audit_entry(world: ServerWorld) -> None:
    for path in ("/api/webhooks/github/", "/api/webhooks/x%0A1%20%20root/", "/api/webhooks/github/x"):
        answer = await world.tcp().ask("POST", path, {}, {"Host": "evil.example"})
        assert (answer.status, answer.headers.get("location")) == (404, None)
    assert (await world.tcp("viewer").get("/api/sessions/")).status == 404
    assert world.services.audit.entries == []
