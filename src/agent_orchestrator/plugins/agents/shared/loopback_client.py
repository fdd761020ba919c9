"""Sends HTTP requests to an agent's own server on loopback: single calls, and a stream of events."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.errors import Temporary

RESPONSE_TIMEOUT = 10.0
MAX_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LoopbackResponse:
    """The answer to a call."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Return whether the call succeeded."""
        return 200 <= self.status < 300

    @property
    def data(self) -> Any:
        """Return the JSON of the body, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class LoopbackClient:
    """A server on a port of this machine, with a password. Every failure to answer is raised as `Temporary`."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._port = port
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode()

    async def call(
        self, method: str, path: str, body: Any = None, *, within: float = RESPONSE_TIMEOUT
    ) -> LoopbackResponse:
        """Send one request and return its whole answer."""
        try:
            async with asyncio.timeout(within), self._send_request(method, path, body) as (status, chunks):
                return LoopbackResponse(status, b"".join([chunk async for chunk in chunks]))
        except TimeoutError:
            raise Temporary(f"port {self._port} did not answer {method} {path} within {within:g} s") from None

    async def events(self, path: str, *, first: float, silence: float) -> AsyncGenerator[Any, None]:
        """Yield the JSON of each Server-Sent Event until the stream ends; raise `Temporary` if it starts late (`first`) or is
        silent (`silence` seconds).
        """
        patience = first
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(patience):
                    status, chunks = await stack.enter_async_context(self._send_request("GET", path, None))
            except TimeoutError:
                raise Temporary(f"port {self._port} did not answer GET {path}") from None
            if status != 200:
                raise Temporary(f"port {self._port} answered GET {path} with {status}")
            rest = b""
            while True:
                try:
                    async with asyncio.timeout(patience):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    raise Temporary(f"port {self._port} has been silent for {patience:g} s") from None
                if chunk is None:
                    return
                patience = silence
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        with contextlib.suppress(ValueError, RecursionError):
                            yield json.loads(line[5:])

    @contextlib.asynccontextmanager
    async def _send_request(self, method: str, path: str, body: Any) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Send a request; give the status and the chunks of the body."""
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=MAX_HEAD_BYTES)
            content = b"" if body is None else json.dumps(body).encode()
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Basic {self._login}\r\n"
                f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            await writer.drain()
            status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            yield int(status_line.split()[1]), _read_body(reader, headers)
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise Temporary(f"port {self._port} cannot be spoken to: {error or type(error).__name__}") from None
        finally:
            if writer is not None:
                writer.close()


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body: chunked, of a given length, or until the connection closes."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).partition(b";")[0] or b"0", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while chunk := await reader.read(MAX_HEAD_BYTES):
            yield chunk
