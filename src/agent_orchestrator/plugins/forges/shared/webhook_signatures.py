"""What the webhooks of several senders have in common: a signature over the body, JSON in it, and a time. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.errors import UsageError

_LATEST = 1 << 53


def is_signed(body: bytes, shown: str, secrets: Sequence[str], prefix: str = "") -> bool:
    """Did one of the secrets make this HMAC-SHA256, written in hexadecimal? An empty secret signs nothing."""
    given = shown.strip().lower().encode("utf-8", "replace")
    signed = False
    for secret in secrets:
        digest = hmac.new(as_bytes(secret), body, hashlib.sha256).hexdigest()
        signed |= hmac.compare_digest(f"{prefix}{digest}".encode(), given) and bool(secret)
    return signed


def as_bytes(secret: str) -> bytes:
    """A secret as it is: in an environment variable it may be any bytes."""
    return secret.encode("utf-8", "surrogateescape")


def payload_of(body: bytes) -> Mapping[str, Any]:
    """The body's JSON object."""
    try:
        payload = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise UsageError("the delivery's body is no JSON") from None
    if not isinstance(payload, dict):
        raise UsageError("the delivery's body is no JSON object")
    return payload


def sent_at(payload: Mapping[str, Any], field: str) -> float:
    """When it was sent, from milliseconds that were signed with the rest: without them an old delivery could be sent again for ever."""
    at = payload.get(field)
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at < _LATEST:
        raise UsageError("the delivery does not say when it was sent", f"a genuine one has a {field}")
    return float(at) / 1000.0
