"""What leaves by HTTP has no secret in it: every answer passes here once, whoever asked and whatever it is about.

An answer that is sent whole is looked through whole, one that comes piece by piece as it comes. What exists to hand over a secret
(a new token, a session's environment for a shell) is left as it is, and so is what Git is sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.types import Message, Scope, Send

from agent_orchestrator.base.text.redaction import KNOWN, Stream
from agent_orchestrator.server.access import auth

_AS_IT_IS = re.compile(
    r"POST /api/(tokens|nodes|login|login-links)|GET /api/sessions/[^/]+/environment|GET /api/(live|sessions)"
)
"""What hands over a secret; and two that services prepare without any, once for everybody."""
LARGE = 1 << 18
"""Bytes from which on a body is looked through beside the event loop: others are answered meanwhile."""
PIECE = 1 << 13
"""The same for a piece of a terminal's output, of which there may be thousands."""
_BESIDE = ThreadPoolExecutor(1, "redaction")
"""One at a time: several would take the interpreter in turns, and the event loop's turn would hardly come."""


def without_secrets(scope: Scope, send: Send) -> Send:
    """How the answer to a request is sent."""
    path, method = scope["path"], scope.get("method", "")
    if scope["type"] != "http" or auth.is_git(path) or auth.is_shell(method, path):
        return send
    return send if _AS_IT_IS.fullmatch(f"{method} {path}") else _Redacting(send)


class _Redacting:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._stream: Stream | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._go_on(message)
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        """Its length is told when it is known; an answer without one has begun now."""
        headers = dict(start.get("headers") or ())
        if headers.get(b"content-type", b"").startswith((b"text/plain", b"application/octet-stream")):
            self._stream = KNOWN.stream()  # what a terminal showed is cut anywhere
        if b"content-length" in headers:
            self._start = start
        else:
            await self._send(start)

    async def _go_on(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            others = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            if more:
                await self._send({**start, "headers": others})
            else:
                clean = await _clean(KNOWN.data, body)
                told = start["headers"] if clean is body else [*others, (b"content-length", b"%d" % len(clean))]
                await self._send({**start, "headers": told})
                await self._send({**message, "body": clean})
                return
        if self._stream is not None:
            body = await _clean(self._stream.feed, body, PIECE) + (b"" if more else self._stream.rest())
        else:
            body = await _clean(KNOWN.data, body)
        await self._send({**message, "body": body})


async def _clean(by: Callable[[bytes], bytes], body: bytes, large: int = LARGE) -> bytes:
    if len(body) < large:
        return by(body)
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, by, body)
