"""WebSockets as a link's transport: those that the daemon's server accepts, and those of `websockets`, which a node dials with."""

from __future__ import annotations

from typing import Any

_OVER, _REFUSED = 1000, 1008
"""Codes of a WebSocket's end."""


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

    async def close(self, reason: str = "") -> None:
        """Hang up."""
        await self._websocket.close(_REFUSED if reason else _OVER, _short(reason))


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

    async def close(self, reason: str = "") -> None:
        """Hang up."""
        await self._connection.close(_REFUSED if reason else _OVER, _short(reason))


def _short(reason: str) -> str:
    """As much of it as a closing frame has room for."""
    return reason.encode()[:120].decode(errors="ignore")
