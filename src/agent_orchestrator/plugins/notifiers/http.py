"""Sending one request to somebody's service, and what its answer means: delivered, later, never, or nobody knows.

An address may be a secret, so no error names more of it than the host. `httpx2` is imported with the first request.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.base.text.redaction import KNOWN, address_parts
from agent_orchestrator.errors import AoError, Denied, Doubtful, Temporary, UsageError
from agent_orchestrator.protocols.text import one_line

WITHIN = 20.0
"""Seconds for one request and its answer."""
CONNECT_WITHIN = 8.0
LONGEST_PAUSE = 3600.0
"""A receiver that wants to be left alone for longer is asked again all the same."""
LARGEST = 256 * 1024
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """Its JSON; none where it is none."""
        try:
            return json.loads(self.body) if self.body else None
        except (ValueError, RecursionError):
            return None


async def post(
    name: str,
    url: str,
    body: Any,
    headers: Mapping[str, str] | None = None,
    *,
    where: str = "its address in the configuration",
    clock: Callable[[], float] = time.time,
) -> Reply:
    """Send JSON, or bytes that are JSON already; returns a good answer and raises for any other.

    `where`: what to check when it is refused.
    """
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    sent = {"User-Agent": "agent-orchestrator", "Content-Type": "application/json; charset=utf-8", **(headers or {})}
    reply = await _send(name, url, content, sent, WITHIN)
    if reply.status < 300:
        return reply
    raise refusal(name, url, reply, where, clock())


async def _send(name: str, url: str, content: bytes, headers: Mapping[str, str], within: float) -> Reply:
    import httpx2

    host = host_of(url)
    remedy = "check the network; it is tried again by itself"
    try:
        timeout = httpx2.Timeout(within, connect=min(CONNECT_WITHIN, within))
        async with (
            asyncio.timeout(within),
            httpx2.AsyncClient(timeout=timeout, follow_redirects=False) as client,
            client.stream("POST", url, content=content, headers=dict(headers)) as response,
        ):
            read = bytearray()
            async for piece in response.aiter_bytes(16 * 1024):
                read += piece
                if len(read) > LARGEST:
                    break
            got = {str(key).lower(): str(value) for key, value in response.headers.items()}
            return Reply(response.status_code, got, bytes(read[:LARGEST]))
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Temporary(f"{name}: {host} could not be reached: {_reason(error)}", remedy) from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
        raise UsageError(f"{name}: its address is none: {_reason(error)}", "correct it in the configuration") from None
    except (TimeoutError, httpx2.TimeoutException):
        raise Doubtful(f"{name}: {host} did not answer within {within:g} s", remedy) from None
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise Doubtful(f"{name}: {host} broke off: {_reason(error)}", remedy) from None


def refusal(name: str, url: str, reply: Reply, where: str, now: float) -> AoError:
    """The error that an answer other than a good one is."""
    host, status = host_of(url), reply.status
    said = _said(reply)
    text = f"{name}: {host} answered {status}{f': {said}' if said else ''}"
    if status == 429:
        until = now + retry_after(reply, now)
        return Temporary(f"{name}: {host} takes no more messages just now", "it is sent by itself later", until)
    if status in (408, 504):
        return Doubtful(text, "it is tried again by itself")
    if status >= 500:
        pause = retry_after(reply, now) if "retry-after" in reply.headers else 0.0
        return Temporary(text, "it is tried again by itself", now + pause if pause else None)
    if 300 <= status < 400:
        return UsageError(f"{name}: {host} leads elsewhere ({status})", f"write where to in {where}")
    if status in (401, 403, 404, 410):
        return Denied(text, f"check {where}: it may be revoked, or mistyped")
    return AoError(text, f"check {where}")


def retry_after(reply: Reply, now: float) -> float:
    """Seconds that the receiver wants to be left alone for: by its header, or its JSON."""
    told: Any = reply.headers.get("retry-after", "")
    data = reply.data
    if isinstance(data, dict) and isinstance(data.get("retry_after"), int | float):
        told = data["retry_after"]
    try:
        pause = float(told)
    except (ValueError, OverflowError):
        pause = _until(str(told)) - now
    return min(max(pause, 1.0), LONGEST_PAUSE) if pause == pause else 30.0


def _until(date: str) -> float:
    """The time that a date is; none at all where it is no date."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def host_of(url: str) -> str:
    """The part of an address that anybody may see."""
    try:
        return urlsplit(url).hostname or "an address without a host"
    except ValueError:
        return "an address that is none"


def address(name: str, value: Any, variable: str = "", key: str = "webhookUrl") -> str:
    """An address of the web from the configuration, or from a variable of the environment where it has none."""
    given = str(value or (os.environ.get(variable, "") if variable else "")).strip()
    if not given:
        other = f", or set {variable}" if variable else ""
        raise UsageError(f"{name}: {key} is missing", f"write the address there{other}")
    if not given.startswith(("https://", "http://")) or not urlsplit(given).hostname:
        raise UsageError(f"{name}: {key} is no address of the web", "it begins with https://")
    learn(f"{name} {key}", given)
    return given


def learn(name: str, url: str) -> None:
    """An address is a secret, and so is what stands in it."""
    for part in address_parts(url):
        KNOWN.learn({name: part})


def _said(reply: Reply) -> str:
    """What the receiver says is wrong, for people."""
    data = reply.data
    if isinstance(data, dict):
        for key in ("error", "message", "detail"):
            found = data.get(key)
            found = found.get("message") if isinstance(found, dict) else found
            if isinstance(found, str) and found:
                return one_line(KNOWN.text(found), 200)
        return ""
    text = reply.body[:400].decode(errors="replace")
    return "" if "<" in text else one_line(KNOWN.text(text), 200)


def _reason(error: Exception) -> str:
    return one_line(KNOWN.text(str(error)), 200) or type(error).__name__
