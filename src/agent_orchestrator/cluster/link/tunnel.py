"""A terminal on a node, reached by a Unix socket here; clients attach to it as they attach to a local terminal holder.

Bytes are passed on unchanged, as soon as they arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent_orchestrator.cluster.link.channel import MAX_CHUNK_BYTES, Channel
from agent_orchestrator.errors import AoError


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: Channel) -> None:
    """Copy bytes both ways until either side ends, then close both."""

    async def send() -> None:
        """Copy from the reader to the channel."""
        while data := await reader.read(MAX_CHUNK_BYTES):
            await channel.send(data)

    async def receive() -> None:
        """Copy from the channel to the writer."""
        while data := await channel.read():
            writer.write(data)
            await writer.drain()

    directions = [asyncio.ensure_future(send()), asyncio.ensure_future(receive())]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        await channel.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Tunnel:
    """A Unix socket; each connection to it opens its own channel."""

    def __init__(self, path: Path, dial: Callable[[], Awaitable[Channel]]) -> None:
        self.path = path
        self._open_channel = dial
        self._connections: set[asyncio.Task[None]] = set()
        self._socket = _bind(path)
        self._server: asyncio.Server | None = None
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        """Serve the socket."""
        self._server = await asyncio.start_unix_server(self._serve_connection, sock=self._socket, limit=MAX_CHUNK_BYTES)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection; close it if the node cannot be reached."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await relay(reader, writer, await self._open_channel())
        except AoError:  # the node cannot be reached: the client sees its connection end
            writer.close()
        finally:
            self._connections.discard(task)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        for task in (self._task, *self._connections):
            task.cancel()
        if self._server is not None:
            self._server.close()
        else:
            self._socket.close()
        self.path.unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    """Return a Unix socket that listens at this path, for the owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server_socket = socket.socket(socket.AF_UNIX)
    server_socket.bind(str(path))
    path.chmod(0o600)
    server_socket.listen(16)
    server_socket.setblocking(False)
    return server_socket
