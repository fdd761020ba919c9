"""Answer links of notifications: each answers one request once, for a limited time."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.notices import Notice
from agent_orchestrator.errors import AoError, Conflict, Denied
from agent_orchestrator.fleet.notifications.answer_links import VALID_SECONDS
from agent_orchestrator.sessions.permissions.rules import normalize_command
from tests.unit.core.event_strategies import created, launched
from tests.unit.fleet.notifications.world import FakeTargets, NotificationWorld, RecordingNotifier

pytestmark = pytest.mark.anyio
BLOCKED = Notice("n1", "app-x: blocked", "it waits", "urgent", "agent-blocked", "app", "app-x")


class Asking(NotificationWorld):
    """A session that asks for a permission."""

    async def begin(self) -> Asking:
        await self.start()
        await self.flow.append(created(), launched())
        await self.ask("rm -r build")
        return self

    async def ask(self, command: str) -> None:
        self.time.now += 1.0
        key = f"asked:{self.flow.seq}"
        await self.flow.append(Event(e.PermissionAsked("Bash", command), self.time(), "hooks", key, "app", "app-x", 1))

    @property
    def facts(self) -> SessionFacts:
        return self.flow.sessions["app-x"]

    def links(self, notice: Notice = BLOCKED) -> dict[str, str]:
        target = self.targets.find("app", "chat")
        assert target is not None
        _, actions = self.answers.with_actions(notice, target, "http://127.0.0.1:3000")
        return {action.label: action.token for action in actions}


@pytest.fixture
async def asking(tmp_path: Path) -> Asking:
    world = Asking(FakeTargets({"chat": RecordingNotifier()}, actions=True), tmp_path)
    return await world.begin()


async def test_a_request_is_shown_completely_with_its_answers(asking: Asking) -> None:
    target = asking.targets.find("app", "chat")
    assert target is not None
    notice, actions = asking.answers.with_actions(BLOCKED, target, "https://h.example")
    assert notice.message == "it waits\nBash: rm -r build"
    assert [(action.name, action.label) for action in actions] == [("allow", "Allow"), ("deny", "Deny")]
    assert all(action.url == f"https://h.example/answer/{action.token}" for action in actions)
    page = asking.answers.preview(actions[0].token)
    assert (page.title, page.text) == ("Allow: app-x", "Bash: rm -r build")
    assert asking.inbox.answers == []


@pytest.mark.parametrize("before", ["rm -r build/old", "echo Bash: rm -r build", "rm -r build\nBash: rm -r build"])
async def test_the_text_of_another_request_is_not_taken_for_this_one(asking: Asking, before: str) -> None:
    target = asking.targets.find("app", "chat")
    assert target is not None
    noted = replace(BLOCKED, message=f"waits for permission: Bash: {before}")
    notice, _ = asking.answers.with_actions(noted, target, "https://h.example")
    assert notice.message == f"{noted.message}\nBash: rm -r build"
    same = replace(BLOCKED, message="waits for permission: Bash: rm -r build")
    assert asking.answers.with_actions(same, target, "https://h.example")[0].message == same.message


async def test_a_request_that_cannot_be_shown_completely_cannot_be_allowed_by_link(asking: Asking) -> None:
    harmless = "echo fine; " * 2000
    await asking.ask(normalize_command(f"{harmless}rm -r /"))
    links = asking.links()
    assert list(links) == ["Deny"]
    page = asking.answers.preview(links["Deny"])
    request = asking.answers.request_reference(asking.facts, "agent-blocked").partition(" ")[2]
    assert f"ao answer app-x --allow --request {request}" in page.note
    word = asking.answers._read_token(links["Deny"])
    allow = asking.answers._create_token(replace(word, verb="allow"))
    for attempt in (asking.answers.preview, asking.answers.answer):
        with pytest.raises(Conflict, match=f"--request {request}"):
            await cast("Any", attempt(allow))
    assert asking.inbox.answers == []
    await asking.answers.answer(links["Deny"])
    assert [answer["decision"] for _, answer in asking.inbox.answers] == ["deny"]


@pytest.mark.parametrize("command", ["x" * 20_000, "echo ⟦… 3 characters in all⟧"])
async def test_a_request_that_is_shown_completely_can_be_allowed_by_link(asking: Asking, command: str) -> None:
    await asking.ask(normalize_command(command))
    links = asking.links()
    assert list(links) == ["Allow", "Deny"]
    assert asking.answers.preview(links["Allow"]).note == ""


async def test_a_notifier_without_actions_gets_no_links(asking: Asking) -> None:
    asking.targets.actions = False
    assert asking.links() == {}


async def test_a_request_is_answered_once_by_any_of_its_links(asking: Asking) -> None:
    links = asking.links()
    with acting_as("anonymous 127.0.0.1") as behalf:
        assert await asking.answers.answer(links["Allow"]) == {"session": "app-x", "verb": "allow", "by": "link chat"}
        assert behalf.actor == "link chat"
    for link in links.values():
        with pytest.raises(Conflict, match="answered already"):
            await asking.answers.answer(link)
    ((session, answer),) = asking.inbox.answers
    assert (session, answer["decision"]) == ("app-x", "allow")
    assert answer["request"].startswith("r-") and "offer" not in answer


async def test_a_link_answers_only_the_request_that_was_shown(asking: Asking) -> None:
    link = asking.links()["Allow"]
    await asking.ask("rm -r /")
    for attempt in (asking.answers.preview, asking.answers.answer):
        with pytest.raises(Conflict, match="does not ask this any more"):
            answer = attempt(link)
            await cast("Any", answer)
    assert asking.inbox.answers == []


async def test_the_same_command_requested_again_is_another_request(asking: Asking) -> None:
    link = asking.links()["Allow"]
    await asking.ask("rm -r build")
    with pytest.raises(Conflict):
        await asking.answers.answer(link)


async def test_a_link_expires(asking: Asking) -> None:
    link = asking.links()["Deny"]
    asking.time.now += VALID_SECONDS + 1.0
    with pytest.raises(Denied, match="too old"):
        await asking.answers.answer(link)


async def test_an_offered_action_is_accepted_by_its_link(asking: Asking) -> None:
    offer = e.ActionOffered("o1", "r", "label-added", "x", "merge", "it is ready", 1)
    await asking.flow.append(Event(offer, asking.time(), "rule r", "offer:o1", "app", "app-x"))
    ready = replace(BLOCKED, trigger="label-added")
    links = asking.links(ready)
    assert list(links) == ["Merge", "Deny"]
    await asking.answers.answer(links["Merge"], by="slack U1")
    assert asking.inbox.answers[0][1] == {
        "decision": "allow",
        "offer": "o1",
        "key": "answer-link:app-x:offer o1",
    }


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_link_is_refused(place: int, other: int) -> None:
    world = Asking(FakeTargets({"chat": RecordingNotifier()}, actions=True), _HOME)
    token = world.answers._create_token(_word())
    at = place % len(token)
    changed = token[:at] + chr((ord(token[at]) + other) % 256) + token[at + 1 :]
    if changed == token or changed.rstrip("=") == token:
        return
    with pytest.raises(AoError) as raised:
        world.answers.preview(changed)
    assert isinstance(raised.value, Denied)


def _word() -> Any:
    from agent_orchestrator.fleet.notifications.answer_links import LinkContent

    return LinkContent("app-x", "permission abc", "allow", "chat", "n1", 10_000.0, is_button=False)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path) -> None:
    global _HOME
    _HOME = tmp_path


_HOME = Path()


@pytest.mark.parametrize("token", ["", "aoa_", "aoa_x.y", "x" * 5000, "aoa_" + "é" * 10 + ".x", "aoa_." + "A" * 43])
async def test_an_invalid_link_is_refused(asking: Asking, token: str) -> None:
    with pytest.raises(Denied):
        await asking.answers.answer(token)


async def test_a_link_of_another_home_is_refused(asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = await Asking(FakeTargets({"chat": RecordingNotifier()}, actions=True), tmp_path / "other").begin()
    with pytest.raises(Denied, match="not made here"):
        await asking.answers.answer(other.links()["Allow"])
    body = other.links()["Allow"].removeprefix("aoa_").partition(".")[0]
    content = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert content[0] == "app-x" and content[2] == "allow"
