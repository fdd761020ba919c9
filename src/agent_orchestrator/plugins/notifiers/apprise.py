"""Any other service: addresses that Apprise supports (Telegram, Teams, e-mail, ntfy, Pushover …). Imported when first used."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import Missing, Temporary, UsageError
from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line

TIMEOUT = 60.0
_KINDS = {"urgent": "failure", "action": "info", "warning": "warning", "info": "info"}


class AppriseNotifier(Notifier):
    """Sends to one or more Apprise addresses."""

    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del host  # nothing of this machine is needed
        configured = config.get("urls") or config.get("url") or config.get("webhookUrl") or ()
        urls = [configured] if isinstance(configured, str) else configured
        self._urls = [str(url).strip() for url in urls if str(url).strip()] if isinstance(urls, list | tuple) else []
        if not self._urls:
            raise UsageError("notifiers: apprise has no url", "write one: url: tgram://BOT_TOKEN/CHAT_ID")
        for number, url in enumerate(self._urls, 1):
            http.redact_address(f"apprise address {number}", url)

    async def notify(self, notification: Notification) -> None:
        """Send the notification. Raises `Temporary` if it is not delivered."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.to_thread(self._send, notification)
        except TimeoutError:
            raise Temporary(
                f"apprise: {self._schemes()} did not answer within {TIMEOUT:g} s", "it is tried again by itself"
            ) from None

    def _send(self, notification: Notification) -> None:
        """Send the notification with Apprise, which blocks."""
        try:
            import apprise
        except ImportError:
            raise Missing("apprise is not installed", "pip install apprise") from None
        sender = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Agent Orchestrator", secure_logging=True))
        for url in self._urls:
            if not sender.add(url):
                raise UsageError(
                    f"apprise knows no such address: {scheme(url)}://…", "see https://appriseit.com/services/"
                )
        body = texts.without_mentions(texts.as_text(notification, 30_000)) or texts.title(notification, 200)
        log_output = io.StringIO()
        capture: Any = apprise.LogCapture
        with capture(level=logging.WARNING, fmt="%(message)s") as captured:
            is_sent = sender.notify(
                body=body,
                title=texts.without_mentions(texts.title(notification, 200)),
                notify_type=_KINDS.get(notification.level, "info"),
                body_format="text",
            )
            log_output.write(captured.getvalue())
        if not is_sent:
            reason = one_line(REDACTOR.redact_text(log_output.getvalue()), 200)
            raise Temporary(
                f"apprise: {self._schemes()} did not take it{f': {reason}' if reason else ''}", "check its address"
            )

    def _schemes(self) -> str:
        """Return the schemes of the addresses, without their secrets, for error texts."""
        return ", ".join(dict.fromkeys(f"{scheme(url)}://…" for url in self._urls))


def scheme(url: str) -> str:
    """Return the part of an address that names its service."""
    return one_line(url.partition("://")[0], 30)
