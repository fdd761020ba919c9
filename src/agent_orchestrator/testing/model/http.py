"""A minimal HTTP server: one request per connection, whole answers and server-sent events; it notices when a client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

_MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelHttpRequest:
    """A received request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class ClientDisconnected(Exception):
    """The client disconnected before its answer was complete."""


class AnswerWriter:
    """Sends the answer to a client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send_json(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send an object as JSON."""
        data = json.dumps(body, ensure_ascii=False).encode()
        self._send_head(
            status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        )
        await self._send(data)

    async def send_headers(self) -> None:
        """Send headers without a body."""
        self._send_head(200, {"content-length": "0"})
        await self._send(b"")

    async def begin_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream of events, in chunked encoding so that a client can distinguish a cut from the end."""
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        self._send_head(200, {**kind, "transfer-encoding": "chunked", **(headers or {})})
        await self._send(b"")

    async def send_event(self, data: object, name: str | None = None, *, last: bool = False) -> None:
        """Send one event; `last` ends the stream."""
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        event = (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
        await self._send(b"%x\r\n%b\r\n%b" % (len(event), event, b"0\r\n\r\n" if last else b""))

    def abort(self) -> None:
        """Abort the connection at once."""
        self._writer.transport.abort()

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
        lines = [
            f"HTTP/1.1 {status} {phrase}",
            "connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            raise ClientDisconnected from None


Handler = Callable[[ModelHttpRequest, AnswerWriter], Awaitable[None]]


class ModelHttpServer:
    """Listens on loopback; a handler is cancelled when its client disconnects or the server stops."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        """Listen and return the port; raise `OSError` if it is in use."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=_MAX_LINE_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end open connections."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            try:
                await self._serve(reader, writer)
            except asyncio.CancelledError:
                writer.transport.abort()
            finally:
                writer.close()
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await _read(reader, writer)
        handling = asyncio.ensure_future(self._handler(received, AnswerWriter(writer)))
        disconnected = asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({handling, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected.cancel()
            handling.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientDisconnected, ConnectionError):
                await handling


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ModelHttpRequest:
    method, path, _ = (await reader.readuntil(b"\r\n")).decode("latin-1").split()
    headers: dict[str, str] = {}
    while (line := (await reader.readuntil(b"\r\n")).decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return ModelHttpRequest(method, path, headers, await _chunks(reader))
    return ModelHttpRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length") or 0)))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)
