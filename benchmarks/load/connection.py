"""One HTTP connection, kept open, with as little of a client around it as there can be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Line:
    """Asks one thing after the other."""

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url)
        self._head = f"Host: {self._place.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: object = None, headers: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        for _ in range(2):  # a connection that was idle for too long is closed by the other side
            fresh = self._streams is None
            try:
                return await self._ask(method, path, body, headers)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if fresh:
                    raise
        raise AssertionError("not reached")

    async def _ask(self, method: str, path: str, body: object, headers: str) -> tuple[int, dict[str, str], bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._place.hostname, self._place.port, limit=1 << 22)
        reader, writer = self._streams
        sent = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n" if sent else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}{headers}\r\n".encode() + sent)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        told = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        length = int(told.get("content-length", "0"))
        return int(head[0].split()[1]), told, await reader.readexactly(length) if length else b""

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def stream(url: str, token: str, path: str, accept: str) -> AsyncIterator[bytes]:
    """An answer without an end, piece by piece as it was sent."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 24)
    try:
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\n\r\n"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise ConnectionError(answer.decode("latin-1").splitlines()[0])
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    finally:
        writer.close()
