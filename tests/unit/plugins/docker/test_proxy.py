"""The network proxy of a container: allowed hosts pass, other requests get the reason for the refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agent_orchestrator.plugins.runtimes.docker.proxy import HostRefused, Proxy

pytestmark = pytest.mark.anyio

Ask = Callable[[bytes], Awaitable[bytes]]


@pytest.mark.parametrize(
    ("host", "port", "passes"),
    [
        ("api.example.com", 443, True),
        ("API.Example.com.", 443, True),
        ("api.example.com", 80, True),
        ("api.example.com", 22, False),
        ("example.com", 443, False),
        ("evil-api.example.com", 443, False),
        ("api.example.com.evil.org", 443, False),
        ("a.wild.org", 443, True),
        ("a.b.wild.org", 443, True),
        ("wild.org", 443, False),
        ("evilwild.org", 443, False),
        ("only.org", 8443, True),
        ("only.org", 443, False),
        ("127.0.0.1", 80, False),
    ],
)
def test_only_what_is_on_the_list_passes(tmp_path: Path, host: str, port: int, passes: bool) -> None:
    proxy = Proxy(str(tmp_path / "log"), "-", ["api.example.com", "*.wild.org", "only.org:8443"])
    if passes:
        proxy.check(host, port)
        assert not (tmp_path / "log").exists()
    else:
        with pytest.raises(HostRefused):
            proxy.check(host, port)
        assert f"refused {host}:{port}" in (tmp_path / "log").read_text()


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Ask]:
    """Yield a function that sends bytes to the proxy and returns the response; one port with an echo server is allowed."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got: " + await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy(str(tmp_path / "log"), f"127.0.0.1:{port}", [f"127.0.0.1:{port}"])
    doors = {"proxy": proxy.serve, "daemon": proxy.forward_to_daemon}
    sockets = [await asyncio.start_unix_server(serve, tmp_path / name) for name, serve in doors.items()]

    async def exchange(text: bytes, door: str = "proxy") -> bytes:
        reader, writer = await asyncio.open_unix_connection(tmp_path / door)
        writer.write(text.replace(b"PORT", str(port).encode()))
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    yield exchange
    for service in (server, *sockets):
        service.close()
        await service.wait_closed()


async def test_a_tunnel_is_a_tunnel(ask: Ask) -> None:
    answer = await ask(b"CONNECT 127.0.0.1:PORT HTTP/1.1\r\nHost: x\r\n\r\nraw \x00 bytes")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\ngot: raw \x00 bytes"


async def test_a_plain_request_is_forwarded_to_its_host(ask: Ask) -> None:
    answer = await ask(
        b"GET http://127.0.0.1:PORT/a?b=c HTTP/1.1\r\nHost: h\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\n\r\n"
    )
    assert answer == b"got: GET /a?b=c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"CONNECT other.example:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://other.example/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET /api HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", b"400"),
        (b"GET ftp://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"CONNECT x:y HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_everything_else_is_refused(ask: Ask, request_: bytes, code: bytes) -> None:
    assert (await ask(request_)).startswith(b"HTTP/1.1 " + code)


async def test_the_daemon_has_a_door_of_its_own(ask: Ask) -> None:
    assert await ask(b"anything", door="daemon") == b"got: anything"  # type: ignore[call-arg]
