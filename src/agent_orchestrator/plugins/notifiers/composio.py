"""Composio: runs one of its tools (Slack, Discord, Gmail) with an account that is connected there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line

API = "https://backend.composio.dev/api/v3"
TOOLS = {"slack": "SLACK_SEND_MESSAGE", "discord": "DISCORDBOT_CREATE_MESSAGE", "gmail": "GMAIL_SEND_EMAIL"}
MAX_SLACK_LENGTH, MAX_DISCORD_LENGTH, MAX_MAIL_LENGTH, MAX_SUBJECT_LENGTH = 3000, 2000, 50_000, 200
_SLUG = re.compile(r"[A-Z0-9_]{3,100}")


class Composio(Notifier):
    """Sends through one Composio app."""

    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        self._key = str(config.get("composioApiKey") or config.get("apiKey") or os.environ.get("COMPOSIO_API_KEY", ""))
        if not self._key:
            raise UsageError("composio: composioApiKey is missing", "write it there, or set COMPOSIO_API_KEY")
        REDACTOR.learn({"composio key": self._key})
        self._app = str(config.get("defaultApp") or "slack")
        if self._app not in TOOLS:
            raise UsageError(f"composio: defaultApp: there is no {self._app}", f"it is one of {', '.join(TOOLS)}")
        self._channel = str(config.get("channelId") or config.get("channelName") or config.get("channel") or "")
        self._mail = str(config.get("emailTo") or "")
        if self._app == "gmail" and not self._mail:
            raise UsageError("composio: emailTo is missing", "gmail needs to know to whom")
        if self._app != "gmail" and not self._channel:
            raise UsageError("composio: channelId is missing", f"{self._app} needs to know where")
        self._tool = str(config.get("tool") or TOOLS[self._app])
        if not _SLUG.fullmatch(self._tool):
            raise UsageError(f"composio: tool: {one_line(self._tool, 60)} is no tool", f"for example {TOOLS['slack']}")
        self._account = str(config.get("connectedAccountId") or "")
        self._user = str(config.get("userId") or config.get("entityId") or "default")
        self._version = str(config.get("version") or "latest")
        self._url = f"{str(config.get('apiUrl') or API).rstrip('/')}/tools/execute/{self._tool}"

    async def notify(self, notification: Notification) -> None:
        """Send the notification. Raises `AoError` if the tool fails."""
        body: dict[str, Any] = {
            "user_id": self._user,
            "version": self._version,
            "arguments": self.arguments(notification),
        }
        if self._account:
            body["connected_account_id"] = self._account
        to_check = "its key, tool and account"
        reply = await http.post(
            "composio", self._url, body, {"x-api-key": self._key}, where=to_check, clock=self._clock
        )
        data = reply.data if isinstance(reply.data, dict) else {}
        if data.get("successful") is not True:
            reason = one_line(REDACTOR.redact_text(str(data.get("error") or "it does not say why")), 200)
            raise AoError(
                f"composio: {self._tool} failed: {reason}", "see that the account is connected, and may do this"
            )

    def arguments(self, notification: Notification) -> dict[str, Any]:
        """Return the arguments of the app's tool."""
        title = texts.title(notification, MAX_SUBJECT_LENGTH)
        if self._app == "gmail":
            return {
                "recipient_email": self._mail,
                "subject": title,
                "body": texts.as_text(notification, MAX_MAIL_LENGTH),
            }
        limit = MAX_SLACK_LENGTH if self._app == "slack" else MAX_DISCORD_LENGTH
        text = f"{title}\n{texts.as_text(notification, limit // 2)}"
        if self._app == "slack":
            return {"channel": self._channel, "text": texts.shorten(text, limit, texts.escape_slack)}
        return {"channel_id": self._channel, "content": texts.shorten(texts.without_mentions(text), limit)}
