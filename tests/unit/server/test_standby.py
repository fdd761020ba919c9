"""A standby daemon: it names the active daemon, but not to foreign web pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_orchestrator.server.standby import Standby

pytestmark = pytest.mark.anyio
ACTIVE = {"host": "secret-host", "pid": 1, "since": "now", "url": "http://10.0.0.1:3000"}


async def ask(app: Standby, path: str, **headers: str) -> tuple[int, str]:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    encoded_headers = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "headers": encoded_headers, "scheme": "http"}
    await app(scope, receive, send)
    return messages[0]["status"], messages[1]["body"].decode()


async def test_the_active_daemon_is_named() -> None:
    app = Standby(lambda: ACTIVE, None, ["10.0.0.2"])
    for host in ("127.0.0.1:3000", "localhost", "10.0.0.2:3000"):
        status, body = await ask(app, "/healthz", Host=host)
        assert (status, json.loads(body)["active"]) == (200, ACTIVE)
    status, body = await ask(app, "/api/sessions", Host="localhost")
    assert status == 503 and "secret-host" in body


@pytest.mark.parametrize("path", ["/healthz", "/api/sessions"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {},
        {"Host": "localhost", "Origin": "http://evil.example"},
        {"Host": "localhost", "Sec_Fetch_Site": "cross-site"},
    ],
)
async def test_foreign_web_pages_get_no_answer(path: str, headers: dict[str, str]) -> None:
    status, body = await ask(Standby(lambda: ACTIVE, None), path, **headers)
    assert status == 403 and "secret-host" not in body


async def test_requests_over_the_socket_need_no_host_name() -> None:
    async def end(_sessions: bool) -> None:
        raise AssertionError("no shutdown was requested")

    assert (await ask(Standby(lambda: ACTIVE, end), "/healthz"))[0] == 200
