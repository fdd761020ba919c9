"""Slack: sends by an incoming webhook, or by a bot's token and a channel. Block Kit, with buttons.

Slack cannot recognize a repeated message: the notification's id is shown, so that a person can recognize one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import AoError, Denied, Temporary, UsageError
from agent_orchestrator.plugins.notifiers import http, texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import clean_text, one_line

API = "https://slack.com/api"
MAX_HEADER_LENGTH, MAX_SECTION_LENGTH, MAX_CONTEXT_LENGTH, MAX_LABEL_LENGTH, MAX_FALLBACK_LENGTH = (
    150,
    3000,
    2000,
    75,
    3000,
)
_STYLES = {"allow": "primary", "merge": "primary", "deny": "danger"}
_MARKS = {"urgent": "🚨", "action": "👉", "warning": "⚠️", "info": "ℹ️"}
_TOKEN_ERRORS = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission"}
)
_CHANNEL_ERRORS = frozenset({"channel_not_found", "not_in_channel", "is_archived", "restricted_action"})
_RETRY_ERRORS = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)


class Slack(Notifier):
    """Sends to one channel."""

    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._clock = clock
        self._channel = str(config.get("channel") or "").strip()
        self._interactive = bool(config.get("signingSecret"))
        configured = config.get("token") or config.get("botToken")
        token = str(configured or ("" if config.get("webhookUrl") else os.environ.get("SLACK_BOT_TOKEN", "")))
        self._headers: dict[str, str] = {}
        if token:
            if not self._channel:
                raise UsageError("slack: channel is missing", "a bot's token needs a channel: its id, as in C012AB3CD")
            REDACTOR.learn({"slack token": token})
            self._url = f"{str(config.get('apiUrl') or API).rstrip('/')}/chat.postMessage"
            self._headers = {"Authorization": f"Bearer {token}"}
        else:
            self._url = http.configured_address("slack", config.get("webhookUrl"), "SLACK_WEBHOOK_URL")

    async def notify(self, notification: Notification) -> None:
        """Send the notification."""
        to_check = "its token and channel" if self._headers else "its webhookUrl"
        reply = await http.post(
            "slack", self._url, self.payload(notification), self._headers, where=to_check, clock=self._clock
        )
        if self._headers:
            self._check(reply)

    def _check(self, reply: http.ServiceResponse) -> None:
        """Raise the error that Slack's API reports in its JSON, with status 200."""
        data = reply.data if isinstance(reply.data, dict) else {}
        if data.get("ok") is True:
            return
        error = one_line(str(data.get("error") or "an answer that cannot be read"), 100)
        if error in _RETRY_ERRORS:
            raise Temporary(
                f"slack: {error}",
                "it is sent by itself later",
                self._clock() + http.retry_after(reply, self._clock()),
            )
        if error in _TOKEN_ERRORS:
            raise Denied(f"slack: the token is refused: {error}", "make a new one, with the scope chat:write")
        if error in _CHANNEL_ERRORS:
            raise AoError(f"slack: {self._channel}: {error}", "check its channel, and invite the bot into it")
        if error == "missing_scope":
            raise Denied("slack: the token lacks the scope chat:write", "add it to the app, and install it again")
        raise AoError(f"slack: {error}", "see https://docs.slack.dev/reference/methods/chat.postMessage")

    def payload(self, notification: Notification) -> dict[str, Any]:
        """Return the message as Block Kit, and as text for clients that do not show blocks."""
        mark = _MARKS.get(notification.level, "")
        title = texts.title(notification, MAX_HEADER_LENGTH - 4, texts.escape_slack)
        message = texts.message(notification, MAX_SECTION_LENGTH, texts.escape_slack)
        blocks: list[dict[str, Any]] = [
            {"type": "header", "text": {"type": "plain_text", "text": f"{mark} {title}".strip(), "emoji": False}}
        ]
        if message:
            blocks.append(_section(message, asks=any(action.token for action in notification.actions)))
        details = " · ".join(value for _, value in texts.details(notification))
        if details:
            text = texts.shorten(details, MAX_CONTEXT_LENGTH, texts.escape_slack)
            blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]})
        if buttons := self._buttons(notification):
            blocks.append({"type": "actions", "elements": buttons})
        fallback = texts.shorten(
            clean_text(f"{notification.title}: {notification.message}"), MAX_FALLBACK_LENGTH, texts.escape_slack
        )
        body = {"text": fallback, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}
        return {"channel": self._channel, **body} if self._channel else body

    def _buttons(self, notification: Notification) -> list[dict[str, Any]]:
        """Return the buttons; a message that had to be cut gets none that answers it, because not all of it was visible."""
        is_complete = texts.is_whole(notification, MAX_SECTION_LENGTH, texts.escape_slack)
        buttons = []
        for number, action in enumerate(texts.actions(notification)[:25]):
            label = {"type": "plain_text", "text": texts.shorten(action.label, MAX_LABEL_LENGTH), "emoji": False}
            button: dict[str, Any] = {"type": "button", "text": label, "action_id": f"ao-{action.name}-{number}"}
            if action.token and self._interactive and not is_complete:
                continue
            if action.token and self._interactive:
                button["value"] = action.token
            else:
                button["url"] = action.url
            if action.name in _STYLES:
                button["style"] = _STYLES[action.name]
            buttons.append(button)
        return buttons


def _section(message: str, *, asks: bool) -> dict[str, Any]:
    """Return the message's block; if it `asks` for an approval, complete and without formatting: `rm *a*` must not look like `rm a`."""
    if asks:
        return {"type": "section", "text": {"type": "plain_text", "text": message, "emoji": False}, "expand": True}
    return {"type": "section", "text": {"type": "mrkdwn", "text": message, "verbatim": True}}
