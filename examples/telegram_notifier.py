"""A notifier: messages by a Telegram bot, whose token is in `TELEGRAM_BOT_TOKEN`, into the chat `chatId` or `TELEGRAM_CHAT_ID`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx2

from agent_orchestrator import Notification, NotifierPlugin
from agent_orchestrator.errors import AoError, Denied, Doubtful, Temporary, UsageError
from agent_orchestrator.protocols import clean_text, one_line

API = "https://api.telegram.org"
MAX_MESSAGE_LENGTH = 4096
"""Characters of a message that Telegram takes, once its markup is read."""


class TelegramNotifier(NotifierPlugin):
    """Sends to one chat."""

    name = "telegram"
    permissions = ("network", "secrets")

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self._token = os.environ.get("TELEGRAM_BOT_TOKEN", "")
        self._chat = str(self.config.get("chatId") or os.environ.get("TELEGRAM_CHAT_ID", ""))
        self._api = str(self.config.get("apiUrl") or API).rstrip("/")
        if not self._token or not self._chat:
            raise UsageError("telegram needs a bot and a chat", "set TELEGRAM_BOT_TOKEN and notifiers.telegram.chatId")

    async def notify(self, notification: Notification) -> None:
        """Send it. The token is part of the address, so no error shows that."""
        body = {"chat_id": self._chat, "text": text_of(notification), "parse_mode": "Markdown"}
        try:
            async with httpx2.AsyncClient(timeout=20) as client:
                answer = await client.post(f"{self._api}/bot{self._token}/sendMessage", json=body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise Temporary("telegram could not be reached", "check the network") from None
        except httpx2.TransportError:
            raise Doubtful("telegram did not answer", "it is tried again by itself") from None
        if answer.status_code != 200:
            raise _refusal(answer)


def text_of(notification: Notification) -> str:
    """Title, message and session. Words of others are no markup: Telegram's signs go from the title, and are escaped elsewhere."""
    title = _SIGN.sub(" ", one_line(notification.title, 200)) or "Agent Orchestrator"
    words = clean_text(notification.message).strip()
    session = f"\nSession: {_plain(notification.session_id)}" if notification.session_id else ""
    room = MAX_MESSAGE_LENGTH - len(f"*{title}*\n{session}")
    return f"*{title}*\n{_plain(words if len(words) <= room else words[: room - 1] + '…')}{session}"


_SIGN = re.compile(r"([_*`\[])")


def _plain(text: str) -> str:
    return _SIGN.sub(r"\\\1", text)


def _refusal(answer: httpx2.Response) -> AoError:
    """Return Telegram's error; `retry_after` is the pause that it asks for."""
    try:
        said = dict(answer.json())
    except ValueError:
        said = {}
    text = f"telegram answered {answer.status_code}: {one_line(str(said.get('description') or ''))}"
    if answer.status_code == 429:
        pause = (said.get("parameters") or {}).get("retry_after", 30)
        return Temporary(text, "it is sent by itself later", time.time() + float(pause))
    if answer.status_code >= 500:
        return Temporary(text, "it is tried again by itself")
    return Denied(text, "check TELEGRAM_BOT_TOKEN, and that the bot may write to the chat")
