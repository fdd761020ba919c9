"""What was refused, in the daemon's log and in the audit log: where, why and to whom. Never with what it was tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import structlog

from agent_orchestrator.base.rate_limit import Recent
from agent_orchestrator.core import events as e
from agent_orchestrator.errors import AoError

LINES = 60
"""Lines a minute that one address may cause."""
ENTRIES = 60
"""Entries of the audit log a minute that all of them may cause: it is never shortened."""
_REFUSED = (401, 403, 429)

log = structlog.get_logger(__name__)


def peer_of(scope: Mapping[str, Any]) -> str:
    """The address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else "unix"


class Refusals:
    """Writes down refusals, and not so many that they fill the disk."""

    def __init__(self, tell: Callable[[e.Body], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._recent = Recent(LINES, 60.0, clock)
        self._entries = Recent(ENTRIES, 60.0, clock)
        self._more = 0

    def of_error(self, scope: Mapping[str, Any], error: AoError) -> None:
        """Note an error, if it is a refusal."""
        if error.http_status in _REFUSED:
            self.note(scope, error.text)

    def note(self, scope: Mapping[str, Any], reason: str) -> None:
        """Note that something was refused."""
        peer = peer_of(scope)
        method, path, reason = scope.get("method", "WebSocket"), quote(scope["path"])[:200], _printable(reason)
        self._enter(method, path, reason, peer)
        if self._recent.wait(peer):
            return
        self._recent.add(peer)
        log.warning("refused", method=method, path=path, reason=reason, peer=peer)
        if self._recent.wait(peer):
            log.warning("refused more often than is written down for the next minute", peer=peer)

    def _enter(self, method: str, path: str, reason: str, peer: str) -> None:
        if self._entries.wait(""):
            self._more += 1
            return
        self._entries.add("")
        more, self._more = self._more, 0
        if path == "/api/login":
            self._tell(e.SignInRefused(reason, peer, more))
        else:
            self._tell(e.AccessRefused(method, path, reason, peer, more))


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]
