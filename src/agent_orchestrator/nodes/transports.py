"""WebSockets as a link's transport: those that the daemon's server accepts, and those of `websockets`, which a node dials with."""

from __future__ import annotations

from typing import Any


class StarletteTransport:
    """A WebSocket of Starlette or FastAPI, accepted already."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket

    async def send(self, frame: bytes) -> None:
        """One binary message."""
        await self._websocket.send_bytes(frame)

    async def receive(self) -> bytes:
        """One binary message."""
        frame: bytes = await self._websocket.receive_bytes()
        return frame

    async def close(self) -> None:
        """Hang up."""
        await self._websocket.close()


class SocketTransport:
    """A connection of `websockets`, of either side."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, frame: bytes) -> None:
        """One binary message."""
        await self._connection.send(frame)

    async def receive(self) -> bytes:
        """One binary message."""
        frame: bytes = await self._connection.recv(decode=False)
        return frame

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()
