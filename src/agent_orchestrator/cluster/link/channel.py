"""A stream of bytes over a link, each way, with the receiver's pace: one of many beside the link's calls."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from typing import TYPE_CHECKING

from agent_orchestrator.errors import Temporary

if TYPE_CHECKING:
    from agent_orchestrator.cluster.link.connection import Link

CHUNK = 1 << 16
"""Bytes in a frame, at most."""
WINDOW = 1 << 18
"""Bytes of a channel that may be under way to somebody who has not read them yet."""
DATA, CREDIT, CLOSE = 16, 17, 18
"""Kinds of frames: bytes, so many more may come, no more of either."""

_LENGTH = struct.Struct("!I")


class LinkLost(Temporary):
    """The connection is gone, and with it the answer: it is not known whether the call was carried out."""


class Channel:
    """A stream of bytes each way. Who sends waits while the other side does not read."""

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        """The link that it belongs to."""
        self._number = number
        self._inbox: deque[bytearray] = deque()
        self._kept = 0
        """Bytes in the inbox."""
        self._wake = asyncio.Event()
        self._credit = WINDOW
        self._room = asyncio.Event()
        self._room.set()
        self._over = False
        """The other side sends no more."""
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Send bytes; raises `LinkLost` when the channel is closed."""
        view = memoryview(data)
        while view:
            await self._room.wait()
            if self._closed or self._over:
                raise LinkLost("the channel is closed")
            piece = bytes(view[: min(CHUNK, self._credit)])
            self._credit -= len(piece)
            if self._credit <= 0:
                self._room.clear()
            view = view[len(piece) :]
            await self.link.send_frame(DATA, self._number, piece)

    async def read(self) -> bytes:
        """The next bytes; empty: the other side has closed, or the link is lost."""
        while not self._inbox:
            if self._over or self._closed:
                return b""
            self._wake.clear()
            await self._wake.wait()
        piece = bytes(self._inbox.popleft())
        self._kept -= len(piece)
        if not self._over:
            with contextlib.suppress(LinkLost):
                await self.link.send_frame(CREDIT, self._number, _LENGTH.pack(len(piece)))
        return piece

    async def close(self) -> None:
        """No more either way; twice is once."""
        if not self._closed:
            self._closed = True
            self._wake.set()
            self._room.set()
            self.link.forget_channel(self._number)
            if not self._over:
                with contextlib.suppress(LinkLost):
                    await self.link.send_frame(CLOSE, self._number)

    def take(self, kind: int, rest: bytes) -> None:
        """A frame for this channel has come."""
        if kind == DATA:
            self._keep(rest)
            self._wake.set()
        elif kind == CREDIT:
            self._credit += _LENGTH.unpack(rest)[0]
            self._room.set()
        else:
            self.end()

    def _keep(self, data: bytes) -> None:
        """Keep what has come; of many small pieces large ones are made, so that they cost what they hold."""
        if self._kept > 2 * WINDOW:
            raise ValueError("a channel was sent more than it has room for")
        self._kept += len(data)
        if self._inbox and len(self._inbox[-1]) + len(data) <= CHUNK:
            self._inbox[-1] += data
        elif data:
            self._inbox.append(bytearray(data))

    def end(self) -> None:
        """The other side sends no more, or there is no other side any more; what has come can still be read."""
        self._over = True
        self._wake.set()
        self._room.set()
