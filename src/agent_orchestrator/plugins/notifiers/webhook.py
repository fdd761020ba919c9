"""Any program that takes JSON by HTTP: signed, with an id by which it knows what it has seen.

The body is described in docs/notifiers.md. The signature is an HMAC-SHA256 of `TIMESTAMP.BODY` with the configured secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import Notification
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import clean_text, one_line

VERSION = 1
LONGEST = 100_000
"""Characters of a message."""


class Webhook:
    """Sends to one address."""

    permissions: ClassVar = ["network", "secrets"]
    keyed: ClassVar = True

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        self._url = http.address("webhook", config.get("webhookUrl"))
        variable = str(config.get("secretEnvVar") or "")
        self._secret = str(config.get("secret") or (os.environ.get(variable, "") if variable else ""))
        if variable and not self._secret:
            raise UsageError(f"webhook: secretEnvVar: {variable} is not set", "set it where the daemon starts")
        KNOWN.learn({"webhook secret": self._secret})
        headers = config.get("headers") or {}
        if not isinstance(headers, Mapping):
            raise UsageError("webhook: headers is no map", "for example headers: {X-Team: agents}")
        self._headers = {str(name): str(value) for name, value in headers.items()}
        KNOWN.learn({f"webhook header {name}": value for name, value in self._headers.items()})

    async def notify(self, notification: Notification) -> None:
        """Send it."""
        body = json.dumps(self.payload(notification), ensure_ascii=False, separators=(",", ":")).encode()
        headers = {**self._headers, **self.signature(body)}
        if notification.id:
            headers |= {"X-AO-Id": notification.id, "Idempotency-Key": notification.id}
        where = "its webhookUrl"
        await http.post("webhook", self._url, body, headers, where=where, clock=self._clock)

    def payload(self, notification: Notification) -> dict[str, Any]:
        """The body, by its documented names."""
        at = notification.time or self._clock()
        return {
            "version": VERSION,
            "id": notification.id,
            "title": one_line(notification.title),
            "message": texts.cut(clean_text(notification.message), LONGEST),
            "level": notification.level,
            "trigger": notification.trigger or None,
            "session": notification.session_id,
            "project": notification.project,
            "time": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "url": notification.url or None,
            "actions": [{"name": one.name, "label": one.label, "url": one.url} for one in notification.actions],
        }

    def signature(self, body: bytes) -> dict[str, str]:
        """What proves that it is ours, and new; nothing without a secret."""
        stamp = str(int(self._clock()))
        if not self._secret:
            return {"X-AO-Timestamp": stamp}
        secret = self._secret.encode("utf-8", "surrogateescape")  # a variable may hold any bytes
        signed = hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        return {"X-AO-Timestamp": stamp, "X-AO-Signature": f"sha256={signed}"}
