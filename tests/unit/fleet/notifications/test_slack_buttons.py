"""Slack's requests for pressed buttons: verified by their signature and answered to Slack only."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent_orchestrator.changes.forge_sync.webhooks import RejectedWebhook
from agent_orchestrator.config.model import NotifierSection as Settings
from agent_orchestrator.errors import Denied, UsageError
from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
from agent_orchestrator.fleet.notifications.targets import NotifierTarget
from agent_orchestrator.testing.chat import ChatServer
from tests.unit.fleet.notifications.test_answers import Asking
from tests.unit.fleet.notifications.world import FakeTargets, RecordingNotifier

pytestmark = pytest.mark.anyio
SECRET = "slack-signing-secret"


class AtSlack(FakeTargets):
    """Targets of one Slack workspace with a configurable API address."""

    api = ""
    secret = SECRET

    def find(self, project: str | None, name: str) -> NotifierTarget | None:
        target = super().find(project, name)
        settings = {
            "plugin": "slack",
            "actions": True,
            "signingSecret": self.secret,
            "users": ["U1"],
            "apiUrl": self.api,
        }
        return replace(target, settings=Settings.model_validate(settings)) if target else None


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as chat:
        yield chat


@pytest.fixture
async def asking(tmp_path: Path) -> Asking:
    return await Asking(AtSlack({"chat": RecordingNotifier()}, actions=True), tmp_path).begin()


def signed(body: bytes, stamp: str = "1001", secret: str = SECRET) -> dict[str, str]:
    mine = hmac.new(secret.encode(errors="surrogateescape"), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mine}"}


def pressed(value: str, user: str = "U1", **more: Any) -> bytes:
    interaction = {"type": "block_actions", "user": {"id": user}, "actions": [{"value": value}], **more}
    return f"payload={quote(json.dumps(interaction))}".encode()


async def replied(buttons: SlackButtons) -> None:
    await asyncio.gather(*buttons._tasks._running)


async def test_only_the_user_who_pressed_a_button_gets_the_result(asking: Asking, chat: ChatServer) -> None:
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    AtSlack.api = chat.slack_api
    replies = []
    for user in ("U2", "U1", "U1"):
        body = pressed(asking.links()["Allow"], user, response_url=f"{chat.url}/other")
        assert await buttons.receive(signed(body), body)
        await replied(buttons)
        assert chat.received[-1].body["response_type"] == "ephemeral"
        replies.append(chat.received[-1].body["text"])
    assert replies[0] == "You are not among notifiers.chat.users: nothing was done."
    assert replies[1] == "allow: app-x"
    assert replies[2].startswith("Nothing was done: this was answered already")
    assert len(asking.inbox.answers) == 1


async def test_a_buttons_token_is_no_link(asking: Asking) -> None:
    word = asking.links()["Allow"]
    with pytest.raises(Denied, match="a button"):
        asking.answers.preview(word)
    with pytest.raises(Denied, match="a button"):
        await asking.answers.answer(word)
    assert asking.inbox.answers == []


class Shared(AtSlack):
    """One Slack app for two projects with different users."""

    other = SECRET

    def find(self, project: str | None, name: str) -> NotifierTarget | None:
        target = super().find(project, name)
        settings = {"plugin": "slack", "actions": True, "signingSecret": self.other, "users": ["U2"]}
        return replace(target, settings=Settings.model_validate(settings)) if target and project == "other" else target

    def all_targets(self) -> list[NotifierTarget]:
        return [*self.for_project("other"), *self.for_project("app")]


@pytest.mark.parametrize("other", [SECRET, "another-secret"])
async def test_users_of_another_project_cannot_answer(tmp_path: Path, other: str) -> None:
    targets = Shared({"chat": RecordingNotifier()}, actions=True)
    targets.other = other
    asking = await Asking(targets, tmp_path).begin()
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    foreign = pressed(asking.links()["Allow"], "U2")
    assert await buttons.receive(signed(foreign, secret=other), foreign)
    assert asking.inbox.answers == []
    own = pressed(asking.links()["Allow"], "U1")
    assert await buttons.receive(signed(own, secret=other), own)
    assert len(asking.inbox.answers) == (other == SECRET)  # another app's statement about the user does not count


async def test_replies_are_sent_to_slack_only(asking: Asking, chat: ChatServer) -> None:
    AtSlack.api = ""
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    body = pressed(asking.links()["Deny"], response_url=f"{chat.url}/other")
    assert await buttons.receive(signed(body), body)
    assert buttons._tasks._running == set() and chat.received == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(b"another body"),
        signed(pressed("aoa_x"), secret="another secret"),
        signed(pressed("aoa_x"), stamp="500"),
        signed(pressed("aoa_x"), stamp="1500"),
        {**signed(pressed("aoa_x")), "x-slack-request-timestamp": "1002"},
        {**signed(pressed("aoa_x")), "x-slack-request-timestamp": "soon"},
    ],
)
async def test_unsigned_and_old_requests_are_refused(asking: Asking, headers: dict[str, str]) -> None:
    with pytest.raises(RejectedWebhook):
        await SlackButtons(asking.targets, asking.answers, asking.time).receive(headers, pressed("aoa_x"))


async def test_a_signing_secret_may_have_any_bytes(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = b"s\xffcret".decode(errors="surrogateescape")
    monkeypatch.setattr(AtSlack, "secret", secret)
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    body = pressed("")
    assert not await buttons.receive(signed(body, secret=secret), body)
    with pytest.raises(RejectedWebhook):
        await buttons.receive(signed(body), body)


async def test_a_button_that_only_opens_a_link_is_no_answer(asking: Asking) -> None:
    body = pressed("")
    assert not await SlackButtons(asking.targets, asking.answers, asking.time).receive(signed(body), body)


@pytest.mark.parametrize(
    "body", [b"", b"payload=", b"payload=%7B%7D", b"payload=[]", b"\xff", b"payload=" + b"[" * 5000]
)
async def test_an_invalid_interaction_is_refused(asking: Asking, body: bytes) -> None:
    with pytest.raises(UsageError):
        await SlackButtons(asking.targets, asking.answers, asking.time).receive(signed(body), body)
