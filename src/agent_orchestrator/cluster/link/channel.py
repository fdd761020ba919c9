"""Channels: byte streams over a link, each way, at the receiver's pace; they share the link with its calls."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from typing import TYPE_CHECKING

from agent_orchestrator.errors import Temporary

if TYPE_CHECKING:
    from agent_orchestrator.cluster.link.connection import NodeLink

MAX_CHUNK_BYTES = 1 << 16
"""Bytes in a frame, at most."""
WINDOW_BYTES = 1 << 18
"""Bytes of a channel that may be sent before the receiver has read them."""
DATA, CREDIT, CLOSE = 16, 17, 18
"""Kinds of frames: bytes, permission to send so many more bytes, end of both directions."""

_LENGTH = struct.Struct("!I")


class LinkLost(Temporary):
    """The connection is lost, and with it the answer: it is not known whether the call was carried out."""


class Channel:
    """A stream of bytes each way. The sender waits while the receiver does not read."""

    def __init__(self, link: NodeLink, number: int) -> None:
        self.link = link
        """The link that it belongs to."""
        self._number = number
        self._inbox: deque[bytearray] = deque()
        self._buffered = 0
        """Bytes in the inbox."""
        self._wake = asyncio.Event()
        self._credit = WINDOW_BYTES
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._has_ended = False
        """The other side sends no more."""
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Send bytes; raise `LinkLost` if the channel is closed."""
        view = memoryview(data)
        while view:
            await self._may_send.wait()
            if self._closed or self._has_ended:
                raise LinkLost("the channel is closed")
            piece = bytes(view[: min(MAX_CHUNK_BYTES, self._credit)])
            self._credit -= len(piece)
            if self._credit <= 0:
                self._may_send.clear()
            view = view[len(piece) :]
            await self.link.send_frame(DATA, self._number, piece)

    async def read(self) -> bytes:
        """Return the next bytes, or b"" if the other side has closed or the link is lost."""
        while not self._inbox:
            if self._has_ended or self._closed:
                return b""
            self._wake.clear()
            await self._wake.wait()
        piece = bytes(self._inbox.popleft())
        self._buffered -= len(piece)
        if not self._has_ended:
            with contextlib.suppress(LinkLost):
                await self.link.send_frame(CREDIT, self._number, _LENGTH.pack(len(piece)))
        return piece

    async def close(self) -> None:
        """Close both directions; repeating it does nothing."""
        if not self._closed:
            self._closed = True
            self._wake.set()
            self._may_send.set()
            self.link.forget_channel(self._number)
            if not self._has_ended:
                with contextlib.suppress(LinkLost):
                    await self.link.send_frame(CLOSE, self._number)

    def process_frame(self, kind: int, rest: bytes) -> None:
        """Process a frame for this channel."""
        if kind == DATA:
            self._store(rest)
            self._wake.set()
        elif kind == CREDIT:
            self._credit += _LENGTH.unpack(rest)[0]
            self._may_send.set()
        else:
            self.mark_ended()

    def _store(self, data: bytes) -> None:
        """Store received bytes; small pieces are joined into large ones, so that their memory stays close to their size."""
        if self._buffered > 2 * WINDOW_BYTES:
            raise ValueError("a channel was sent more than it has room for")
        self._buffered += len(data)
        if self._inbox and len(self._inbox[-1]) + len(data) <= MAX_CHUNK_BYTES:
            self._inbox[-1] += data
        elif data:
            self._inbox.append(bytearray(data))

    def mark_ended(self) -> None:
        """Mark that the other side sends no more; what was received can still be read."""
        self._has_ended = True
        self._wake.set()
        self._may_send.set()
