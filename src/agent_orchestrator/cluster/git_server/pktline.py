"""Git's protocol lines: four hexadecimal digits of length, then the content; `0000` ends a section."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from agent_orchestrator.errors import UsageError

FLUSH = b"0000"
MAX_LINE_BYTES = 65520
"""Bytes of a line, at most, with its length."""


def encode_line(content: bytes) -> bytes:
    """Return one line."""
    return b"%04x%s" % (len(content) + 4, content)


def encode_band(band: int, content: bytes) -> Iterable[bytes]:
    """Yield lines with content on one of an answer's bands: 1 for the program, 2 for people."""
    room = MAX_LINE_BYTES - 5
    for start in range(0, len(content), room):
        yield encode_line(bytes([band]) + content[start : start + room])


class RequestStream:
    """A request body that is read piece by piece; holds no more of it than a piece and the requested bytes."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = b""

    async def read(self, most: int = 1 << 16) -> bytes:
        """Return up to `most` bytes, or b"" at the end."""
        while not self._buffer:
            try:
                self._buffer = await anext(self._pieces)
            except StopAsyncIteration:
                return b""
        piece, self._buffer = self._buffer[:most], self._buffer[most:]
        return piece

    async def read_exactly(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises `UsageError` if there are fewer."""
        content = b""
        while len(content) < count:
            piece = await self.read(count - len(content))
            if not piece:
                raise UsageError("what Git sent is cut off", "try again")
            content += piece
        return content

    async def read_line(self) -> bytes | None:
        """Return the next line's content, or None at the end of a section."""
        head = await self.read_exactly(4)
        try:
            length = int(head, 16)
        except ValueError:
            length = -1
        if length == 0:
            return None
        if not 4 <= length <= MAX_LINE_BYTES:
            raise UsageError("this is not what Git sends", "use git for it")
        return await self.read_exactly(length - 4)

    async def discard(self, most: int) -> None:
        """Read up to `most` bytes, and discard them."""
        while most > 0 and (piece := await self.read()):
            most -= len(piece)
