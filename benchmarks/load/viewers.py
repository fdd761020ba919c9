"""Viewers of the board, the event log and terminals, and programs that poll."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agent_orchestrator.testing.demo_agent.directives import CHATTER
from benchmarks.load.connection import AsyncHTTPConnection, stream
from benchmarks.load.plan import LoadPlan

UNREAD_CONNECTIONS = 2
"""Further connections that never read."""
ACK_BYTES = 1 << 16
"""Bytes after which a terminal acknowledges its output, as the dashboard's does."""
_HEAD = re.compile(rb"\[chatter (\d+)\]\r\n")
_CLEAR_SCREEN = b"\x1b[H\x1b[2J"


@dataclass(slots=True)
class EventLogViewer:
    """A viewer of the event log, which checks that the numbers have no gap and are unique."""

    first: int = 0
    last: int = 0
    count: int = 0
    wrong: list[str] = field(default_factory=list)

    def receive(self, frame: bytes) -> None:
        """Check one event."""
        if not frame.startswith(b"id: "):
            return
        number = int(frame[4 : frame.index(b"\n")])
        if self.last and number != self.last + 1:
            self.wrong.append(f"{number} after {self.last}")
        self.first = self.first or number
        self.last = number
        self.count += 1


@dataclass(slots=True)
class BoardViewer:
    """A viewer of the board, which records its frames; all viewers must get the same."""

    frames: list[tuple[int, int]] = field(default_factory=list)

    def receive(self, frame: bytes) -> None:
        """Record one frame."""
        if b"event: live" in frame[:40]:
            number = int(frame[4 : frame.index(b"\n")])
            self.frames.append((number, zlib.crc32(frame)))


@dataclass(slots=True)
class TerminalViewer:
    """A viewer of a terminal, which checks that the printed blocks arrive unchanged and in order."""

    session: str
    block: bytes
    first: int = -1
    last: int = -1
    count: int = 0
    size: int = 0
    skipped: int = 0
    """How often the viewer was too slow and got only the end of the output, as designed."""
    wrong: list[str] = field(default_factory=list)
    _buffer: bytes = b""

    def receive(self, data: bytes) -> None:
        """Check a piece of output, of any size."""
        self.size += len(data)
        if _CLEAR_SCREEN in data and self.count:
            self.skipped += 1
            self.last = -1
        text = self._buffer + data
        at = 0
        while head := _HEAD.search(text, at):
            end = head.end() + len(self.block)
            if len(text) < end:
                if not self.block.startswith(text[head.end() :]):
                    self.wrong.append(f"block {head[1].decode()} is not as it was printed")
                    at = head.end()
                    continue
                break
            if text[head.end() : end] != self.block:
                self.wrong.append(f"block {head[1].decode()} is not as it was printed")
                at = head.end()
                continue
            self._add_block(int(head[1]))
            at = end
        self._buffer = text[at:] if head else text[max(at, len(text) - 40) :]

    def _add_block(self, number: int) -> None:
        if self.last >= 0 and number != self.last + 1:
            self.wrong.append(f"block {number} after {self.last}")
        if self.first < 0:
            self.first = number
        self.last = number
        self.count += 1


def printed_block(size: int) -> bytes:
    """Return the block that an agent prints per second below its head, as shown by a terminal."""
    text = (CHATTER * (1 + size // len(CHATTER)))[:size].rstrip(b"\n") + b"\n"
    return text.replace(b"\n", b"\r\n")


def play(pipe: Connection, url: str, token: str, sessions: Sequence[str], plan: LoadPlan) -> dict[str, Any]:
    """Run all viewers until a message arrives; return what they got."""
    return asyncio.run(_view(pipe, url, token, sessions, plan))


async def _view(pipe: Connection, url: str, token: str, sessions: Sequence[str], plan: LoadPlan) -> dict[str, Any]:
    boards = [BoardViewer() for _ in range(plan.live)]
    logs = [EventLogViewer() for _ in range(plan.events)]
    block = printed_block(plan.bytes_each)
    screens = [TerminalViewer(session, block) for session in sessions[: plan.terminals]]
    poll_seconds: list[float] = []
    ended: list[str] = []
    tasks = [
        *(_follow_stream(f"board {n}", url, token, "/api/live", viewer, ended) for n, viewer in enumerate(boards)),
        *(_follow_stream(f"log {n}", url, token, "/api/events", viewer, ended) for n, viewer in enumerate(logs)),
        *(_follow_terminal(url, token, viewer, ended) for viewer in screens),
        *(_poll(url, token, sessions, Random(n), poll_seconds) for n in range(plan.pollers)),
    ]
    running = [asyncio.create_task(task) for task in tasks]
    deaf = [await asyncio.to_thread(_connect_without_reading, url, token) for _ in range(UNREAD_CONNECTIONS)]
    while not (all(viewer.frames for viewer in boards) and all(viewer.size for viewer in screens)):
        await asyncio.sleep(0.05)
        for task in running:
            if task.done():
                task.result()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    for task in running:
        task.cancel()
    errors = [error for error in await asyncio.gather(*running, return_exceptions=True) if isinstance(error, Exception)]
    for line in deaf:
        line.close()
    return {
        "boards": [viewer.frames for viewer in boards],
        "logs": logs,
        "screens": screens,
        "asked": poll_seconds,
        "ended": [*ended, *(f"{type(error).__name__}: {error}" for error in errors)],
    }


async def _follow_stream(
    name: str, url: str, token: str, path: str, viewer: BoardViewer | EventLogViewer, ended: list[str]
) -> None:
    try:
        async for piece in stream(url, token, path, "text/event-stream"):
            for frame in piece.split(b"\n\n"):
                viewer.receive(frame)
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    ended.append(f"{name} was cut off")


async def _follow_terminal(url: str, token: str, viewer: TerminalViewer, ended: list[str]) -> None:
    address = f"{url.replace('http', 'ws', 1)}/api/sessions/{viewer.session}/terminal?columns=120&rows=40"
    waiting = 0
    async with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, max_size=None) as line:
        try:
            async for data in line:
                assert isinstance(data, bytes)
                viewer.receive(data)
                waiting += len(data)
                if waiting > ACK_BYTES:
                    await line.send(json.dumps({"ack": waiting}))
                    waiting = 0
        except ConnectionClosed as error:
            ended.append(f"the terminal of {viewer.session} was closed: {error}")


async def _poll(url: str, token: str, sessions: Sequence[str], random: Random, poll_seconds: list[float]) -> None:
    """Request the list every two seconds, with its ETag, and sometimes a session's timeline."""
    connection, etag = AsyncHTTPConnection(url, token), ""
    await asyncio.sleep(2 * random.random())
    while True:
        started_at = time.monotonic()
        _, response_headers, _ = await connection.request(
            "GET", "/api/sessions?all=1", headers=f"If-None-Match: {etag}\r\n" if etag else ""
        )
        etag = response_headers.get("etag", "")
        poll_seconds.append(time.monotonic() - started_at)
        if random.random() < 0.3:
            started_at = time.monotonic()
            await connection.request("GET", f"/api/sessions/{random.choice(sessions)}/timeline")
            poll_seconds.append(time.monotonic() - started_at)
        await asyncio.sleep(2.0)


def _connect_without_reading(url: str, token: str) -> socket.socket:
    address = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((address.hostname or "", address.port or 0))
    connection.sendall(
        f"GET /api/live HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    return connection
