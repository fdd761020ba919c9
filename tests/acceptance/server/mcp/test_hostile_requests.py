"""Malformed and unauthenticated requests to the MCP server of a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx2
import pytest

from agent_orchestrator.testing.sandbox import Sandbox

pytestmark = pytest.mark.anyio


HOSTILE: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'"x"',
    b"[" * 100_000,
    b'{"a":' * 5000,
    b"\xff\xfe",
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":"' + b"x" * 5000 + b'","method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping\\ud800"}',
    b'{"jsonrpc":"2.0","id":1,"method":7}',
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"nope/nope"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_log","arguments":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_log","arguments":{"session":"../../etc"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_log","arguments":{"session":"app\\u0000"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_diff","arguments":{"session":"x","since":"--all"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"spawn_session","arguments":{"prompt":"x","issue":"../x"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"spawn_session","arguments":{"prompt":"x","base":"--x"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sessions","arguments":{"limit":1e400}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"1"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"cursor":"-1"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"ao://sessions/../token"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"ao://sessions/%2e%2e%2f/log"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"ao://plans/P99"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}',
]


@pytest.mark.parametrize("version", [None, "2024-11-05", "2025-06-18", "2026-07-28", "nonsense"])
async def test_malformed_requests_are_refused_without_a_traceback(shared: Sandbox, version: str | None) -> None:
    headers = {"Accept": "application/json, text/event-stream"} | ({"MCP-Protocol-Version": version} if version else {})
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "get_log"} if version == "2026-07-28" else {}
    with shared.client() as client:
        for body in HOSTILE:
            answer = client.request("POST", "/mcp", body, headers=headers, check=False)
            assert answer.status < 500, (body[:80], answer.text[:300])
            assert "Traceback" not in answer.text
            response = answer.json()
            assert "error" in response or response["result"]["isError"], (body[:80], answer.text[:300])
        large = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * (5 << 20) + b'"}}'
        assert client.request("POST", "/mcp", large, headers=headers, check=False).status == 413
    assert "Traceback" not in shared.home.log.read_text()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "1999-01-01"])
async def test_every_handshake_is_answered_with_a_supported_version(shared: Sandbox, version: str) -> None:
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with shared.client() as client:
        headers = {"Accept": "application/json, text/event-stream"}
        response = client.request("POST", "/mcp", message, headers=headers).json()["result"]
        assert response["protocolVersion"] == (version if version != "1999-01-01" else "2025-11-25")
        assert response["serverInfo"]["name"] == "agent-orchestrator"
        started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.request("POST", "/mcp", started, headers=headers).status == 202
        for method in ("GET", "DELETE", "PUT"):
            refused_ = client.request(method, "/mcp", headers=headers, check=False)
            assert (refused_.status, refused_.headers["allow"]) == (405, "POST")


async def test_mcp_over_tcp_needs_a_token_and_a_known_host_name(shared: Sandbox) -> None:
    url = json.loads(shared.home.daemon_info.read_text())["url"]
    token = shared.request("POST", "/api/tokens", {"name": "tcp", "role": "viewer"})["token"]
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    authorized = accept | {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(timeout=60) as client:
        assert (await client.post(f"{url}/mcp", json=ping, headers=accept)).status_code == 401
        assert (await client.get(f"{url}/mcp", headers=accept)).status_code == 401
        assert (await client.post(f"{url}/mcp", json=ping, headers=authorized)).status_code == 200
        for name, value in (
            ("Host", "evil.example"),
            ("Origin", "http://evil.example"),
            ("Sec-Fetch-Site", "cross-site"),
        ):
            assert (await client.post(f"{url}/mcp", json=ping, headers=authorized | {name: value})).status_code == 403


async def test_a_token_sent_over_the_socket_reduces_the_callers_role(shared: Sandbox) -> None:
    viewer = shared.request("POST", "/api/tokens", {"name": "less", "role": "viewer"})["token"]
    with shared.client() as client:
        viewer_headers = {"Authorization": f"Bearer {viewer}"}
        assert client.request("GET", "/api/sessions", headers=viewer_headers).status == 200
        assert client.request("GET", "/api/me", headers=viewer_headers).json()["role"] == "viewer"
        assert client.request("POST", "/api/issues", {"title": "x"}, headers=viewer_headers, check=False).status == 403
        invalid_headers = {"Authorization": "Bearer aot_nonsense"}
        assert client.request("GET", "/api/sessions", headers=invalid_headers, check=False).status == 401
        assert client.request("GET", "/api/me").json()["role"] == "admin"


async def test_the_mcp_library_is_not_loaded_before_it_is_used(shared: Sandbox) -> None:
    program = "import sys, agent_orchestrator.daemon.__main__; print([name for name in sys.modules if name.startswith('mcp')])"
    loaded = subprocess.run([sys.executable, "-c", program], env=shared.env, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
