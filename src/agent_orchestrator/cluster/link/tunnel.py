"""A held terminal on a node, reached by a Unix socket here: what attaches to a holder attaches to this one alike.

Bytes go through unread, each as soon as it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent_orchestrator.cluster.link.channel import CHUNK, Channel
from agent_orchestrator.errors import AoError


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: Channel) -> None:
    """Carry bytes both ways until either side ends."""

    async def out() -> None:
        while data := await reader.read(CHUNK):
            await channel.send(data)

    async def back() -> None:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()

    ways = [asyncio.ensure_future(out()), asyncio.ensure_future(back())]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await channel.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Tunnel:
    """Listens on a Unix socket; each connection is a channel of its own."""

    def __init__(self, path: Path, dial: Callable[[], Awaitable[Channel]]) -> None:
        self.path = path
        self._dial = dial
        self._connections: set[asyncio.Task[None]] = set()
        self._socket = _listening(path)
        self._server: asyncio.Server | None = None
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, sock=self._socket, limit=CHUNK)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await relay(reader, writer, await self._dial())
        except AoError:  # the node is not there: who attached sees the end
            writer.close()
        finally:
            self._connections.discard(task)

    def close(self) -> None:
        """Listen no more, and hang up on who is connected."""
        for task in (self._task, *self._connections):
            task.cancel()
        if self._server is not None:
            self._server.close()
        else:
            self._socket.close()
        self.path.unlink(missing_ok=True)


def _listening(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(16)
    listening.setblocking(False)
    return listening
