"""Sends one request to a service and classifies its result: delivered, retry later, refused, or unknown.

An address may be a secret, so no error contains more of it than the host. `httpx2` is imported with the first request.
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

from agent_orchestrator.base.text.redaction import REDACTOR, address_parts
from agent_orchestrator.errors import AoError, Denied, Doubtful, Temporary, UsageError
from agent_orchestrator.protocols.text import one_line

REQUEST_TIMEOUT = 20.0
"""Seconds for one request and its response."""
CONNECT_TIMEOUT = 8.0
MAX_RETRY_AFTER = 3600.0
"""Most seconds that a receiver's request to wait is obeyed."""
MAX_RESPONSE_BYTES = 256 * 1024
"""Bytes of a response that are read."""


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """The response of a service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body's JSON; None if it is not JSON."""
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
) -> ServiceResponse:
    """Send JSON, or bytes that are JSON already; return a successful response and raise for any other.

    `where`: what to check if the request is refused.
    """
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    request_headers = {
        "User-Agent": "agent-orchestrator",
        "Content-Type": "application/json; charset=utf-8",
        **(headers or {}),
    }
    reply = await _send(name, url, content, request_headers, REQUEST_TIMEOUT)
    if reply.status < 300:
        return reply
    raise response_error(name, url, reply, where, clock())


async def _send(
    name: str, url: str, content: bytes, headers: Mapping[str, str], timeout_seconds: float
) -> ServiceResponse:
    """Send one request and return the response.

    Raises `Temporary` if it was not sent, `Doubtful` if it may have been delivered, `UsageError` if the address is not valid.
    """
    import httpx2

    host = host_of(url)
    remedy = "check the network; it is tried again by itself"
    try:
        timeouts = httpx2.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT, timeout_seconds))
        async with (
            asyncio.timeout(timeout_seconds),
            httpx2.AsyncClient(timeout=timeouts, follow_redirects=False) as client,
            client.stream("POST", url, content=content, headers=dict(headers)) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes(16 * 1024):
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    break
            response_headers = {str(key).lower(): str(value) for key, value in response.headers.items()}
            return ServiceResponse(response.status_code, response_headers, bytes(body[:MAX_RESPONSE_BYTES]))
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Temporary(f"{name}: {host} could not be reached: {_reason(error)}", remedy) from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
        raise UsageError(f"{name}: its address is none: {_reason(error)}", "correct it in the configuration") from None
    except (TimeoutError, httpx2.TimeoutException):
        raise Doubtful(f"{name}: {host} did not answer within {timeout_seconds:g} s", remedy) from None
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise Doubtful(f"{name}: {host} broke off: {_reason(error)}", remedy) from None


def response_error(name: str, url: str, reply: ServiceResponse, where: str, now: float) -> AoError:
    """Return the error for an unsuccessful response."""
    host, status = host_of(url), reply.status
    problem = _error_text(reply)
    text = f"{name}: {host} answered {status}{f': {problem}' if problem else ''}"
    if status == 429:
        retry_at = now + retry_after(reply, now)
        return Temporary(f"{name}: {host} takes no more messages just now", "it is sent by itself later", retry_at)
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


def retry_after(reply: ServiceResponse, now: float) -> float:
    """Return the seconds to wait before the next request: by the response's header, or its JSON."""
    wait: Any = reply.headers.get("retry-after", "")
    data = reply.data
    if isinstance(data, dict) and isinstance(data.get("retry_after"), int | float):
        wait = data["retry_after"]
    try:
        pause = float(wait)
    except (ValueError, OverflowError):
        pause = _timestamp_of(str(wait)) - now
    return min(max(pause, 1.0), MAX_RETRY_AFTER) if pause == pause else 30.0


def _timestamp_of(date: str) -> float:
    """Return a date's timestamp, or NaN if it is not a date."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def host_of(url: str) -> str:
    """Return the address's host, which is no secret."""
    try:
        return urlsplit(url).hostname or "an address without a host"
    except ValueError:
        return "an address that is none"


def configured_address(name: str, value: Any, variable: str = "", key: str = "webhookUrl") -> str:
    """Return a web address from the configuration, or from an environment variable if it has none. Raises `UsageError`."""
    configured = str(value or (os.environ.get(variable, "") if variable else "")).strip()
    if not configured:
        alternative = f", or set {variable}" if variable else ""
        raise UsageError(f"{name}: {key} is missing", f"write the address there{alternative}")
    if not configured.startswith(("https://", "http://")) or not urlsplit(configured).hostname:
        raise UsageError(f"{name}: {key} is no address of the web", "it begins with https://")
    redact_address(f"{name} {key}", configured)
    return configured


def redact_address(name: str, url: str) -> None:
    """Redact an address, and the secrets in it, from now on."""
    for part in address_parts(url):
        REDACTOR.learn({name: part})


def _error_text(reply: ServiceResponse) -> str:
    """Return the response's error text, redacted, or ""."""
    data = reply.data
    if isinstance(data, dict):
        for key in ("error", "message", "detail"):
            problem = data.get(key)
            problem = problem.get("message") if isinstance(problem, dict) else problem
            if isinstance(problem, str) and problem:
                return one_line(REDACTOR.redact_text(problem), 200)
        return ""
    text = reply.body[:400].decode(errors="replace")
    return "" if "<" in text else one_line(REDACTOR.redact_text(text), 200)


def _reason(error: Exception) -> str:
    """Return an error's text, redacted, or its type."""
    return one_line(REDACTOR.redact_text(str(error)), 200) or type(error).__name__
