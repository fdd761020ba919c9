"""Tokens, sign-ins and their ends; refused ones are logged."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.tcp_client import ADDRESSES, TcpClient


def test_a_missing_or_wrong_token_is_refused(tcp_client: TcpClient) -> None:
    assert tcp_client.ask("GET", "/api/sessions").status == 401
    tcp_client.assert_last_refusal("path=/api/sessions", "this needs a token")
    assert tcp_client.ask("GET", "/api/sessions", Authorization="Bearer aot_guess.guess").status == 401
    tcp_client.assert_last_refusal("no longer, valid")
    port = tcp_client.host.partition(":")[2]
    assert tcp_client.ask("GET", "/api/me", Cookie=f"ao_session_{port}=aol_00.guess").status == 401
    tcp_client.assert_last_refusal("path=/api/me", "no longer, valid")


def test_a_sign_in_link_works_once_and_ends_with_its_daemon(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository()
        box.start()
        tcp_client = TcpClient(box, "127.0.0.9")
        code, other = tcp_client.sign_in_code(), tcp_client.sign_in_code()
        tcp_client.sign_in(code=code)
        assert tcp_client.ask("POST", "/api/login", {"code": code}).status == 401
        tcp_client.assert_last_refusal("path=/api/login", "used already, or is older than 2 minutes")
        box.stop()
        box.start()
        assert tcp_client.ask("POST", "/api/login", {"code": other}).status == 401
        assert len(tcp_client.refusal_lines()) == 2
        assert code not in box.home.log.read_text() and other not in box.home.log.read_text()


def test_a_sign_in_survives_a_restart_and_its_cookie_is_restricted(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository()
        box.start()
        tcp_client = TcpClient(box, "127.0.0.9")
        answer = tcp_client.ask("POST", "/api/login", {"code": tcp_client.sign_in_code()}, Origin=tcp_client.url)
        port = int(tcp_client.host.partition(":")[2])
        value, *attributes = answer.headers["set-cookie"].split("; ")
        assert sorted(attributes) == ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=strict"]
        assert value.partition("=")[2] not in (box.home.path / "tokens.json").read_text()
        box.stop()
        box.start(port=port)
        page = answer.json()["page"]
        assert tcp_client.ask("GET", "/api/me", Cookie=value, X_AO_Page=page).json()["role"] == "admin"


def test_failed_sign_ins_are_limited_per_address(tcp_client: TcpClient) -> None:
    code = tcp_client.sign_in_code()
    for number in range(10):
        forwarded = dict.fromkeys(("X_Forwarded_For", "X_Real_IP", "Forwarded"), f"10.0.0.{number}")
        assert tcp_client.ask("POST", "/api/login", {"token": f"aot_{number}.guess"}, **forwarded).status == 401
    answer = tcp_client.ask("POST", "/api/login", {"code": code}, X_Forwarded_For="127.0.0.1")
    assert answer.status == 429 and 0 < int(answer.headers["retry-after"]) <= 61
    tcp_client.assert_last_refusal("path=/api/login", "too many sign-ins failed")
    assert len(tcp_client.refusal_lines()) == 11
    TcpClient(tcp_client.box, f"127.0.0.{next(ADDRESSES)}").sign_in(code=code)  # other addresses are not limited


def test_signing_out_and_revoking_end_a_sign_in(tcp_client: TcpClient) -> None:
    signed_in = tcp_client.sign_in()
    assert tcp_client.ask("POST", "/api/logout", {}, **signed_in).status == 204
    assert tcp_client.ask("GET", "/api/sessions", **signed_in).status == 401
    tcp_client.assert_last_refusal("no longer, valid")
    second = tcp_client.sign_in(token=tcp_client.token("admin"))
    assert tcp_client.ask("GET", "/api/sessions", **second).status == 200
    listed = tcp_client.box.ao("token", "list").stdout
    assert re.search(rf"login +admin-{tcp_client.address} +admin", listed), listed
    tcp_client.box.ao("token", "revoke", f"admin-{tcp_client.address}")
    assert tcp_client.ask("GET", "/api/sessions", **second).status == 401
    tcp_client.assert_last_refusal("path=/api/sessions", "no longer, valid")
    assert tcp_client.address not in tcp_client.box.ao("token", "list").stdout


def test_revoking_a_token_closes_the_streams_of_its_browsers(tcp_client: TcpClient, working_session: str) -> None:
    signed_in = tcp_client.sign_in(token=tcp_client.token("viewer"))
    name, _, port = tcp_client.host.partition(":")
    stream = http.client.HTTPConnection(name, int(port), timeout=60)
    stream.request("GET", "/api/live", headers=signed_in)
    live = stream.getresponse()
    assert live.status == 200 and live.read(10)
    with tcp_client.terminal(working_session, **signed_in) as terminal:
        assert terminal.recv(60) is not None
        tcp_client.box.ao("token", "revoke", f"viewer-{tcp_client.address}")
        live.read()  # to its end
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                terminal.recv(60)
    assert closed.value.rcvd is not None and (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "signed out")
    stream.close()


def test_one_sign_in_can_be_revoked_by_its_id(tcp_client: TcpClient) -> None:
    known_ids = {entry["id"] for entry in tcp_client.box.json("token", "list")["tokens"]}
    signed_in = tcp_client.sign_in()
    (login,) = [entry for entry in tcp_client.box.json("token", "list")["tokens"] if entry["id"] not in known_ids]
    assert (login["kind"], login["role"], login["expiresAt"] > login["createdAt"]) == ("login", "admin", True)
    tcp_client.box.ao("token", "revoke", login["id"])
    assert tcp_client.ask("GET", "/api/me", **signed_in).status == 401
    tcp_client.assert_last_refusal("path=/api/me")
