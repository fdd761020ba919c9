"""Refused requests in the daemon's log and in the audit log: where, why and to whom, never with the secret that was tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import structlog

from agent_orchestrator.base.attempt_limit import RateLimiter
from agent_orchestrator.core import events as e
from agent_orchestrator.errors import AoError

MAX_LINES_PER_MINUTE = 60
"""Log lines per minute for one address."""
MAX_ENTRIES_PER_MINUTE = 60
"""Audit log entries per minute for all addresses together: that log is never shortened."""
_REFUSAL_STATUSES = (401, 403, 429)

log = structlog.get_logger(__name__)


def peer_of(scope: Mapping[str, Any]) -> str:
    """Return the address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else "unix"


class Refusals:
    """Records refusals, limited so that they do not fill the disk."""

    def __init__(self, record: Callable[[e.Body], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Create the recorder; `record` adds an event to the audit log."""
        self._append_event = record
        self._line_limiter = RateLimiter(MAX_LINES_PER_MINUTE, 60.0, clock)
        self._entry_limiter = RateLimiter(MAX_ENTRIES_PER_MINUTE, 60.0, clock)
        self._skipped_count = 0

    def record_error(self, scope: Mapping[str, Any], error: AoError) -> None:
        """Record an error if it is a refusal."""
        if error.http_status in _REFUSAL_STATUSES:
            self.record(scope, error.text)

    def record(self, scope: Mapping[str, Any], reason: str) -> None:
        """Record that a request was refused."""
        peer = peer_of(scope)
        method, path, reason = scope.get("method", "WebSocket"), quote(scope["path"])[:200], _printable(reason)
        self._record_entry(method, path, reason, peer)
        if self._line_limiter.seconds_until_allowed(peer):
            return
        self._line_limiter.add(peer)
        log.warning("refused", method=method, path=path, reason=reason, peer=peer)
        if self._line_limiter.seconds_until_allowed(peer):
            log.warning("refused more often than is written down for the next minute", peer=peer)

    def _record_entry(self, method: str, path: str, reason: str, peer: str) -> None:
        """Add an entry to the audit log, with the number of those skipped since the last one."""
        if self._entry_limiter.seconds_until_allowed(""):
            self._skipped_count += 1
            return
        self._entry_limiter.add("")
        skipped, self._skipped_count = self._skipped_count, 0
        if path == "/api/login":
            self._append_event(e.SignInRefused(reason, peer, skipped))
        else:
            self._append_event(e.AccessRefused(method, path, reason, peer, skipped))


def _printable(text: str) -> str:
    """Replace characters that cannot be printed, and cut to 300."""
    return "".join(character if character.isprintable() else "?" for character in text)[:300]
