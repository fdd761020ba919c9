"""What the webhooks of several senders share: a signature over the body, a JSON body, and a time of sending. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.errors import UsageError

_MAX_TIME = 1 << 53
"""The largest number that JSON represents exactly in every language; a later time is rejected."""


def is_signed(body: bytes, signature: str, secrets: Sequence[str], prefix: str = "") -> bool:
    """Return whether one of the secrets made this hexadecimal HMAC-SHA256 of the body. An empty secret never matches."""
    candidate = signature.strip().lower().encode("utf-8", "replace")
    is_match = False
    for secret in secrets:
        digest = hmac.new(secret_bytes(secret), body, hashlib.sha256).hexdigest()
        is_match |= hmac.compare_digest(f"{prefix}{digest}".encode(), candidate) and bool(secret)
    return is_match


def secret_bytes(secret: str) -> bytes:
    """Return a secret as bytes: an environment variable may hold bytes that are not UTF-8."""
    return secret.encode("utf-8", "surrogateescape")


def parse_payload(body: bytes) -> Mapping[str, Any]:
    """Return the body's JSON object, or raise `UsageError`."""
    try:
        payload = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise UsageError("the delivery's body is no JSON") from None
    if not isinstance(payload, dict):
        raise UsageError("the delivery's body is no JSON object")
    return payload


def sent_at(payload: Mapping[str, Any], field: str) -> float:
    """Return when a delivery was sent, from a field in milliseconds that is signed with the rest.

    Without that field an old delivery could be replayed forever, so its absence raises `UsageError`.
    """
    at = payload.get(field)
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at < _MAX_TIME:
        raise UsageError("the delivery does not say when it was sent", f"a genuine one has a {field}")
    return float(at) / 1000.0
