"""Endless answers: events, live output, logs. Each ends with its reader, its source, or the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SEND_TIMEOUT = 10.0
"""Seconds within which a reader must accept data. A slower one is disconnected and may resume; nothing else waits for it."""

BEGIN_TIMEOUT = 1.0
"""Seconds after which an answer begins even if its source has produced nothing yet."""


class EndlessResponse(Response):
    """An answer that sends what a source yields; `pulse` is sent after every `idle` seconds of silence.

    A piece costs one wake-up and one write: one task each waits for the reader's and the daemon's end, not one per piece.
    """

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
        self._has_begun = self._is_sending = False
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        parts: list[Coroutine[Any, Any, object]] = [
            self._send_all(send),
            *([] if self._first and self._idle is None else [self._send_pulses(send)]),
            _wait_for_disconnect(receive),
            self._closing.wait(),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            if (close := getattr(self._source, "aclose", None)) is not None:
                await close()
        errors = [result for result in results if isinstance(result, Exception)]
        try:
            if errors:
                raise errors[0]
            await self._send(send, b"", more=False)
        except TimeoutError:
            return

    async def _send_all(self, send: Send) -> None:
        """Send the first bytes, then everything from the source."""
        if self._first:
            await self._send(send, self._first)
        async for item in self._source:
            if item:
                await self._send(send, item)

    async def _send_pulses(self, send: Send) -> None:
        """Begin the answer if the source is slow to, and send a pulse during silence; never returns."""
        if not self._first:
            await asyncio.sleep(BEGIN_TIMEOUT)
            if not self._has_begun:
                await self._send(send, self._pulse)
        while self._idle is not None:
            wait = self._sent_at + self._idle - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            elif self._is_sending:  # a slow reader, about to reach its time limit
                await asyncio.sleep(self._idle)
            else:
                await self._send(send, self._pulse)
        await asyncio.Event().wait()

    async def _send(self, send: Send, body: bytes, more: bool = True) -> None:
        """Send bytes, within the time limit. The answer begins with its first bytes: if the source fails before, an error can still be
        sent.
        """
        self._is_sending = True
        async with asyncio.timeout(SEND_TIMEOUT):
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if body or not more:
                await send({"type": "http.response.body", "body": body, "more_body": more})
        self._is_sending = False
        self._sent_at = asyncio.get_running_loop().time()


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
