"""The terminal over a WebSocket, with a real PTY and real programs in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

import pytest
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent_orchestrator.core.events import TerminalTaken
from agent_orchestrator.server.terminal import MAX_READ_BYTES, MAX_UNACKNOWLEDGED_BYTES
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.test_streams import wait_until

pytestmark = pytest.mark.anyio


def connect_terminal(world: ServerWorld, token: str | None, **headers: str) -> connect:
    authorization = {"Authorization": f"Bearer {token}"} if token else {}
    address = f"{world.url.replace('http', 'ws')}/api/sessions/fix/terminal?columns=90&rows=30"
    return connect(address, additional_headers={**authorization, **headers}, proxy=None)


async def read_until(socket: ClientConnection, expected: str) -> str:
    text = ""
    async with asyncio.timeout(60):
        while expected not in text:
            output = await socket.recv()
            assert isinstance(output, bytes)
            text += output.decode()
    return text


async def test_typed_text_reaches_the_program_and_its_output_returns(world: ServerWorld) -> None:
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket:
        await socket.send(b"hello\n")
        await read_until(socket, "hello\r\nhello\r\n")


async def test_typing_is_audited_once_and_terminal_replies_are_not(world: ServerWorld) -> None:
    async with connect_terminal(world, world.services.tokens.create("hands", "operator")[1]) as socket:
        for answer in (b"\x1b[?1;2c", b"\x1b[24;80R\x1b[I", b"\x1b]11;rgb:0000/0000/0000\x07"):
            await socket.send(answer)
        await socket.send(json.dumps({"resize": [100, 20]}))
        await socket.send(b"\r")
        await socket.send(b"more\r")
        await read_until(socket, "more")
    assert world.services.audit.entries == [("token hands", TerminalTaken("typed"))]


@pytest.mark.parametrize("typed", [b"\x1b]go on\r\x07", b"\x1bPgo on\r\x1b\\", b"\x1b]11;rgb:go on\r\x07"])
async def test_text_disguised_as_a_terminal_reply_is_audited(world: ServerWorld, typed: bytes) -> None:
    async with connect_terminal(world, world.services.tokens.create("hands", "operator")[1]) as socket:
        await socket.send(typed)
        await read_until(socket, "go on")
    assert world.services.audit.entries == [("token hands", TerminalTaken("typed"))]


async def test_the_program_has_its_own_terminal_with_a_size(world: ServerWorld) -> None:
    world.services.session_details.argv = [
        "sh",
        "-c",
        'trap "stty size" WINCH; tty; stty size; echo $AO_ATTACHED; while :; do sleep 0.05; done',
    ]
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket:
        assert "30 90" in await read_until(socket, "app-fix\r\n")
        await socket.send(json.dumps({"resize": [100, 20]}))
        await read_until(socket, "20 100")
        await socket.send(b"\x03")
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGHUP, signal.SIG_IGN)"])
async def test_disconnecting_ends_the_attached_program_even_if_it_ignores_signals(
    world: ServerWorld, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.terminal._KILL_TIMEOUT", 0.1)
    script = f"import os, signal, time; {deaf}; print(os.getpid(), flush=True); time.sleep(60)"
    world.services.session_details.argv = [sys.executable, "-c", script.replace("; ;", ";")]
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket:
        pid = int(await read_until(socket, "\r\n"))
        os.kill(pid, 0)

    def has_ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await wait_until(has_ended)


async def test_a_flood_of_output_waits_for_a_slow_reader(world: ServerWorld) -> None:
    world.services.session_details.argv = [
        sys.executable,
        "-c",
        "import sys\nsys.stdout.buffer.write(b'x' * 1_000_000 + b'END')",
    ]
    received_bytes, last = 0, b""
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket, asyncio.timeout(60):
        while not last.endswith(b"END"):
            output = await socket.recv()
            assert isinstance(output, bytes)
            received_bytes, last = received_bytes + len(output), output
    assert received_bytes == 1_000_003


async def test_an_acknowledging_client_gets_at_most_one_window_ahead(world: ServerWorld) -> None:
    flood = "import sys\nsys.stdout.buffer.write(b'x' * 4_000_000 + b'END')"
    world.services.session_details.argv = [sys.executable, "-c", f"input()\n{flood}"]
    received_bytes, last = 0, b""

    async def receive_one() -> int:
        nonlocal received_bytes, last
        output = await socket.recv()
        assert isinstance(output, bytes)
        received_bytes, last = received_bytes + len(output), (last + output)[-3:]
        return len(output)

    async def receive_window() -> int:
        """Receive a window of output and everything right behind it, and return the number of bytes."""
        before = received_bytes
        while received_bytes < before + MAX_UNACKNOWLEDGED_BYTES:
            await receive_one()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await receive_one()
        return received_bytes - before

    async with connect_terminal(world, world.services.tokens.cli_token()) as socket, asyncio.timeout(60):
        await socket.send('{"ack": 0}')
        await socket.send(b"go\n")
        first = await receive_window()
        assert first < MAX_UNACKNOWLEDGED_BYTES + MAX_READ_BYTES
        await socket.send(json.dumps({"ack": first}))
        assert await receive_window() < MAX_UNACKNOWLEDGED_BYTES + MAX_READ_BYTES
        await socket.send(json.dumps({"ack": MAX_UNACKNOWLEDGED_BYTES + MAX_READ_BYTES}))
        while last != b"END":
            await socket.send(json.dumps({"ack": await receive_one()}))
    assert received_bytes >= 4_000_003


@pytest.mark.parametrize("frame", ['{"resize": [0, "x"]}', '{"ack": -1}', '{"ack": "all"}', "[]", "no", "[" * 60_000])
async def test_an_invalid_frame_closes_the_terminal(world: ServerWorld, frame: str) -> None:
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket:
        await socket.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("role", "headers", "status"),
    [
        (None, {}, 401),
        ("session", {}, 403),
        ("admin", {"Origin": "http://evil.example"}, 403),
    ],
)
async def test_unauthorized_callers_get_no_terminal(
    world: ServerWorld, role: str | None, headers: dict[str, str], status: int
) -> None:
    tokens = world.services.tokens
    token = tokens.for_session("app-fix", 1) if role == "session" else tokens.create(role, role)[1] if role else None
    with pytest.raises(InvalidStatus) as refused:
        async with connect_terminal(world, token, **headers):
            pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["status"] == status


async def test_terminals_are_limited_per_caller(world: ServerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.server.terminal.MAX_TERMINALS", 3)
    viewer, others = (world.services.tokens.create(name, "viewer")[1] for name in ("eyes", "others"))
    async with contextlib.AsyncExitStack() as open_:
        first, *_ = [await open_.enter_async_context(connect_terminal(world, viewer)) for _ in range(3)]
        with pytest.raises(InvalidStatus) as refused:
            async with connect_terminal(world, viewer):
                pass
        assert refused.value.response.status_code == 503
        assert "3 terminals" in json.loads(refused.value.response.body or b"")["detail"]
        await open_.enter_async_context(connect_terminal(world, others))
        await first.close()

        async def is_admitted() -> bool:
            with contextlib.suppress(InvalidStatus):
                await open_.enter_async_context(connect_terminal(world, viewer))
                return True
            return False

        async with asyncio.timeout(60):
            while not await is_admitted():
                await asyncio.sleep(0.05)


async def test_a_missing_session_has_no_terminal(world: ServerWorld) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with unix_connect(str(world.unix.address), "ws://localhost/api/sessions/none/terminal"):
            pass
    assert refused.value.response.status_code == 404


async def test_the_end_of_the_daemon_closes_terminals(world: ServerWorld) -> None:
    async with connect_terminal(world, world.services.tokens.cli_token()) as socket:
        world.servers.close()
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
