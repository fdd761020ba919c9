"""Sockets: permissions, ports, stale sockets, connection limits; and the speed of the session list."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import stat
import time
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import AoError, Conflict, Temporary, UsageError
from agent_orchestrator.server.app import create_app
from agent_orchestrator.server.http_servers import Servers, bind_tcp, bind_unix, url_of
from agent_orchestrator.server.services import Services
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.doubles import FakeServices

pytestmark = pytest.mark.anyio


def test_the_unix_socket_is_private_and_replaces_a_stale_one(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    bind_unix(path).close()
    with bind_unix(path), socket.socket(socket.AF_UNIX) as caller:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        caller.connect(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["daemon.sock"]


def test_a_missing_socket_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(AoError, match=r"none/daemon\.sock cannot be made"):
        bind_unix(tmp_path / "none" / "daemon.sock")


def test_an_explicit_port_in_use_is_an_error_and_a_default_one_is_replaced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is taken"):
            bind_tcp("127.0.0.1", port, explicit=True)
        moved, note = bind_tcp("127.0.0.1", port, explicit=False)
        with moved:
            assert moved.getsockname()[1] > port
            assert note == f"port {port} is taken, so this is port {moved.getsockname()[1]}"


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 70000), ("127.0.0.1", -1), ("no.such.host.invalid", 0), ("192.0.2.1", 0), ("a..b", 0)],
)
def test_invalid_addresses_are_named(host: str, port: int) -> None:
    with pytest.raises(UsageError, match=host if 0 <= port < 65536 else str(port)):
        bind_tcp(host, port, explicit=True)


def test_the_url_is_one_that_clients_can_use() -> None:
    listener, _ = bind_tcp("127.0.0.1", 0, explicit=True)
    with listener:
        port = listener.getsockname()[1]
        assert url_of(listener, "0.0.0.0") == f"http://127.0.0.1:{port}"
        assert url_of(listener, "localhost") == f"http://localhost:{port}"
        assert url_of(listener, "::1") == f"http://[::1]:{port}"


async def test_closing_removes_the_socket_but_never_a_successors(world: ServerWorld) -> None:
    path = world.unix.address
    assert isinstance(path, Path)
    assert path.exists()
    with bind_unix(path):
        world.servers.close()
        await asyncio.wait_for(world.serving, 60)
        assert path.exists()


async def test_pending_requests_are_finished_before_the_server_closes(world: ServerWorld) -> None:
    _, reader, writer = await world.unix.begin("GET", "/api/sessions/fix/log")
    world.servers.close()
    await asyncio.wait_for(world.serving, 60)
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()
    path = world.unix.address
    assert isinstance(path, Path)
    assert not path.exists()


async def test_the_session_list_is_served_and_its_speed_printed(world: ServerWorld) -> None:
    """Print a measurement without a limit: client and server share this process."""
    world.services.sessions.body = b"x" * 50_000
    client = world.tcp("viewer")
    reader, writer = await client.open()
    request = f"GET /api/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {client.token}\r\n\r\n".encode()
    rounds = 300
    started_at = time.perf_counter()
    for _ in range(rounds):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(50_000)
    rate = rounds / (time.perf_counter() - started_at)
    writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    print(f"GET /api/sessions over TCP with a token: {rate:.0f} a second")  # noqa: T201


@pytest.mark.parametrize(
    "partial_request",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n",
    ],
    ids=["nothing", "half a head", "no body", "half a second head"],
)
async def test_unfinished_requests_are_disconnected(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch, partial_request: bytes
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.http_servers.HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr("agent_orchestrator.server.http_servers.BODY_TIMEOUT", 0.3)
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(partial_request)
        while await reader.read(1 << 16):
            pass
    writer.close()


async def test_a_client_can_wait_for_a_response_without_a_limit(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.http_servers.HEAD_TIMEOUT", 0.1)
    monkeypatch.setattr("agent_orchestrator.server.http_servers.BODY_TIMEOUT", 0.1)
    async with asyncio.timeout(60):
        answer, reader, writer = await world.tcp("viewer").begin(
            "GET", "/api/events?follow=1", None, {"Accept": "text/event-stream"}
        )
        assert answer.status == 200
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while await reader.read(1 << 16):
                    pass
    writer.close()


async def test_unfinished_tls_handshakes_count_towards_the_connection_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.server.http_servers._max_connections", lambda: 3)
    listener, _ = bind_tcp("127.0.0.1", 0, explicit=True)
    port = listener.getsockname()[1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # no client gets as far as the certificate
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=listener, ssl=context)
    async with asyncio.timeout(60), server:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, more = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        for writer in (more, *(open_writer for _, open_writer in connections)):
            writer.close()
            await writer.wait_closed()
        while True:  # until there is room again
            reader, last = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read()
            last.close()
            if not reader.at_eof():
                break


async def test_open_connections_are_limited(world: ServerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.server.http_servers._max_connections", lambda: 3)
    async with asyncio.timeout(60):
        connections = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        assert await reader.read() == b""
        assert (await world.unix.get("/healthz")).status == 200
        for _, open_writer in (*connections, (reader, writer)):
            open_writer.close()


async def test_a_shortage_of_files_at_the_start_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sockets fail, and the start shows one line."""
    servers, _, _ = Servers.bind(tmp_path / "s", "127.0.0.1", 0, explicit=False)
    services = cast(Services, cast(Any, FakeServices(Home(tmp_path / "ao"))))
    apps = (create_app(services, trusted=True), create_app(services, trusted=False))

    def load(_config: uvicorn.Config) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "websockets.py")

    monkeypatch.setattr(uvicorn.Config, "load", load)
    with pytest.raises(Temporary, match=r"Too many open files: websockets\.py: raise the limit of open files"):
        await servers.serve(*apps)
