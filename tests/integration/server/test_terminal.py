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
from agent_orchestrator.server.terminal import CHUNK, WINDOW
from tests.integration.server.conftest import World
from tests.integration.server.test_streams import until

pytestmark = pytest.mark.anyio


def terminal(world: World, token: str | None, **headers: str) -> connect:
    given = {"Authorization": f"Bearer {token}"} if token else {}
    address = f"{world.url.replace('http', 'ws')}/api/sessions/fix/terminal?columns=90&rows=30"
    return connect(address, additional_headers={**given, **headers}, proxy=None)


async def read_until(socket: ClientConnection, words: str) -> str:
    seen = ""
    async with asyncio.timeout(60):
        while words not in seen:
            output = await socket.recv()
            assert isinstance(output, bytes)
            seen += output.decode()
    return seen


async def test_keystrokes_go_in_and_output_comes_out(world: World) -> None:
    async with terminal(world, world.services.tokens.cli_token()) as socket:
        await socket.send(b"hello\n")
        await read_until(socket, "hello\r\nhello\r\n")


async def test_whoever_types_is_entered_in_the_log_once_and_a_terminals_own_words_are_not_typed(world: World) -> None:
    async with terminal(world, world.services.tokens.new("hands", "operator")[1]) as socket:
        for answer in (b"\x1b[?1;2c", b"\x1b[24;80R\x1b[I", b"\x1b]11;rgb:0000/0000/0000\x07"):
            await socket.send(answer)
        await socket.send(json.dumps({"resize": [100, 20]}))
        await socket.send(b"\r")
        await socket.send(b"more\r")
        await read_until(socket, "more")
    assert world.services.audit.entries == [("token hands", TerminalTaken("typed"))]


@pytest.mark.parametrize("typed", [b"\x1b]go on\r\x07", b"\x1bPgo on\r\x1b\\", b"\x1b]11;rgb:go on\r\x07"])
async def test_what_is_typed_is_entered_though_it_is_put_as_a_terminals_own_word(world: World, typed: bytes) -> None:
    async with terminal(world, world.services.tokens.new("hands", "operator")[1]) as socket:
        await socket.send(typed)
        await read_until(socket, "go on")
    assert world.services.audit.entries == [("token hands", TerminalTaken("typed"))]


async def test_the_program_has_a_terminal_of_its_own_with_a_size(world: World) -> None:
    world.services.inspection.argv = [
        "sh",
        "-c",
        'trap "stty size" WINCH; tty; stty size; echo $AO_ATTACHED; while :; do sleep 0.05; done',
    ]
    async with terminal(world, world.services.tokens.cli_token()) as socket:
        assert "30 90" in await read_until(socket, "app-fix\r\n")
        await socket.send(json.dumps({"resize": [100, 20]}))
        await read_until(socket, "20 100")
        await socket.send(b"\x03")
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGHUP, signal.SIG_IGN)"])
async def test_leaving_ends_the_attached_program_also_one_that_does_not_listen(
    world: World, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.terminal._END_GRACE", 0.1)
    script = f"import os, signal, time; {deaf}; print(os.getpid(), flush=True); time.sleep(60)"
    world.services.inspection.argv = [sys.executable, "-c", script.replace("; ;", ";")]
    async with terminal(world, world.services.tokens.cli_token()) as socket:
        pid = int(await read_until(socket, "\r\n"))
        os.kill(pid, 0)

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await until(gone)


async def test_a_flood_waits_for_a_slow_reader(world: World) -> None:
    world.services.inspection.argv = [
        sys.executable,
        "-c",
        "import sys\nsys.stdout.buffer.write(b'x' * 1_000_000 + b'END')",
    ]
    taken, last = 0, b""
    async with terminal(world, world.services.tokens.cli_token()) as socket, asyncio.timeout(60):
        while not last.endswith(b"END"):
            output = await socket.recv()
            assert isinstance(output, bytes)
            taken, last = taken + len(output), output
    assert taken == 1_000_003


async def test_who_says_what_was_shown_is_sent_no_more_than_a_window_ahead(world: World) -> None:
    flood = "import sys\nsys.stdout.buffer.write(b'x' * 4_000_000 + b'END')"
    world.services.inspection.argv = [sys.executable, "-c", f"input()\n{flood}"]
    taken, last = 0, b""

    async def take() -> int:
        nonlocal taken, last
        output = await socket.recv()
        assert isinstance(output, bytes)
        taken, last = taken + len(output), (last + output)[-3:]
        return len(output)

    async def take_what_comes() -> int:
        """A window, however long that takes, and whatever comes right behind it."""
        before = taken
        while taken < before + WINDOW:
            await take()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await take()
        return taken - before

    async with terminal(world, world.services.tokens.cli_token()) as socket, asyncio.timeout(60):
        await socket.send('{"ack": 0}')
        await socket.send(b"go\n")
        first = await take_what_comes()
        assert first < WINDOW + CHUNK
        await socket.send(json.dumps({"ack": first}))
        assert await take_what_comes() < WINDOW + CHUNK
        await socket.send(json.dumps({"ack": WINDOW + CHUNK}))
        while last != b"END":
            await socket.send(json.dumps({"ack": await take()}))
    assert taken >= 4_000_003


@pytest.mark.parametrize("frame", ['{"resize": [0, "x"]}', '{"ack": -1}', '{"ack": "all"}', "[]", "no", "[" * 60_000])
async def test_a_frame_that_makes_no_sense_closes_the_terminal(world: World, frame: str) -> None:
    async with terminal(world, world.services.tokens.cli_token()) as socket:
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
async def test_who_may_not_gets_no_terminal(
    world: World, role: str | None, headers: dict[str, str], status: int
) -> None:
    tokens = world.services.tokens
    token = tokens.for_session("app-fix", 1) if role == "session" else tokens.new(role, role)[1] if role else None
    with pytest.raises(InvalidStatus) as refused:
        async with terminal(world, token, **headers):
            pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["status"] == status


async def test_one_caller_has_so_many_terminals_and_keeps_nobody_else_from_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.server.terminal.MAX_TERMINALS", 3)
    eyes, others = (world.services.tokens.new(name, "viewer")[1] for name in ("eyes", "others"))
    async with contextlib.AsyncExitStack() as open_:
        first, *_ = [await open_.enter_async_context(terminal(world, eyes)) for _ in range(3)]
        with pytest.raises(InvalidStatus) as refused:
            async with terminal(world, eyes):
                pass
        assert refused.value.response.status_code == 503
        assert "3 terminals" in json.loads(refused.value.response.body or b"")["detail"]
        await open_.enter_async_context(terminal(world, others))
        await first.close()

        async def let_in() -> bool:
            with contextlib.suppress(InvalidStatus):
                await open_.enter_async_context(terminal(world, eyes))
                return True
            return False

        async with asyncio.timeout(60):
            while not await let_in():
                await asyncio.sleep(0.05)


async def test_a_session_that_is_not_there_has_none(world: World) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with unix_connect(str(world.unix.address), "ws://localhost/api/sessions/none/terminal"):
            pass
    assert refused.value.response.status_code == 404


async def test_the_daemons_end_closes_the_terminal(world: World) -> None:
    async with terminal(world, world.services.tokens.cli_token()) as socket:
        world.servers.close()
        with pytest.raises(ConnectionClosed) as closed:
            await read_until(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
