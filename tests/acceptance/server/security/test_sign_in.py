"""Tokens, sign-ins and their ends: what is refused is written down in the daemon's log."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.stranger import ADDRESSES, Stranger


def test_no_token_and_a_wrong_one(stranger: Stranger) -> None:
    assert stranger.ask("GET", "/api/sessions").status == 401
    stranger.was_refused("path=/api/sessions", "this needs a token")
    assert stranger.ask("GET", "/api/sessions", Authorization="Bearer aot_guess.guess").status == 401
    stranger.was_refused("no longer, valid")
    port = stranger.host.partition(":")[2]
    assert stranger.ask("GET", "/api/me", Cookie=f"ao_session_{port}=aol_00.guess").status == 401
    stranger.was_refused("path=/api/me", "no longer, valid")


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


def test_guessing_is_limited(stranger: Stranger) -> None:
    code = stranger.code()
    for number in range(10):
        said = dict.fromkeys(("X_Forwarded_For", "X_Real_IP", "Forwarded"), f"10.0.0.{number}")
        assert stranger.ask("POST", "/api/login", {"token": f"aot_{number}.guess"}, **said).status == 401
    answer = stranger.ask("POST", "/api/login", {"code": code}, X_Forwarded_For="127.0.0.1")
    assert answer.status == 429 and 0 < int(answer.headers["retry-after"]) <= 61
    stranger.was_refused("path=/api/login", "too many sign-ins failed")
    assert len(stranger.logged()) == 11
    Stranger(stranger.box, f"127.0.0.{next(ADDRESSES)}").sign_in(code=code)  # nobody else waits


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
