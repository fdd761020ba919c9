"""Discord: sends an embed by a channel's webhook. Mentions in the text have no effect."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host

MAX_TITLE_LENGTH, MAX_DESCRIPTION_LENGTH, MAX_FIELD_LENGTH, MAX_FIELDS, MAX_FOOTER_LENGTH = 256, 3500, 1024, 25, 2048
"""Limits in characters; an embed's description may have 4096, but the whole embed only 6000."""
_COLOURS = {"urgent": 0xD92D20, "action": 0x2F6FEB, "warning": 0xE6A700, "info": 0x6B7280}


class Discord(Notifier):
    """Sends to one channel, or to one thread of it."""

    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        address = http.configured_address("discord", config.get("webhookUrl"), "DISCORD_WEBHOOK_URL")
        thread = str(config.get("threadId") or "")
        self._url = (
            f"{address}{'&' if '?' in address else '?'}wait=true{f'&thread_id={quote(thread)}' if thread else ''}"
        )

    async def notify(self, notification: Notification) -> None:
        """Send the notification."""
        to_check = "its webhookUrl"
        await http.post("discord", self._url, self.payload(notification), where=to_check, clock=self._clock)

    def payload(self, notification: Notification) -> dict[str, Any]:
        """Return the message: one embed, with its links as a field."""
        details = [detail for detail in texts.details(notification) if detail[0] != "Id"]
        fields = [
            {"name": name, "value": texts.shorten(value, MAX_FIELD_LENGTH, texts.escape_markdown), "inline": True}
            for name, value in details[: MAX_FIELDS - 1]
        ]
        if links := _links(notification):
            fields.append({"name": "Do", "value": links, "inline": False})
        embed: dict[str, Any] = {
            "title": texts.title(notification, MAX_TITLE_LENGTH, texts.escape_markdown),
            "description": texts.message(notification, MAX_DESCRIPTION_LENGTH, texts.escape_markdown),
            "color": _COLOURS.get(notification.level, _COLOURS["info"]),
            "fields": fields,
        }
        if notification.url:
            embed["url"] = notification.url
        if notification.id:
            embed["footer"] = {"text": texts.shorten(notification.id, MAX_FOOTER_LENGTH)}
        if notification.time:
            embed["timestamp"] = datetime.fromtimestamp(notification.time, UTC).isoformat()
        return {"username": "Agent Orchestrator", "allowed_mentions": {"parse": []}, "embeds": [embed]}


def _links(notification: Notification) -> str:
    """Return the links of as many actions as fit into a field."""
    links = ""
    for action in texts.actions(notification):
        link = f"[{texts.shorten(action.label, 80, texts.escape_markdown)}](<{action.url}>)"
        longer = f"{links} · {link}" if links else link
        if texts.utf16_length(longer) > MAX_FIELD_LENGTH:
            break
        links = longer
    return links
