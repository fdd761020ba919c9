"""Sending: recorded first, tried again, never blocking, told once when it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import Denied, Doubtful, Missing, Temporary
from agent_orchestrator.fleet.notifications.rate import Pace
from agent_orchestrator.protocols import Notification, Notifier
from tests.unit.core.event_strategies import created, launched
from tests.unit.fleet.notifications.world import Fakes, Recorder, World, settle

pytestmark = pytest.mark.anyio
DOWN = Temporary("chat is down", "wait")


async def test_it_is_recorded_before_it_is_sent_and_its_end_after(tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []

    class Looking(Notifier):
        async def notify(self, notification: Notification) -> None:
            rows = [row for row in await world.store.pending() if row.intent.kind == "notify"]
            seen.append((len(rows), notification.id))

    world = await World(Fakes({"chat": Looking()}), tmp_path).start()
    await world.tell()
    assert seen == [(1, "n1")]
    assert await world.outcomes() == [("chat", "sent", ("n1",))]
    assert await world.store.pending() == []


async def test_what_an_earlier_daemon_did_not_send_is_sent(tmp_path: Path) -> None:
    chat = Recorder()
    world = World(Fakes({"chat": chat}), tmp_path)
    await world.flow.start()
    await world.tell()  # nobody carries it out
    assert chat.sent == []
    await world.restart()
    await settle()
    assert [one.id for one in chat.sent] == ["n1"]


async def test_a_failing_notifier_is_tried_again_and_told_of_once(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors = [DOWN] * 4
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell("a")
    await world.tell("b")
    await world.later(600.0)
    assert sorted(one.message for one in chat.sent) == ["a", "b"]
    assert len(await world.kinds("notifier-failing")) == 1
    assert len(await world.kinds("notifier-recovered")) == 1
    assert world.notifying.health.troubles() == []
    assert await world.kinds("effect-failed", "effect-delayed") == []


async def test_the_pause_that_a_receiver_asks_for_is_kept(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    chat.errors = [Temporary("too many", "", world.time() + 120.0)]
    await world.tell("a")
    await world.later(119.0)
    await world.tell("b")
    assert chat.sent == []
    await world.later(2.0)
    assert [one.message for one in chat.sent] == ["a", "b"]


async def test_one_that_hangs_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    never = asyncio.Event()

    class Hanging(Notifier):
        async def notify(self, _notification: Notification) -> None:
            await never.wait()

    chat = Recorder()
    world = await World(Fakes({"hanging": Hanging(), "chat": chat}), tmp_path).start()
    await world.tell("a")
    await world.tell("b")
    assert [one.message for one in chat.sent] == ["a", "b"]


async def test_what_is_refused_for_good_is_given_up_and_told_once(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors = [Denied("the token is refused", "make a new one")] * 2
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell("a")
    await world.tell("b")
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["failed", "failed"]
    (failing,) = await world.kinds("notifier-failing")
    assert failing == e.NotifierFailing("chat", "chat-1", "the token is refused", "make a new one")
    assert world.notifying.health.troubles("app")[0]["why"] == "the token is refused: make a new one"
    assert world.notifying.health.troubles("other") == []
    chat.errors.append(Denied("the token is refused", "make a new one"))
    world = await world.restart()  # which knows it from the log, and does not tell it again
    await world.tell("c")
    assert len(await world.kinds("notifier-failing")) == 1
    assert world.notifying.health.troubles("app") != []
    await world.tell("d")
    assert [one.message for one in chat.sent] == ["d"]
    assert world.notifying.health.troubles("app") == []


async def test_a_plugin_may_fail_in_any_way(tmp_path: Path) -> None:
    REDACTOR.learn({"test": "s3cr3tW0rdOfTheTest"})
    chat = Recorder()
    chat.errors = [ValueError("no\nsuch s3cr3tW0rdOfTheTest")]
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell("a")
    await world.tell("b")
    (failing,) = await world.kinds("notifier-failing")
    assert isinstance(failing, e.NotifierFailing)
    assert failing.error == "ValueError: no such [secret test]"
    assert [one.message for one in chat.sent] == ["b"]


async def test_a_machine_without_a_desktop_is_no_trouble(tmp_path: Path) -> None:
    desktop = Recorder()
    desktop.errors = [Missing("no notify-send", "install it")]
    world = await World(Fakes({"desktop": desktop}, plugin="desktop"), tmp_path).start()
    await world.tell()
    assert await world.outcomes() == []
    assert await world.kinds("notifier-failing", "effect-failed") == []
    assert await world.store.pending() == []


async def test_what_may_have_arrived_is_sent_once_more_with_the_same_id(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors, chat.arrives = [Doubtful("no answer")] * 3, True
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell()
    await world.later(3600.0)
    assert [one.id for one in chat.sent] == ["n1", "n1"]
    assert await world.outcomes() == [("chat", "doubtful", ("n1",))]


async def test_whoever_knows_ids_may_be_sent_it_as_often_as_it_takes(tmp_path: Path) -> None:
    chat = Recorder(keyed=True)
    chat.errors, chat.arrives = [Doubtful("no answer")] * 3, True
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell()
    await world.later(3600.0)
    assert [one.id for one in chat.sent] == ["n1"] * 4
    assert await world.outcomes() == [("chat", "sent", ("n1",))]


@pytest.mark.parametrize("crashes", [1, 2, 3])
async def test_a_daemon_that_dies_while_sending_repeats_it_once_at_most(tmp_path: Path, crashes: int) -> None:
    never = asyncio.Event()
    arrived: list[str] = []

    class Dying(Notifier):
        async def notify(self, notification: Notification) -> None:
            arrived.append(notification.id)
            if len(arrived) <= crashes:
                await never.wait()

    world = await World(Fakes({"chat": Dying()}), tmp_path).start()
    await world.tell()
    for _ in range(crashes):
        world = await world.restart(crash=True)
        await settle()
    assert arrived == ["n1", "n1"]
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["sent" if crashes == 1 else "doubtful"]


async def test_known_failures_before_a_restart_are_no_doubt(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors = [DOWN] * 5
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell()
    await world.later(100.0)
    world = await world.restart()
    await world.later(900.0)
    assert [one.id for one in chat.sent] == ["n1"]


async def test_after_a_day_it_is_of_no_use(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors = [DOWN] * 1000
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell()
    await world.later(90_000.0)
    assert await world.outcomes() == [("chat", "late", ("n1",))]
    assert await world.store.pending() == []


async def test_a_digest_is_one_message_and_ends_all_that_are_in_it(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}, {"chat": Pace(digest=60.0)}), tmp_path).start()
    for number in range(3):
        await world.tell(f"m{number}", "info")
        await world.later(10.0)
    await world.tell("now", "urgent")
    assert [one.message for one in chat.sent] == ["now"]
    await world.later(120.0)
    assert len(chat.sent) == 2
    assert chat.sent[1].title == "3 notifications of app"
    assert chat.sent[1].message == "• title: m0\n• title: m1\n• title: m2"
    assert await world.store.pending() == []


async def test_a_digest_survives_the_daemon(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}, {"chat": Pace(digest=60.0)}), tmp_path).start()
    await world.tell("a", "info")
    await world.later(30.0)
    world = await world.restart()
    await world.tell("b", "info")
    await world.later(31.0)
    assert [one.message for one in chat.sent] == ["• title: a\n• title: b"]


async def test_the_same_is_said_once_across_restarts(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}, {"chat": Pace(repeat_after=600.0)}), tmp_path).start()
    await world.tell("same", key="a")
    world = await world.restart()
    await world.tell("same", key="b")
    await world.tell("same", key="c", session="app-y")
    assert [(one.message, one.session_id) for one in chat.sent] == [("same", "app-x"), ("same", "app-y")]
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["sent", "repeated", "sent"]
    await world.later(601.0)
    await world.tell("same", key="d")
    assert len(chat.sent) == 3


async def test_a_flood_comes_as_few_messages_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}, {"chat": Pace(most=3, per=60.0, repeat_after=0.0)}), tmp_path).start()
    for number in range(100):
        await world.tell(f"m{number}.", "warning")
    await world.later(600.0)
    assert len(chat.sent) <= 6
    told = " ".join(one.message for one in chat.sent)
    missing = [number for number in range(100) if f"m{number}." not in told]
    assert len(missing) <= 60 and ("more: ao events" in told)
    settled = [notice for _, outcome, notices in await world.outcomes() for notice in notices if outcome == "sent"]
    assert len(settled) == 100


async def test_no_secret_is_sent(tmp_path: Path) -> None:
    REDACTOR.learn({"test": "s3cr3tW0rdOfTheTest"})
    chat = Recorder()
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell("the key is s3cr3tW0rdOfTheTest")
    assert chat.sent[0].message == "the key is [secret test]"


async def test_the_link_leads_to_the_session(tmp_path: Path) -> None:
    chat = Recorder()
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.tell(session="app-ö x")
    assert chat.sent[0].url == "http://127.0.0.1:3000/sessions/app-%C3%B6%20x"


async def test_a_notifier_that_is_configured_no_more_is_not_asked(tmp_path: Path) -> None:
    chat, targets = Recorder(), Fakes({"chat": Recorder(), "gone": Recorder()})
    world = World(targets, tmp_path)
    await world.flow.start()
    await world.tell()
    targets.notifiers = {"chat": chat}
    world = await world.restart()
    await settle()
    assert len(chat.sent) == 1
    assert await world.store.pending() == []


async def test_a_question_that_was_answered_meanwhile_is_not_told(tmp_path: Path) -> None:
    chat = Recorder()
    chat.errors = [DOWN] * 12
    world = await World(Fakes({"chat": chat}), tmp_path).start()
    await world.flow.append(created(), launched())
    for name in ("asked", "again"):
        blocked = e.PermissionAsked("Bash", name)
        await world.flow.append(Event(blocked, world.time(), "hooks", name, "app", "app-x", 1))
        await world.tell(name, "urgent", trigger="agent-blocked")
        if name == "asked":
            goes_on = Event(e.AgentActivity("active"), world.time(), "hooks", "goes on", "app", "app-x", 1)
            await world.flow.append(goes_on)
            await world.later(700.0)
            assert await world.outcomes() == [("chat", "late", ("n4",))]
    chat.errors.clear()
    await world.later(700.0)
    assert [one.message for one in chat.sent] == ["again"]
