"""People who look on: at the board, at the event log, at terminals; and programs that ask again and again."""

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
from benchmarks.load.connection import Line, stream
from benchmarks.load.plan import Plan

DEAF = 2
"""Others beside them who never read what they are sent."""
ACKNOWLEDGED = 1 << 16
"""Bytes after which a terminal says what it has shown, as the dashboard's does."""
_HEAD = re.compile(rb"\[chatter (\d+)\]\r\n")
_AGAIN = b"\x1b[H\x1b[2J"


@dataclass(slots=True)
class Told:
    """What came to a viewer of the event log: numbers without a gap, each once."""

    first: int = 0
    last: int = 0
    count: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, frame: bytes) -> None:
        """One event."""
        if not frame.startswith(b"id: "):
            return
        number = int(frame[4 : frame.index(b"\n")])
        if self.last and number != self.last + 1:
            self.wrong.append(f"{number} after {self.last}")
        self.first = self.first or number
        self.last = number
        self.count += 1


@dataclass(slots=True)
class Board:
    """What came to a viewer of the board: frames that are the same for everybody."""

    frames: list[tuple[int, int]] = field(default_factory=list)

    def take(self, frame: bytes) -> None:
        """One frame."""
        if b"event: live" in frame[:40]:
            number = int(frame[4 : frame.index(b"\n")])
            self.frames.append((number, zlib.crc32(frame)))


@dataclass(slots=True)
class Shown:
    """What came to a terminal's viewer: blocks one after the other, each as it was printed."""

    session: str
    block: bytes
    first: int = -1
    last: int = -1
    count: int = 0
    size: int = 0
    skipped: int = 0
    """Times that it was too slow and got the end of the output instead, as is meant."""
    wrong: list[str] = field(default_factory=list)
    _rest: bytes = b""

    def take(self, data: bytes) -> None:
        """Output as it comes, in any pieces."""
        self.size += len(data)
        if _AGAIN in data and self.count:
            self.skipped += 1
            self.last = -1
        text = self._rest + data
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
            self._note(int(head[1]))
            at = end
        self._rest = text[at:] if head else text[max(at, len(text) - 40) :]

    def _note(self, number: int) -> None:
        if self.last >= 0 and number != self.last + 1:
            self.wrong.append(f"block {number} after {self.last}")
        if self.first < 0:
            self.first = number
        self.last = number
        self.count += 1


def printed(size: int) -> bytes:
    """What an agent prints in a second below the block's head, as a terminal shows it."""
    text = (CHATTER * (1 + size // len(CHATTER)))[:size].rstrip(b"\n") + b"\n"
    return text.replace(b"\n", b"\r\n")


def play(pipe: Connection, url: str, token: str, sessions: Sequence[str], plan: Plan) -> dict[str, Any]:
    """Look on until told to stop."""
    return asyncio.run(_look(pipe, url, token, sessions, plan))


async def _look(pipe: Connection, url: str, token: str, sessions: Sequence[str], plan: Plan) -> dict[str, Any]:
    boards = [Board() for _ in range(plan.live)]
    logs = [Told() for _ in range(plan.events)]
    block = printed(plan.bytes_each)
    screens = [Shown(session, block) for session in sessions[: plan.terminals]]
    asked: list[float] = []
    ended: list[str] = []
    tasks = [
        *(_following(f"board {n}", url, token, "/api/live", one, ended) for n, one in enumerate(boards)),
        *(_following(f"log {n}", url, token, "/api/events", one, ended) for n, one in enumerate(logs)),
        *(_at_terminal(url, token, one, ended) for one in screens),
        *(_polling(url, token, sessions, Random(n), asked) for n in range(plan.pollers)),
    ]
    running = [asyncio.create_task(task) for task in tasks]
    deaf = [await asyncio.to_thread(_deaf, url, token) for _ in range(DEAF)]
    while not (all(one.frames for one in boards) and all(one.size for one in screens)):
        await asyncio.sleep(0.05)
        for task in running:
            if task.done():
                task.result()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    for task in running:
        task.cancel()
    failed = [one for one in await asyncio.gather(*running, return_exceptions=True) if isinstance(one, Exception)]
    for line in deaf:
        line.close()
    return {
        "boards": [one.frames for one in boards],
        "logs": logs,
        "screens": screens,
        "asked": asked,
        "ended": [*ended, *(f"{type(one).__name__}: {one}" for one in failed)],
    }


async def _following(name: str, url: str, token: str, path: str, viewer: Board | Told, ended: list[str]) -> None:
    try:
        async for piece in stream(url, token, path, "text/event-stream"):
            for frame in piece.split(b"\n\n"):
                viewer.take(frame)
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    ended.append(f"{name} was cut off")


async def _at_terminal(url: str, token: str, viewer: Shown, ended: list[str]) -> None:
    address = f"{url.replace('http', 'ws', 1)}/api/sessions/{viewer.session}/terminal?columns=120&rows=40"
    waiting = 0
    async with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, max_size=None) as line:
        try:
            async for data in line:
                assert isinstance(data, bytes)
                viewer.take(data)
                waiting += len(data)
                if waiting > ACKNOWLEDGED:
                    await line.send(json.dumps({"ack": waiting}))
                    waiting = 0
        except ConnectionClosed as error:
            ended.append(f"the terminal of {viewer.session} was closed: {error}")


async def _polling(url: str, token: str, sessions: Sequence[str], chance: Random, asked: list[float]) -> None:
    """The list every two seconds, if it changed, and a session closer now and then."""
    line, etag = Line(url, token), ""
    await asyncio.sleep(2 * chance.random())
    while True:
        begun = time.monotonic()
        _, told, _ = await line.ask("GET", "/api/sessions?all=1", headers=f"If-None-Match: {etag}\r\n" if etag else "")
        etag = told.get("etag", "")
        asked.append(time.monotonic() - begun)
        if chance.random() < 0.3:
            begun = time.monotonic()
            await line.ask("GET", f"/api/sessions/{chance.choice(sessions)}/timeline")
            asked.append(time.monotonic() - begun)
        await asyncio.sleep(2.0)


def _deaf(url: str, token: str) -> socket.socket:
    place = urlsplit(url)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((place.hostname or "", place.port or 0))
    line.sendall(f"GET /api/live HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return line
