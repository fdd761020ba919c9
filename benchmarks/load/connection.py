"""A minimal HTTP client over one connection that is kept open, and a reader of streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class AsyncHTTPConnection:
    """A connection for one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url)
        self._head = f"Host: {self._address.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(
        self, method: str, path: str, body: object = None, headers: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers and body of the answer."""
        for _ in range(2):  # a connection that was idle for too long is closed by the other side
            fresh = self._streams is None
            try:
                return await self._request(method, path, body, headers)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if fresh:
                    raise
        raise AssertionError("not reached")

    async def _request(self, method: str, path: str, body: object, headers: str) -> tuple[int, dict[str, str], bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port, limit=1 << 22)
        reader, writer = self._streams
        payload = b"" if body is None else json.dumps(body).encode()
        content_headers = f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n" if payload else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{content_headers}{headers}\r\n".encode() + payload)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        response_headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        length = int(response_headers.get("content-length", "0"))
        return int(head[0].split()[1]), response_headers, await reader.readexactly(length) if length else b""

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def stream(url: str, token: str, path: str, accept: str) -> AsyncIterator[bytes]:
    """Yield the chunks of an endless answer."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\n\r\n"
        writer.write(head.encode())
        response_head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in response_head.split(b"\r\n")[0]:
            raise ConnectionError(response_head.decode("latin-1").splitlines()[0])
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    finally:
        writer.close()
