"""A real server on a real Unix socket and a real port, with services in memory behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.server.app import create_app
from agent_orchestrator.server.http_servers import Servers
from agent_orchestrator.server.services import Services
from tests.integration.server.doubles import FakeServices, PlainClient


@dataclass
class ServerWorld:
    """A running server, its services in memory, and clients."""

    services: FakeServices
    servers: Servers
    serving: asyncio.Task[None]
    url: str
    unix: PlainClient
    port: int

    def tcp(self, role: str | None = None, token: str | None = None) -> PlainClient:
        """Return a client on TCP with a role, with a token, or without either."""
        if role == "cli":
            token = self.services.tokens.cli_token()
        elif role is not None:
            token = self.services.tokens.create(role, role)[1]
        return PlainClient(self.port, token)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ServerWorld]:
    home = Home(tmp_path / "ao")
    home.create_folders()
    double = FakeServices(home)
    services = cast(Services, cast(Any, double))
    socket_path = home.socket("daemon.sock")
    servers, url, note = Servers.bind(socket_path, "127.0.0.1", 0, explicit=False)
    assert note is None
    apps = (
        create_app(services, trusted=True, body_limit=1 << 20),
        create_app(services, trusted=False, hosts=["127.0.0.1"]),
    )
    serving = asyncio.create_task(servers.serve(*apps))
    async with asyncio.timeout(60):
        await servers.started.wait()
    try:
        yield ServerWorld(double, servers, serving, url, PlainClient(socket_path), int(url.rpartition(":")[2]))
    finally:
        servers.close()
        async with asyncio.timeout(60):
            await serving
