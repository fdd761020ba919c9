"""What Slack sends when a button is pressed: believed with its signature, and answered only to Slack."""

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

from agent_orchestrator.changes.forge_sync.webhooks import Unsigned
from agent_orchestrator.config.model import Notifier as Settings
from agent_orchestrator.errors import Denied, UsageError
from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
from agent_orchestrator.fleet.notifications.targets import Target
from agent_orchestrator.testing.chat import ChatServer
from tests.unit.fleet.notifications.test_answers import Asking
from tests.unit.fleet.notifications.world import Fakes, Recorder

pytestmark = pytest.mark.anyio
SECRET = "slack-signing-secret"


class AtSlack(Fakes):
    """One Slack, whose API is where the test says."""

    api = ""
    secret = SECRET

    def find(self, project: str | None, name: str) -> Target | None:
        found = super().find(project, name)
        given = {"plugin": "slack", "actions": True, "signingSecret": self.secret, "users": ["U1"], "apiUrl": self.api}
        return replace(found, settings=Settings.model_validate(given)) if found else None


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as chat:
        yield chat


@pytest.fixture
async def asking(tmp_path: Path) -> Asking:
    return await Asking(AtSlack({"chat": Recorder()}, actions=True), tmp_path).begin()


def signed(body: bytes, stamp: str = "1001", secret: str = SECRET) -> dict[str, str]:
    mine = hmac.new(secret.encode(errors="surrogateescape"), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mine}"}


def pressed(value: str, user: str = "U1", **more: Any) -> bytes:
    told = {"type": "block_actions", "user": {"id": user}, "actions": [{"value": value}], **more}
    return f"payload={quote(json.dumps(told))}".encode()


async def replied(buttons: SlackButtons) -> None:
    await asyncio.gather(*buttons._tasks._running)


async def test_who_pressed_is_told_what_came_of_it_and_nobody_else(asking: Asking, chat: ChatServer) -> None:
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    AtSlack.api = chat.slack_api
    said = []
    for user in ("U2", "U1", "U1"):
        body = pressed(asking.links()["Allow"], user, response_url=f"{chat.url}/other")
        assert await buttons.receive(signed(body), body)
        await replied(buttons)
        assert chat.received[-1].body["response_type"] == "ephemeral"
        said.append(chat.received[-1].body["text"])
    assert said[0] == "You are not among notifiers.chat.users: nothing was done."
    assert said[1] == "allow: app-x"
    assert said[2].startswith("Nothing was done: this was answered already")
    assert len(asking.taken.answers) == 1


async def test_who_reads_the_word_behind_a_button_has_no_link_by_it(asking: Asking) -> None:
    word = asking.links()["Allow"]
    with pytest.raises(Denied, match="a button"):
        asking.answers.show(word)
    with pytest.raises(Denied, match="a button"):
        await asking.answers.answer(word)
    assert asking.taken.answers == []


class Shared(AtSlack):
    """One app for two projects, each with people of its own."""

    other = SECRET

    def find(self, project: str | None, name: str) -> Target | None:
        found = super().find(project, name)
        given = {"plugin": "slack", "actions": True, "signingSecret": self.other, "users": ["U2"]}
        return replace(found, settings=Settings.model_validate(given)) if found and project == "other" else found

    def everywhere(self) -> list[Target]:
        return [*self.of("other"), *self.of("app")]


@pytest.mark.parametrize("other", [SECRET, "another-secret"])
async def test_people_of_another_project_decide_nothing_here(tmp_path: Path, other: str) -> None:
    targets = Shared({"chat": Recorder()}, actions=True)
    targets.other = other
    asking = await Asking(targets, tmp_path).begin()
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    foreign = pressed(asking.links()["Allow"], "U2")
    assert await buttons.receive(signed(foreign, secret=other), foreign)
    assert asking.taken.answers == []
    own = pressed(asking.links()["Allow"], "U1")
    assert await buttons.receive(signed(own, secret=other), own)
    assert len(asking.taken.answers) == (other == SECRET)  # another app's word for who pressed is none


async def test_nothing_is_sent_to_another_host_than_slacks(asking: Asking, chat: ChatServer) -> None:
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
async def test_what_slack_did_not_sign_or_long_ago_is_refused(asking: Asking, headers: dict[str, str]) -> None:
    with pytest.raises(Unsigned):
        await SlackButtons(asking.targets, asking.answers, asking.time).receive(headers, pressed("aoa_x"))


async def test_a_signing_secret_may_be_any_bytes(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = b"s\xffcret".decode(errors="surrogateescape")
    monkeypatch.setattr(AtSlack, "secret", secret)
    buttons = SlackButtons(asking.targets, asking.answers, asking.time)
    body = pressed("")
    assert not await buttons.receive(signed(body, secret=secret), body)
    with pytest.raises(Unsigned):
        await buttons.receive(signed(body), body)


async def test_a_button_that_only_opens_is_no_answer(asking: Asking) -> None:
    body = pressed("")
    assert not await SlackButtons(asking.targets, asking.answers, asking.time).receive(signed(body), body)


@pytest.mark.parametrize(
    "body", [b"", b"payload=", b"payload=%7B%7D", b"payload=[]", b"\xff", b"payload=" + b"[" * 5000]
)
async def test_what_is_no_interaction_is_refused(asking: Asking, body: bytes) -> None:
    with pytest.raises(UsageError):
        await SlackButtons(asking.targets, asking.answers, asking.time).receive(signed(body), body)
