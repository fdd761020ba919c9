"""Buttons that were pressed in Slack: what its interactivity endpoint is sent, believed only with the app's signature.

Everybody in a channel sees its buttons, so they count only for the people that `users` names.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog

from agent_orchestrator.changes.forge_sync.webhooks import Unsigned
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.fleet.notifications.answer_links import PREFIX, Answers
from agent_orchestrator.fleet.notifications.targets import Target, Targets
from agent_orchestrator.plugins.notifiers import http
from agent_orchestrator.protocols.text import one_line

OLDEST = 300.0
"""Seconds after which what Slack signed is not believed any more: somebody may have kept it."""
HOSTS = ("hooks.slack.com",)
"""Where Slack takes what is to be said to whoever pressed."""

log = structlog.get_logger()


class SlackButtons:
    """Takes answers from Slack."""

    def __init__(self, targets: Targets, answers: Answers, clock: Callable[[], float]) -> None:
        self.targets = targets
        self.answers = answers
        self.clock = clock
        self._replies: set[asyncio.Task[None]] = set()

    async def receive(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Take what was pressed; false: it was no button of ours that answers."""
        target = self._sender(headers, body)
        pressed = _pressed(body)
        if pressed is None:
            return False
        token, user, reply_to = pressed
        text = await self._answer(_secret(target), token, user)
        self._say(reply_to, text, target)
        return True

    async def _answer(self, secret: str, token: str, user: str) -> str:
        """`secret`: of the app that signed it, which projects with other people may share."""
        try:
            project, name = self.answers.sent_by(token)
            target = self.targets.find(project, name)
            if target is None or _secret(target) != secret:
                return "Nothing was done: this button is of another app."
            if user not in _users(target):
                return f"You are not among notifiers.{target.name}.users: nothing was done."
            done = await self.answers.answer(token, by=f"slack {user}")
        except AoError as error:
            return f"Nothing was done: {one_line(str(error), 300)}"
        return f"{done['verb']}: {done['session']}"

    def _sender(self, headers: Mapping[str, str], body: bytes) -> Target:
        """The notifier whose app signed it; `Unsigned` where none did, or too long ago."""
        stamp, given = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        targets = [one for one in self.targets.everywhere() if one.settings.plugin == "slack" and _secret(one)]
        why = "its signature matches no signingSecret" if targets else "no signingSecret is configured"
        if targets and stamp.isascii() and stamp.isdigit() and len(stamp) < 16:
            if abs(self.clock() - int(stamp)) > OLDEST:
                why, targets = "it is too old", []
            signed = b":".join((b"v0", stamp.encode(), body))
            for target in targets:
                mine = (
                    "v0="
                    + hmac.new(_secret(target).encode("utf-8", "surrogateescape"), signed, hashlib.sha256).hexdigest()
                )
                if hmac.compare_digest(mine.encode(), given.encode(errors="replace")):
                    return target
        raise Unsigned(
            f"this slack request is not taken: {why}", "set signingSecret of the notifier: docs/notifiers.md"
        )

    def _say(self, url: str, text: str, target: Target) -> None:
        """Tell whoever pressed, and nobody else; that it fails is no matter."""
        own = urlsplit(str(target.settings.options.get("apiUrl") or "")).hostname
        if http.host_of(url) not in (*HOSTS, own):
            return
        said = {"response_type": "ephemeral", "replace_original": False, "text": text}
        task = asyncio.get_running_loop().create_task(self._reply(url, said))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _reply(self, url: str, said: Mapping[str, Any]) -> None:
        try:
            await http.post("slack", url, said)
        except AoError as error:
            log.info("nobody could be told what came of a button", error=error.text)


def _secret(target: Target) -> str:
    return str(target.settings.options.get("signingSecret") or "")


def _users(target: Target) -> list[str]:
    users = target.settings.options.get("users") or ()
    return [str(one) for one in users] if isinstance(users, list | tuple) else [str(users)]


def _pressed(body: bytes) -> tuple[str, str, str] | None:
    """The button's word, who pressed it, and where to reply; none: it was another one."""
    try:
        payload = json.loads(parse_qs(body.decode()).get("payload", ["null"])[0])
        kind, actions = payload["type"], payload.get("actions") or ()
        user, reply_to = str(payload["user"]["id"]), str(payload.get("response_url") or "")
        values = [str(one.get("value") or "") for one in actions]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            "this is no interaction of Slack", "set the address as the app's interactivity request URL"
        ) from None
    token = next((value for value in values if value.startswith(PREFIX)), "")
    return (token, user, reply_to) if kind == "block_actions" and token else None
