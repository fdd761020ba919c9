"""Git's lines: four hexadecimal digits of length, then the content; `0000` ends a section."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from agent_orchestrator.errors import UsageError

FLUSH = b"0000"
LONGEST = 65520
"""Bytes of a line, with its length."""


def line(content: bytes) -> bytes:
    """One line."""
    return b"%04x%s" % (len(content) + 4, content)


def banded(band: int, content: bytes) -> Iterable[bytes]:
    """Content on one of the bands that an answer has: 1 for the program, 2 for people."""
    room = LONGEST - 5
    for start in range(0, len(content), room):
        yield line(bytes([band]) + content[start : start + room])


class Source:
    """What is sent to us, piece by piece; never more of it in memory than a piece and what was asked for."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    async def read(self, most: int = 1 << 16) -> bytes:
        """Up to so many bytes; empty: there are no more."""
        while not self._rest:
            try:
                self._rest = await anext(self._pieces)
            except StopAsyncIteration:
                return b""
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    async def exactly(self, count: int) -> bytes:
        """So many bytes. Raises `UsageError` when there are fewer."""
        found = b""
        while len(found) < count:
            piece = await self.read(count - len(found))
            if not piece:
                raise UsageError("what Git sent is cut off", "try again")
            found += piece
        return found

    async def line(self) -> bytes | None:
        """The next line's content; none: the section has ended."""
        head = await self.exactly(4)
        try:
            length = int(head, 16)
        except ValueError:
            length = -1
        if length == 0:
            return None
        if not 4 <= length <= LONGEST:
            raise UsageError("this is not what Git sends", "use git for it")
        return await self.exactly(length - 4)

    async def drop(self, most: int) -> None:
        """Take up to so many bytes, and forget them."""
        while most > 0 and (piece := await self.read()):
            most -= len(piece)
