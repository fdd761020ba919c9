"""Answers without an end: events, live output, logs. Each ends when its reader goes, its source ends, or the daemon does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from fastapi import Response
from starlette.types import Receive, Scope, Send

SEND_LIMIT = 10.0
"""Seconds a reader may take to make room. A slower one is cut off and comes back for the rest; nobody waits for it."""

BEGIN_LIMIT = 1.0
"""Seconds after which an answer begins even if its source has said nothing yet."""

_END = object()


class Stream(Response):
    """Sends what a source gives as it comes; `pulse` is sent whenever `idle` seconds brought nothing."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        closing: asyncio.Event,
        media_type: str,
        *,
        first: bytes = b"",
        pulse: bytes = b"",
        idle: float | None = None,
    ) -> None:
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._source, self._closing = source, closing
        self._first, self._pulse, self._idle = first, pulse, idle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        enough = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._closing.wait())]
        self._begun = False
        try:
            if self._first:
                await self._send(send, self._first)
            async with aclosing(
                _items(self._source, enough, self._idle, self._idle if self._first else BEGIN_LIMIT)
            ) as items:
                async for item in items:
                    async with asyncio.timeout(SEND_LIMIT):
                        await self._send(send, item or self._pulse)
        except TimeoutError:
            return
        finally:
            for task in enough:
                task.cancel()
            await asyncio.gather(*enough, return_exceptions=True)
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, body: bytes, more: bool = True) -> None:
        """The answer begins with its first bytes: a source that fails before that still gets a proper error."""
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if body or not more:
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _items(
    source: AsyncIterator[bytes], enough: Sequence[asyncio.Task[object]], idle: float | None, patience: float | None
) -> AsyncGenerator[bytes, None]:
    """What the source gives until one of `enough` is done; empty bytes when it is silent for `patience`, then for each `idle`."""
    step: asyncio.Task[object] | None = None
    try:
        while True:
            if step is None:
                step = asyncio.create_task(_next(source))
            await asyncio.wait([step, *enough], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            patience = idle
            if any(task.done() for task in enough):
                return
            if not step.done():
                yield b""
                continue
            item = step.result()
            step = None
            if item is _END:
                return
            assert isinstance(item, bytes)
            if item:
                yield item
    finally:
        if step is not None:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        if (close := getattr(source, "aclose", None)) is not None:
            await close()


async def _next(source: AsyncIterator[bytes]) -> object:
    return await anext(source, _END)
