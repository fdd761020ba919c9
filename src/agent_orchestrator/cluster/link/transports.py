"""WebSockets as a link's transport: those that the daemon's server accepts, and those of `websockets`, which a node connects with."""

from __future__ import annotations

from typing import Any

_NORMAL, _REFUSED = 1000, 1008
"""Codes that close a WebSocket: normal, and refused."""


class StarletteTransport:
    """A WebSocket of Starlette or FastAPI that was accepted already."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket

    async def send(self, frame: bytes) -> None:
        """Send one binary message."""
        await self._websocket.send_bytes(frame)

    async def receive(self) -> bytes:
        """Return the next binary message."""
        frame: bytes = await self._websocket.receive_bytes()
        return frame

    async def close(self, reason: str = "") -> None:
        """Close the connection; a reason marks it as refused."""
        await self._websocket.close(_REFUSED if reason else _NORMAL, _close_reason(reason))


class SocketTransport:
    """A connection of `websockets`, of the client or the server side."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, frame: bytes) -> None:
        """Send one binary message."""
        await self._connection.send(frame)

    async def receive(self) -> bytes:
        """Return the next binary message."""
        frame: bytes = await self._connection.recv(decode=False)
        return frame

    async def close(self, reason: str = "") -> None:
        """Close the connection; a reason marks it as refused."""
        await self._connection.close(_REFUSED if reason else _NORMAL, _close_reason(reason))


def _close_reason(reason: str) -> str:
    """Return as much of a reason as a closing frame has room for."""
    return reason.encode()[:120].decode(errors="ignore")
