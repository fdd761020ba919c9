"""A session's terminal over a WebSocket: the attach command in a separate PTY. POSIX only.

Binary frames carry keystrokes in and output out, for viewers only output; the text frame `{"resize": [columns, rows]}` sets the
size. The PTY is not read while the socket is slow, nor the socket while the PTY is, so that neither side accumulates data here. A
browser accepts everything from its socket, shown or not: it sends `{"ack": bytes}` when that many more bytes have been shown, and
after its first such frame gets at most `MAX_UNACKNOWLEDGED_BYTES` ahead. Secrets are replaced by asterisks. Closing ends the attach command
only: the session continues.
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

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import Temporary

MAX_READ_BYTES = 1 << 16
MAX_UNACKNOWLEDGED_BYTES = 1 << 19
"""Bytes that may be sent ahead to a client that acknowledges what it has shown."""
MAX_TERMINALS = 32
"""Terminals that one caller may have open at once: each is a process, and a tmux client."""
_KILL_TIMEOUT = 2.0
_WRITE_TIMEOUT = 30.0
"""Seconds after which a command that reads no keystrokes is given up."""
_SECRET_HOLD_SECONDS = 0.25
"""Seconds for which the end of the output is held back because a secret may begin there."""
_REMOVED_VARIABLES = ("TMUX", "TMUX_PANE", "AO_SESSION", "AO_TOKEN")
# Only a process itself can make a terminal its controlling terminal. A child program does so and then executes the
# command: a function between fork and exec would not be safe, because the daemon has threads.
_EXEC_WITH_CONTROLLING_TERMINAL = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


_TERMINAL_REPORTS = re.compile(
    rb"(\x1b\[[?>=]?[\d;]*[cnRIOt]|\x1b\]1[0-2];rgb:[\da-f]{4}/[\da-f]{4}/[\da-f]{4}(\x07|\x1b\\)"
    rb"|\x1bP[01]\$r[\d;]{0,9}[\" ]?[mpqr]?\x1b\\)+"
)
"""What a terminal sends without a key press: its identity, size, colors and focus. The pattern is exact: any other text between such
reports is typed and reaches the agent.
"""


@contextlib.contextmanager
def count_terminal(open_terminals: Counter[str], caller: str) -> Iterator[None]:
    """Count a terminal of a caller while it is open; raise Temporary if the caller has too many."""
    if open_terminals[caller] >= MAX_TERMINALS:
        raise Temporary(
            f"you have {MAX_TERMINALS} terminals open, and may have no more at once", "close one, and try again"
        )
    open_terminals[caller] += 1
    try:
        yield
    finally:
        open_terminals[caller] -= 1
        open_terminals += Counter()  # removes callers without terminals


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

    `refuse` is set if the caller may only watch: keystrokes close the socket, and it is called with the reason. `typed` is
    called once, before the first key press is passed on.
    """
    master, slave = os.openpty()
    try:
        os.set_blocking(master, False)
        _resize(master, columns, rows)
        process = await _start_command(argv, env, slave)
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
        await asyncio.shield(_wait_or_kill(process))
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(1000, "the terminal was closed")


async def _start_command(argv: Sequence[str], env: Mapping[str, str], slave: int) -> asyncio.subprocess.Process:
    """Start the command with the PTY as its controlling terminal."""
    inherited = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _EXEC_WITH_CONTROLLING_TERMINAL, *argv),
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
    window = _SendWindow()
    tasks = [
        asyncio.create_task(_send_output(websocket, master, window)),
        asyncio.create_task(_receive_input(websocket, master, window, refuse, typed)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect | TimeoutError):
            raise result


class _SendWindow:
    """The number of bytes sent and not yet acknowledged. A client that never acknowledges any is not waited for."""

    def __init__(self) -> None:
        self._unacknowledged = 0
        self._is_acknowledging = False
        self._room = asyncio.Event()
        self._room.set()

    def count_sent(self, count: int) -> None:
        """Record that bytes were sent."""
        self._unacknowledged += count
        self._update()

    def acknowledge(self, count: int) -> None:
        """Record that the client has shown bytes."""
        self._is_acknowledging = True
        self._unacknowledged = max(0, self._unacknowledged - count)
        self._update()

    async def wait_for_room(self) -> None:
        """Wait until more bytes may be sent."""
        await self._room.wait()

    def _update(self) -> None:
        """Allow or block sending by the number of bytes not acknowledged."""
        if self._is_acknowledging and self._unacknowledged >= MAX_UNACKNOWLEDGED_BYTES:
            self._room.clear()
        else:
            self._room.set()


async def _send_output(websocket: WebSocket, master: int, window: _SendWindow) -> None:
    """Send the PTY's output to the socket, without secrets, until the command ends."""
    loop = asyncio.get_running_loop()
    secrets, open_ = REDACTOR.terminal_filter(), True
    while open_:
        await window.wait_for_room()
        try:
            async with asyncio.timeout(_SECRET_HOLD_SECONDS if secrets.has_held_output else None):
                await _wait_until_ready(master, loop.add_reader, loop.remove_reader)
            chunk = _read(master)
            open_, output = bool(chunk), secrets.feed(chunk)
        except TimeoutError:
            output = secrets.finish()
        except BlockingIOError:
            continue
        except OSError:  # Linux reports this when the last program has closed the terminal
            open_, output = False, b""
        output += b"" if open_ else secrets.finish()
        if websocket.application_state is WebSocketState.DISCONNECTED:  # `_receive_input` has just closed it
            return
        if output:
            window.count_sent(len(output))
            await websocket.send_bytes(output)


def _read(master: int) -> bytes:
    """Read what is available, up to a chunk: a PTY returns only a few kilobytes at once, and each frame has a cost."""
    output = piece = os.read(master, MAX_READ_BYTES)
    while piece and len(output) < MAX_READ_BYTES:
        try:
            piece = os.read(master, MAX_READ_BYTES - len(output))
        except OSError:  # nothing available, or the end: the next call reports which
            break
        output += piece
    return output


async def _receive_input(
    websocket: WebSocket,
    master: int,
    window: _SendWindow,
    refuse: Callable[[str], None] | None,
    typed: Callable[[], Awaitable[None]] | None,
) -> None:
    """Handle the frames of the socket until it disconnects or sends something it may not."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if (keys := message.get("bytes")) is not None:
            if refuse is not None:
                refuse("who may only watch cannot type")
                await _refuse(websocket, "the role viewer may watch, and not type")
                return
            if typed is not None and not _TERMINAL_REPORTS.fullmatch(keys):
                await typed()
                typed = None
            await _write(master, keys)
            continue
        frame = _parse_frame(message.get("text") or "")
        if (size := _parse_size(frame)) is not None:
            _resize(master, *size)
        elif (count := _parse_acknowledgement(frame)) is not None:
            window.acknowledge(count)
        else:
            await _refuse(websocket, 'a text frame must be {"resize": [columns, rows]} or {"ack": bytes}')
            return


async def _refuse(websocket: WebSocket, reason: str) -> None:
    """Close the socket with a reason."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # it has just disconnected
        await websocket.close(1008, reason)


async def _write(master: int, keys: bytes) -> None:
    """Write keystrokes to the PTY; raise TimeoutError if the command does not read them."""
    loop = asyncio.get_running_loop()
    remaining = memoryview(keys)
    while remaining:
        try:
            remaining = remaining[os.write(master, remaining) :]
        except BlockingIOError:
            async with asyncio.timeout(_WRITE_TIMEOUT):
                await _wait_until_ready(master, loop.add_writer, loop.remove_writer)


async def _wait_until_ready(descriptor: int, watch: Callable[..., Any], unwatch: Callable[[int], Any]) -> None:
    """Wait until a descriptor can be read or written."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(descriptor, set_ready)
    try:
        await ready
    finally:
        unwatch(descriptor)


def _parse_frame(text: str) -> Mapping[str, Any]:
    """Return the JSON object of a text frame, or an empty one if it is none."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def _parse_size(frame: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the columns and rows that a frame sets, or None."""
    match frame.get("resize"):
        case [int(columns), int(rows)] if 1 <= columns <= 1000 and 1 <= rows <= 1000:
            return columns, rows
    return None


def _parse_acknowledgement(frame: Mapping[str, Any]) -> int | None:
    """Return the number of bytes that a frame acknowledges, or None."""
    match frame.get("ack"):
        case int(count) if count >= 0:
            return count
    return None


def _resize(master: int, columns: int, rows: int) -> None:
    """Set the size of the PTY."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _wait_or_kill(process: asyncio.subprocess.Process) -> None:
    """Wait for the command, which exits because its PTY is closed; kill it after a grace period."""
    try:
        async with asyncio.timeout(_KILL_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
