"""Handles buttons that were pressed in Slack: requests to its interactivity endpoint, accepted only with the app's signature.

Everyone in a channel sees its buttons, so they count only for the people that `users` names.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog

from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.changes.forge_sync.webhooks import RejectedWebhook
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.fleet.notifications.answer_links import TOKEN_PREFIX, AnswerLinks
from agent_orchestrator.fleet.notifications.targets import NotifierTarget, NotifierTargets
from agent_orchestrator.plugins.notifiers import http
from agent_orchestrator.protocols.text import one_line

MAX_REQUEST_AGE_SECONDS = 300.0
"""Seconds after which a request that Slack signed is rejected: it may be a recorded one."""
REPLY_HOSTS = ("hooks.slack.com",)
"""Hosts of Slack to which replies are posted."""

log = structlog.get_logger()


class SlackButtons:
    """Receives answers from Slack."""

    def __init__(self, targets: NotifierTargets, answers: AnswerLinks, clock: Callable[[], float]) -> None:
        self.targets = targets
        self.answers = answers
        self.clock = clock
        self._tasks = Tasks()

    async def receive(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Carry out the answer of a pressed button; return False if the request is not about a button of ours."""
        target = self._verified_target(headers, body)
        button = _parse_button(body)
        if button is None:
            return False
        token, user, reply_to = button
        text = await self._answer(_secret(target), token, user)
        self._reply_in_background(reply_to, text, target)
        return True

    async def _answer(self, secret: str, token: str, user: str) -> str:
        """Give the button's answer and return the reply text; `secret` is that of the app which signed, since projects
        with other people may share an app.
        """
        try:
            project, name = self.answers.origin_of(token)
            target = self.targets.find(project, name)
            if target is None or _secret(target) != secret:
                return "Nothing was done: this button is of another app."
            if user not in _allowed_users(target):
                return f"You are not among notifiers.{target.name}.users: nothing was done."
            answer = await self.answers.answer(token, by=f"slack {user}")
        except AoError as error:
            return f"Nothing was done: {one_line(str(error), 300)}"
        return f"{answer['verb']}: {answer['session']}"

    def _verified_target(self, headers: Mapping[str, str], body: bytes) -> NotifierTarget:
        """Return the notifier whose app signed the request. Raises Unsigned if none did, or too long ago."""
        stamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        targets = [
            candidate
            for candidate in self.targets.all_targets()
            if candidate.settings.plugin == "slack" and _secret(candidate)
        ]
        reason = "its signature matches no signingSecret" if targets else "no signingSecret is configured"
        if targets and stamp.isascii() and stamp.isdigit() and len(stamp) < 16:
            if abs(self.clock() - int(stamp)) > MAX_REQUEST_AGE_SECONDS:
                reason, targets = "it is too old", []
            signed = b":".join((b"v0", stamp.encode(), body))
            for target in targets:
                expected = (
                    "v0="
                    + hmac.new(_secret(target).encode("utf-8", "surrogateescape"), signed, hashlib.sha256).hexdigest()
                )
                if hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
                    return target
        raise RejectedWebhook(
            f"this slack request is not taken: {reason}", "set signingSecret of the notifier: docs/notifiers.md"
        )

    def _reply_in_background(self, url: str, text: str, target: NotifierTarget) -> None:
        """Reply to the person who pressed, and only to that person; a failure is only logged."""
        configured_host = urlsplit(str(target.settings.options.get("apiUrl") or "")).hostname
        if http.host_of(url) not in (*REPLY_HOSTS, configured_host):
            return
        reply = {"response_type": "ephemeral", "replace_original": False, "text": text}
        self._tasks.spawn(self._reply(url, reply))

    async def _reply(self, url: str, reply: Mapping[str, Any]) -> None:
        try:
            await http.post("slack", url, reply)
        except AoError as error:
            log.info("nobody could be told what came of a button", error=error.text)


def _secret(target: NotifierTarget) -> str:
    return str(target.settings.options.get("signingSecret") or "")


def _allowed_users(target: NotifierTarget) -> list[str]:
    users = target.settings.options.get("users") or ()
    return [str(user) for user in users] if isinstance(users, list | tuple) else [str(users)]


def _parse_button(body: bytes) -> tuple[str, str, str] | None:
    """Return the button's token, who pressed it and the reply address, or None for another kind of button."""
    try:
        payload = json.loads(parse_qs(body.decode()).get("payload", ["null"])[0])
        kind, actions = payload["type"], payload.get("actions") or ()
        user, reply_to = str(payload["user"]["id"]), str(payload.get("response_url") or "")
        values = [str(action.get("value") or "") for action in actions]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            "this is no interaction of Slack", "set the address as the app's interactivity request URL"
        ) from None
    token = next((value for value in values if value.startswith(TOKEN_PREFIX)), "")
    return (token, user, reply_to) if kind == "block_actions" and token else None
