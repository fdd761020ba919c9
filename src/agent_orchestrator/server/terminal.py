"""A session's terminal over a WebSocket: the attach command in a PTY of its own. POSIX only.

Binary frames carry keystrokes in and output out, for who only watches only out; the text frame `{"resize": [columns, rows]}`
sets the size. Nothing is read from the PTY while the socket is slow, nor from the socket while the PTY is, so neither side
piles up here. A browser takes from its socket whatever comes, shown or not: it says `{"ack": bytes}` when so much more has
been shown, and from its first such word on is sent no more than `WINDOW` ahead. Secrets are shown as asterisks. Closing ends the
attach command and nothing else: the session goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import struct
import sys
import termios
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.errors import Temporary

CHUNK = 1 << 16
WINDOW = 1 << 19
"""Bytes that may be on their way to somebody who says what he has shown."""
MOST = 32
"""Terminals that one caller has open at once: each is a process, and a client of tmux's."""
_END_GRACE = 2.0
_STUCK = 30.0
"""Seconds after which a command that reads no keystrokes is given up."""
_HELD_FOR = 0.25
"""Seconds that an end of the output is held back because a secret may begin there."""
_HIDDEN = ("TMUX", "TMUX_PANE", "AO_SESSION", "AO_TOKEN")
# A terminal becomes a process's own only from inside that process. A child that does so and then becomes the command is
# safe where a function between fork and exec is not: the daemon has threads.
_TAKE_TERMINAL = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


_BY_ITSELF = re.compile(
    rb"(\x1b\[[?>=]?[\d;]*[cnRIOt]|\x1b\]1[0-2];rgb:[\da-f]{4}/[\da-f]{4}/[\da-f]{4}(\x07|\x1b\\)"
    rb"|\x1bP[01]\$r[\d;]{0,9}[\" ]?[mpqr]?\x1b\\)+"
)
"""What a terminal says without anybody's pressing a key: who it is, its size and colours, whether it has the focus. To the letter: what
else somebody puts between such marks is typed, and reaches the agent."""


@contextlib.contextmanager
def one_more(taken: Counter[str], caller: str) -> Iterator[None]:
    """While a caller has one more terminal open."""
    if taken[caller] >= MOST:
        raise Temporary(f"you have {MOST} terminals open, and may have no more at once", "close one, and try again")
    taken[caller] += 1
    try:
        yield
    finally:
        taken[caller] -= 1
        taken += Counter()  # who has none is forgotten


async def serve_terminal(
    websocket: WebSocket,
    argv: Sequence[str],
    env: Mapping[str, str],
    columns: int,
    rows: int,
    refuse: Callable[[str], None] | None = None,
    typed: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run the command in a PTY and connect it with the socket until one of them ends.

    `refuse`: whoever it is may only watch; keystrokes close the socket, and this is told why. `typed` is called once, before the
    first key that somebody pressed.
    """
    master, slave = os.openpty()
    try:
        os.set_blocking(master, False)
        _resize(master, columns, rows)
        process = await _start(argv, env, slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    try:
        with contextlib.suppress(WebSocketDisconnect):  # gone before it began
            await websocket.accept()
            await _connect(websocket, master, refuse, typed)
    finally:
        os.close(master)
        await asyncio.shield(_end(process))
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(1000, "the terminal was closed")


async def _start(argv: Sequence[str], env: Mapping[str, str], slave: int) -> asyncio.subprocess.Process:
    inherited = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *argv),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", **env},
        start_new_session=True,
    )


async def _connect(
    websocket: WebSocket,
    master: int,
    refuse: Callable[[str], None] | None,
    typed: Callable[[], Awaitable[None]] | None,
) -> None:
    """Carry bytes both ways until either side ends."""
    ahead = _Ahead()
    ways = [
        asyncio.create_task(_show(websocket, master, ahead)),
        asyncio.create_task(_type(websocket, master, ahead, refuse, typed)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        results = await asyncio.gather(*ways, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect | TimeoutError):
            raise result


class _Ahead:
    """How much was sent and not yet shown. Who never says what he has shown is not waited for."""

    def __init__(self) -> None:
        self._bytes = 0
        self._counts = False
        self._room = asyncio.Event()
        self._room.set()

    def sent(self, count: int) -> None:
        self._bytes += count
        self._look()

    def shown(self, count: int) -> None:
        self._counts = True
        self._bytes = max(0, self._bytes - count)
        self._look()

    async def room(self) -> None:
        await self._room.wait()

    def _look(self) -> None:
        if self._counts and self._bytes >= WINDOW:
            self._room.clear()
        else:
            self._room.set()


async def _show(websocket: WebSocket, master: int, ahead: _Ahead) -> None:
    loop = asyncio.get_running_loop()
    secrets, open_ = KNOWN.stream(), True
    while open_:
        await ahead.room()
        try:
            async with asyncio.timeout(_HELD_FOR if secrets.holds else None):
                await _ready(master, loop.add_reader, loop.remove_reader)
            read = _read(master)
            open_, output = bool(read), secrets.feed(read)
        except TimeoutError:
            output = secrets.rest()
        except BlockingIOError:
            continue
        except OSError:  # Linux's way to say that the last program has closed the terminal
            open_, output = False, b""
        output += b"" if open_ else secrets.rest()
        if websocket.application_state is WebSocketState.DISCONNECTED:  # `_type` closed it this moment
            return
        if output:
            ahead.sent(len(output))
            await websocket.send_bytes(output)


def _read(master: int) -> bytes:
    """All that there is, up to a chunk: a PTY gives but a few kilobytes at a time, and each frame has its cost."""
    output = piece = os.read(master, CHUNK)
    while piece and len(output) < CHUNK:
        try:
            piece = os.read(master, CHUNK - len(output))
        except OSError:  # nothing more now, or ever: the next call tells
            break
        output += piece
    return output


async def _type(
    websocket: WebSocket,
    master: int,
    ahead: _Ahead,
    refuse: Callable[[str], None] | None,
    typed: Callable[[], Awaitable[None]] | None,
) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if (keys := message.get("bytes")) is not None:
            if refuse is not None:
                refuse("who may only watch cannot type")
                await _refuse(websocket, "the role viewer may watch, and not type")
                return
            if typed is not None and not _BY_ITSELF.fullmatch(keys):
                await typed()
                typed = None
            await _write(master, keys)
            continue
        told = _told(message.get("text") or "")
        if (size := _size(told)) is not None:
            _resize(master, *size)
        elif (count := _count(told)) is not None:
            ahead.shown(count)
        else:
            await _refuse(websocket, 'a text frame must be {"resize": [columns, rows]} or {"ack": bytes}')
            return


async def _refuse(websocket: WebSocket, why: str) -> None:
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # it has hung up this moment
        await websocket.close(1008, why)


async def _write(master: int, keys: bytes) -> None:
    loop = asyncio.get_running_loop()
    rest = memoryview(keys)
    while rest:
        try:
            rest = rest[os.write(master, rest) :]
        except BlockingIOError:
            async with asyncio.timeout(_STUCK):
                await _ready(master, loop.add_writer, loop.remove_writer)


async def _ready(descriptor: int, watch: Callable[..., Any], unwatch: Callable[[int], Any]) -> None:
    happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not happened.done():
            happened.set_result(None)

    watch(descriptor, tell)
    try:
        await happened
    finally:
        unwatch(descriptor)


def _told(text: str) -> Mapping[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _size(told: Mapping[str, Any]) -> tuple[int, int] | None:
    match told.get("resize"):
        case [int(columns), int(rows)] if 1 <= columns <= 1000 and 1 <= rows <= 1000:
            return columns, rows
    return None


def _count(told: Mapping[str, Any]) -> int | None:
    match told.get("ack"):
        case int(count) if count >= 0:
            return count
    return None


def _resize(master: int, columns: int, rows: int) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _end(process: asyncio.subprocess.Process) -> None:
    """The closed PTY has told the command to go; see that it does, and reap it."""
    try:
        async with asyncio.timeout(_END_GRACE):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
