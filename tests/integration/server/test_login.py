"""Signing in: by a link that is good once, by a token; what the cookie opens, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from agent_orchestrator.config.tokens import SIGN_IN_DAYS
from agent_orchestrator.server.access.logins import FAILURES, InvalidLogin, TooManyFailures
from tests.integration.server.conftest import World
from tests.integration.server.doubles import Answer, Client
from tests.integration.server.test_terminal import read_until, terminal

pytestmark = pytest.mark.anyio

WORK = ("POST", "/api/sessions/app-fix/message", {"content": "hello"})
STREAM = {"Accept": "text/event-stream"}


async def link(world: World, **body: str) -> str:
    made = await world.unix.ask("POST", "/api/login-links", body or None)
    assert made.status == 201, made.body
    return str(made.json()["url"]).partition("#login=")[2]


async def enter(world: World, **body: str) -> Answer:
    return await world.tcp().ask("POST", "/api/login", body, {"Origin": world.url})


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def browser(world: World, answer: Answer) -> dict[str, str]:
    """What a page of ours sends."""
    assert answer.status == 200, answer.body
    return {"Cookie": f"theme=dark; {cookie_of(answer)}", "Origin": world.url, "X-AO-Page": answer.json()["page"]}


async def test_a_link_signs_in_one_browser_and_its_cookie_is_for_the_daemon_alone(world: World) -> None:
    code = await link(world)
    answer = await enter(world, code=code)
    who = {"kind": "login", "role": "admin", "name": "browser", "version": "9.9.9"}
    assert answer.json() == {**who, "page": answer.json()["page"]}
    value, *attributes = answer.headers["set-cookie"].split("; ")
    assert value.startswith(f"ao_session_{world.port}=aol_")
    assert sorted(attributes) == ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=strict"]
    known = await world.tcp().ask("GET", "/api/me", headers=browser(world, answer))
    assert (known.status, known.json()["kind"]) == (200, "login")
    again = await enter(world, code=code)
    assert (again.status, "used already" in again.json()["detail"]) == (401, True)


async def test_a_link_carries_its_code_where_no_server_sees_it(world: World) -> None:
    made = (await world.unix.ask("POST", "/api/login-links")).json()
    code = made["url"].partition("#login=")[2]
    assert len(code) >= 40 and made["expiresAt"].endswith("Z")
    over_tcp = (await world.tcp("admin").ask("POST", "/api/login-links", {})).json()["url"]
    assert over_tcp.startswith(f"{world.url}/#login=")


async def test_a_link_is_stale_after_two_minutes(world: World) -> None:
    code = await link(world)
    world.services.now += 119
    fresh = await link(world)
    world.services.now += 1
    assert (await enter(world, code=code)).status == 401
    assert (await enter(world, code=fresh)).status == 200


async def test_only_an_administrator_makes_links_and_they_give_what_was_said(world: World) -> None:
    for role in ("viewer", "operator"):
        assert (await world.tcp(role).ask("POST", "/api/login-links", {})).status == 403
    assert (await world.tcp().ask("POST", "/api/login-links", {})).status == 401
    signed_in = browser(world, await enter(world, code=await link(world, role="viewer")))
    assert (await world.tcp().ask("GET", "/api/sessions/app-fix", headers=signed_in)).status == 200
    assert (await world.tcp().ask(*WORK, headers=signed_in)).status == 403


@pytest.mark.parametrize(("role", "expected"), [("viewer", 403), ("operator", 202), ("admin", 202)])
async def test_a_token_signs_in_with_its_role_and_takes_its_browsers_along(
    world: World, role: str, expected: int
) -> None:
    id_, token = world.services.tokens.new("mine", role)
    signed_in = browser(world, await enter(world, token=token))
    assert (await world.tcp().ask(*WORK, headers=signed_in)).status == expected
    assert [entry["kind"] for entry in world.services.tokens.list()] == ["token", "login"]
    world.services.tokens.revoke(id_)
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 401
    assert world.services.tokens.list() == []


async def test_the_command_lines_token_signs_in_until_it_is_another_one(world: World) -> None:
    answer = await enter(world, token=world.services.tokens.cli_token())
    secret = cookie_of(answer).partition("=")[2]
    assert world.services.tokens.check_sign_in(secret) is not None
    world.services.home.token.write_text("aoc_another\n")
    world.services.tokens._cli = None
    assert world.services.tokens.check_sign_in(secret) is None


async def test_a_sign_in_ends_after_thirty_days(world: World) -> None:
    signed_in = browser(world, await enter(world, code=await link(world)))
    world.services.now += 30 * 86_400 - 1
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 200
    world.services.now += 2
    assert (await world.tcp().ask("GET", "/api/me", headers=signed_in)).status == 401
    assert world.services.tokens.list() == []


async def test_signing_out_ends_it_and_so_does_signing_in_anew(world: World) -> None:
    first = browser(world, await enter(world, code=await link(world, role="viewer")))
    out = await world.tcp().ask("POST", "/api/logout", {}, first)
    assert (out.status, "Max-Age=0" in out.headers["set-cookie"]) == (204, True)
    assert (await world.tcp().ask("GET", "/api/me", headers=first)).status == 401
    second = browser(world, await enter(world, code=await link(world)))
    third = await world.tcp().ask("POST", "/api/login", {"code": await link(world)}, second)
    assert third.status == 200
    assert (await world.tcp().ask("GET", "/api/me", headers=second)).status == 401
    assert len(world.services.tokens.list()) == 1


async def test_nothing_at_rest_opens_anything(world: World) -> None:
    answer = await enter(world, code=await link(world))
    kept = (world.services.home.path / "tokens.json").read_text()
    assert cookie_of(answer).partition("=")[2] not in kept
    assert json.loads(kept)["tokens"][0]["kind"] == "login"


@pytest.mark.parametrize(
    "body",
    [{}, {"code": "x", "token": "y"}, {"code": 7}, {"password": "x"}, {"token": "x" * 1001}, [], "code"],
)
async def test_a_sign_in_that_makes_no_sense_is_no_failure(world: World, body: object) -> None:
    for _ in range(11):
        assert (await world.tcp().ask("POST", "/api/login", body)).status == 422


@pytest.mark.parametrize("token", ["", "aot_x.y", "aoc_guess", "ünknown", "session", "login"])
async def test_what_opens_nothing_signs_nobody_in(world: World, token: str) -> None:
    if token == "session":
        token = world.services.tokens.for_session("app-fix", 1)
    elif token == "login":
        token = cookie_of(await enter(world, code=await link(world))).partition("=")[2]
    answer = await enter(world, token=token)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert "ao dashboard" in answer.json()["remedy"]


async def test_who_guesses_must_wait_and_then_may_again(world: World) -> None:
    code = await link(world)
    for _ in range(10):
        assert (await enter(world, code="guess")).status == 401
    refused = await enter(world, code=code)
    assert (refused.status, refused.headers["retry-after"]) == (429, "61")
    world.services.now += 61
    assert (await enter(world, code=code)).status == 200


async def test_another_users_failures_on_this_machine_keep_nobody_out(world: World) -> None:
    if os.geteuid() != 0 or not Path("/proc/net/tcp").exists():
        pytest.skip("only root may ask as another user, where the kernel tells whose a connection is")
    code = await link(world)
    os.seteuid(65_534)
    try:
        for _ in range(FAILURES):
            assert (await enter(world, code="guess")).status == 401
        assert (await enter(world, code="guess")).status == 429
    finally:
        os.seteuid(0)
    assert (await enter(world, code=code)).status == 200


async def test_of_one_address_each_user_is_counted_by_himself(world: World) -> None:
    logins = world.services.logins
    for _ in range(FAILURES):
        with pytest.raises(InvalidLogin):
            logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=1001)
    with pytest.raises(TooManyFailures):
        logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=1001)
    for user in (1000, None):
        with pytest.raises(InvalidLogin):
            logins.sign_in("127.0.0.1", code=None, token="aot_0.x", user=user)


async def test_whoever_has_many_addresses_beside_each_other_guesses_no_more_often(world: World) -> None:
    logins = world.services.logins
    for number in range(FAILURES):
        with pytest.raises(InvalidLogin):
            logins.sign_in(f"2001:db8::{number}", code=None, token="aot_0.x")
    for peer in ("2001:db8::ffff:1", "2001:db8:0:0:1:2:3:4"):
        with pytest.raises(TooManyFailures):
            logins.sign_in(peer, code=None, token="aot_0.x")
    for peer in ("2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.2"):
        with pytest.raises(InvalidLogin):
            logins.sign_in(peer, code=None, token="aot_0.x")


async def test_strangers_have_us_keep_only_so_many_bodies_and_nobody_from_signing_in(world: World) -> None:
    head = b"POST /api/webhooks/github HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    held = [await world.tcp().open() for _ in range(16)]
    async with asyncio.timeout(60):
        for _, writer in held:
            writer.write(head)
        while (await world.tcp().ask("POST", "/api/webhooks/github", {})).status != 503:
            pass
        assert (await world.tcp("viewer").get("/api/me")).status == 200
        assert (await enter(world, token="x")).status == 401
        assert (await enter(world, token="x" * 9000)).status == 413, "of which little is taken"
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while (await world.tcp().ask("POST", "/api/webhooks/github", {})).status == 503:
            pass


async def test_a_cookie_is_no_token_and_a_token_no_cookie(world: World) -> None:
    answer = await enter(world, code=await link(world))
    secret, page = cookie_of(answer).partition("=")[2], answer.json()["page"]
    assert (await world.tcp(token=secret).get("/api/me")).status == 401
    token = world.services.tokens.new("x", "admin")[1]
    name = f"ao_session_{world.port}"
    assert (await world.tcp().get("/api/me", Cookie=f"{name}={token}", X_AO_Page=page)).status == 401
    assert (await world.tcp().get("/api/me", Cookie=f"{name}={secret}; other=1", X_AO_Page=page)).status == 200


async def test_a_change_by_cookie_must_come_from_a_page_of_ours(world: World) -> None:
    signed_in = browser(world, await enter(world, code=await link(world)))
    client, calls = world.tcp(), world.services.sessions.calls
    asked = [
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
    for more in asked:
        assert (await client.ask(*WORK, headers={**signed_in, **more})).status == 403, more
    assert (await client.ask("DELETE", "/api/sessions/app-fix", headers={**signed_in, "Origin": ""})).status == 403
    assert not any(call[0] in ("send", "stop") for call in calls)
    assert (await client.ask(*WORK, headers=signed_in)).status == 202
    assert (await client.ask("DELETE", "/api/sessions/app-fix", headers=signed_in)).status == 200


async def test_signing_in_is_for_pages_of_ours_too(world: World) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "text/plain"},
    ):
        answer = await world.tcp().ask("POST", "/api/login", {"code": await link(world)}, headers)
        assert (answer.status, "set-cookie" in answer.headers) == (403, False), headers
    assert (await world.tcp().get("/api/login")).status == 401


async def test_signing_out_ends_the_streams_and_terminals_too(world: World) -> None:
    signed_in = browser(world, await enter(world, code=await link(world)))
    _, reader, writer = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    async with terminal(world, None, **signed_in) as socket:
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


async def test_a_sign_in_that_is_over_ends_its_streams_and_terminals(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(world.services.tokens, "_clock", lambda: now)
    signed_in = browser(world, await enter(world, code=await link(world)))
    now += SIGN_IN_DAYS * 86_400 - 0.01
    _, reader, writer = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    async with terminal(world, None, **signed_in) as socket:
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


async def test_a_revoked_token_ends_its_streams_and_nobody_elses(world: World) -> None:
    mine, other = world.services.tokens.new("mine", "viewer")[1], world.services.tokens.new("other", "viewer")[1]
    _, ending, one = await world.tcp(token=mine).begin("GET", "/api/events", headers=STREAM)
    signed_in = browser(world, await enter(world, token=mine))
    _, of_browser, three = await world.tcp().begin("GET", "/api/events", headers=signed_in | STREAM)
    _, going_on, two = await world.tcp(token=other).begin("GET", "/api/events", headers=STREAM)
    world.services.tokens.revoke("mine")
    async with asyncio.timeout(60):
        assert (await ending.read()).endswith(b"0\r\n\r\n")
        assert (await of_browser.read()).endswith(b"0\r\n\r\n")
        await world.services.feed.add("still there?")
        while b"still there?" not in await going_on.readline():
            pass
    for writer in (one, two, three):
        writer.close()


async def test_a_viewer_watches_a_terminal_and_does_not_type(world: World) -> None:
    world.services.inspection.argv = ["sh", "-c", "echo watched; exec cat"]
    async with terminal(world, world.services.tokens.new("eye", "viewer")[1]) as socket:
        await read_until(socket, "watched")
        await socket.send(json.dumps({"resize": [100, 20]}))
        await socket.send(b"rm -rf\n")
        with pytest.raises(ConnectionClosed) as closed:
            while b"rm" not in await socket.recv():
                pass
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_an_agents_token_says_who_it_is(world: World) -> None:
    client = Client(world.port, world.services.tokens.for_session("app-fix", 1))
    assert (await client.get("/api/me")).json()["kind"] == "session"
    assert (await client.ask("POST", "/api/logout", {})).status == 403


async def test_a_nodes_token_signs_nobody_in(world: World) -> None:
    tokens = world.services.tokens
    of_session = tokens.for_session("app-fix", 1), tokens.for_upload("app-fix", 1)
    for token in (tokens.for_node("n1"), tokens.new_node("n2")[1], *of_session):
        answer = await enter(world, token=token)
        assert (answer.status, "set-cookie" in answer.headers) == (401, False), answer.body


async def test_nobody_is_led_elsewhere_and_a_stranger_makes_no_entry(world: World) -> None:
    for path in ("/api/webhooks/github/", "/api/webhooks/x%0A1%20%20root/", "/api/webhooks/github/x"):
        answer = await world.tcp().ask("POST", path, {}, {"Host": "evil.example"})
        assert (answer.status, answer.headers.get("location")) == (404, None)
    assert (await world.tcp("viewer").get("/api/sessions/")).status == 404
    assert world.services.audit.entries == []
