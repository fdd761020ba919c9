"""Any program that accepts JSON by HTTP: signed, with an id by which it recognizes repeated notifications.

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

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import clean_text, one_line

VERSION = 1
MAX_MESSAGE_LENGTH = 100_000
"""Most characters of a message."""


class Webhook(Notifier):
    """Sends to one address."""

    permissions: ClassVar = ["network", "secrets"]
    keyed = True

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        self._url = http.configured_address("webhook", config.get("webhookUrl"))
        variable = str(config.get("secretEnvVar") or "")
        self._secret = str(config.get("secret") or (os.environ.get(variable, "") if variable else ""))
        if variable and not self._secret:
            raise UsageError(f"webhook: secretEnvVar: {variable} is not set", "set it where the daemon starts")
        REDACTOR.learn({"webhook secret": self._secret})
        headers = config.get("headers") or {}
        if not isinstance(headers, Mapping):
            raise UsageError("webhook: headers is no map", "for example headers: {X-Team: agents}")
        self._headers = {str(name): str(value) for name, value in headers.items()}
        REDACTOR.learn({f"webhook header {name}": value for name, value in self._headers.items()})

    async def notify(self, notification: Notification) -> None:
        """Send the notification."""
        body = json.dumps(self.payload(notification), ensure_ascii=False, separators=(",", ":")).encode()
        headers = {**self._headers, **self.signature(body)}
        if notification.id:
            headers |= {"X-AO-Id": notification.id, "Idempotency-Key": notification.id}
        to_check = "its webhookUrl"
        await http.post("webhook", self._url, body, headers, where=to_check, clock=self._clock)

    def payload(self, notification: Notification) -> dict[str, Any]:
        """Return the body with its documented fields."""
        timestamp = notification.time or self._clock()
        return {
            "version": VERSION,
            "id": notification.id,
            "title": one_line(notification.title),
            "message": texts.shorten(clean_text(notification.message), MAX_MESSAGE_LENGTH),
            "level": notification.level,
            "trigger": notification.trigger or None,
            "session": notification.session_id,
            "project": notification.project,
            "time": datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "url": notification.url or None,
            "actions": [
                {"name": action.name, "label": action.label, "url": action.url} for action in notification.actions
            ],
        }

    def signature(self, body: bytes) -> dict[str, str]:
        """Return the headers that prove origin and time of the body; only the time without a secret."""
        timestamp = str(int(self._clock()))
        if not self._secret:
            return {"X-AO-Timestamp": timestamp}
        secret = self._secret.encode("utf-8", "surrogateescape")  # a variable may hold any bytes
        digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        return {"X-AO-Timestamp": timestamp, "X-AO-Signature": f"sha256={digest}"}
