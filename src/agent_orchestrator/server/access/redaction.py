"""Removes secrets from every HTTP answer, for every caller.

An answer that is sent whole is searched as a whole, a stream piece by piece. Answers whose purpose is a secret (a new token, a
session's environment for a shell) are left unchanged, and so is what Git gets.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.types import Message, Scope, Send

from agent_orchestrator.base.text.redaction import REDACTOR, TerminalRedactor
from agent_orchestrator.server.access import auth

_UNREDACTED_ROUTES = re.compile(
    r"POST /api/(tokens|nodes|login|login-links)|GET /api/sessions/[^/]+/environment|GET /api/(live|sessions)"
)
"""Requests whose answers contain secrets on purpose, and two whose answers the services prepare without any, once for all callers."""
THREAD_FROM_BYTES = 1 << 18
"""Bytes from which a body is searched in a thread, so that other requests are answered meanwhile."""
THREAD_FROM_STREAM_BYTES = 1 << 13
"""The same limit for a piece of a terminal's output, of which there may be thousands."""
_EXECUTOR = ThreadPoolExecutor(1, "redaction")
"""One thread: several would compete for the interpreter's lock and delay the event loop."""


def redacting_send(scope: Scope, send: Send) -> Send:
    """Return a `send` that removes secrets from the answer to a request, where that applies."""
    path, method = scope["path"], scope.get("method", "")
    if scope["type"] != "http" or auth.is_git(path) or auth.is_dashboard(method, path):
        return send
    return send if _UNREDACTED_ROUTES.fullmatch(f"{method} {path}") else _RedactingSend(send)


class _RedactingSend:
    """A `send` that removes secrets from the messages of one answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._stream: TerminalRedactor | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._send_body(message)
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        """Send the start of an answer, or keep it until the body is known if it has a length."""
        headers = dict(start.get("headers") or ())
        if headers.get(b"content-type", b"").startswith((b"text/plain", b"application/octet-stream")):
            self._stream = REDACTOR.terminal_filter()  # terminal output may be cut in the middle of a secret
        if b"content-length" in headers:
            self._start = start
        else:
            await self._send(start)

    async def _send_body(self, message: Message) -> None:
        """Remove secrets from a piece of the body and send it, after the start if that was kept."""
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            if more:
                await self._send({**start, "headers": headers})
            else:
                clean = await _redact(REDACTOR.redact_bytes, body)
                headers_sent = (
                    start["headers"] if clean is body else [*headers, (b"content-length", b"%d" % len(clean))]
                )
                await self._send({**start, "headers": headers_sent})
                await self._send({**message, "body": clean})
                return
        if self._stream is not None:
            body = await _redact(self._stream.feed, body, THREAD_FROM_STREAM_BYTES) + (
                b"" if more else self._stream.finish()
            )
        else:
            body = await _redact(REDACTOR.redact_bytes, body)
        await self._send({**message, "body": body})


async def _redact(redact: Callable[[bytes], bytes], body: bytes, threshold: int = THREAD_FROM_BYTES) -> bytes:
    """Remove secrets from bytes, in a thread if they are many."""
    if len(body) < threshold:
        return redact(body)
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, redact, body)
