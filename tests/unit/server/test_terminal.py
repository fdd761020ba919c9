"""Serving a terminal that ends at both ends at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from agent_orchestrator.server.terminal import serve_terminal

pytestmark = pytest.mark.anyio


class _Socket:
    """A viewer's socket as Starlette has it: nothing may be sent once it is closed, which takes a moment."""

    def __init__(self, *, gone: bool = False) -> None:
        self.application_state = WebSocketState.CONNECTING
        self.gone = gone
        self.output_sent = asyncio.Event()
        self.codes: list[int] = []

    async def accept(self) -> None:
        if self.gone:
            raise WebSocketDisconnect(1006)
        self.application_state = WebSocketState.CONNECTED

    async def send_bytes(self, _output: bytes) -> None:
        if self.application_state is WebSocketState.DISCONNECTED:
            raise RuntimeError('Cannot call "send" once a close message has been sent.')
        self.output_sent.set()
        await asyncio.sleep(0)

    async def receive(self) -> dict[str, Any]:
        await self.output_sent.wait()
        return {"type": "websocket.receive", "bytes": b"x"}

    async def close(self, code: int, _reason: str) -> None:
        if self.application_state is WebSocketState.DISCONNECTED:
            raise RuntimeError('Cannot call "send" once a close message has been sent.')
        self.application_state = WebSocketState.DISCONNECTED
        self.codes.append(code)
        await asyncio.sleep(0.05)


async def test_typing_of_a_read_only_viewer_is_refused_during_output() -> None:
    socket, refused = _Socket(), list[str]()
    await serve_terminal(cast("WebSocket", socket), ["yes"], {}, 80, 24, refused.append)
    assert refused == ["who may only watch cannot type"] and socket.codes == [1008]


async def test_a_viewer_that_is_gone_before_the_start_is_ignored() -> None:
    await serve_terminal(cast("WebSocket", _Socket(gone=True)), ["yes"], {}, 80, 24)
