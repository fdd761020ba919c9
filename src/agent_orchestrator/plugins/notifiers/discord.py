"""Discord: by a channel's webhook, as an embed. Nobody is mentioned, whatever the text says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import Notification
from agent_orchestrator.protocols.host import Host

TITLE, DESCRIPTION, FIELD_VALUE, FIELDS, FOOTER = 256, 3500, 1024, 25, 2048
"""An embed may say 4096 characters in its description, but 6000 in all."""
_COLOURS = {"urgent": 0xD92D20, "action": 0x2F6FEB, "warning": 0xE6A700, "info": 0x6B7280}


class Discord:
    """Sends to one channel, or to one thread of it."""

    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        address = http.address("discord", config.get("webhookUrl"), "DISCORD_WEBHOOK_URL")
        thread = str(config.get("threadId") or "")
        self._url = (
            f"{address}{'&' if '?' in address else '?'}wait=true{f'&thread_id={quote(thread)}' if thread else ''}"
        )

    async def notify(self, notification: Notification) -> None:
        """Send it."""
        where = "its webhookUrl"
        await http.post("discord", self._url, self.payload(notification), where=where, clock=self._clock)

    def payload(self, notification: Notification) -> dict[str, Any]:
        """The message: one embed, with its links as a field."""
        about = [pair for pair in texts.about(notification) if pair[0] != "Id"]
        fields = [
            {"name": name, "value": texts.cut(value, FIELD_VALUE, texts.for_markdown), "inline": True}
            for name, value in about[: FIELDS - 1]
        ]
        if links := _links(notification):
            fields.append({"name": "Do", "value": links, "inline": False})
        embed: dict[str, Any] = {
            "title": texts.title(notification, TITLE, texts.for_markdown),
            "description": texts.message(notification, DESCRIPTION, texts.for_markdown),
            "color": _COLOURS.get(notification.level, _COLOURS["info"]),
            "fields": fields,
        }
        if notification.url:
            embed["url"] = notification.url
        if notification.id:
            embed["footer"] = {"text": texts.cut(notification.id, FOOTER)}
        if notification.time:
            embed["timestamp"] = datetime.fromtimestamp(notification.time, UTC).isoformat()
        return {"username": "Agent Orchestrator", "allowed_mentions": {"parse": []}, "embeds": [embed]}


def _links(notification: Notification) -> str:
    """As many of its actions as a field holds, each whole."""
    shown = ""
    for action in texts.actions(notification):
        link = f"[{texts.cut(action.label, 80, texts.for_markdown)}](<{action.url}>)"
        longer = f"{shown} · {link}" if shown else link
        if texts.units(longer) > FIELD_VALUE:
            break
        shown = longer
    return shown
