"""Sending of notifications: recorded first, retried, without blocking; failures are notified once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import Denied, Doubtful, Missing, Temporary
from agent_orchestrator.fleet.notifications.rate_limit import SendLimits
from agent_orchestrator.protocols import Notification, Notifier
from tests.unit.core.event_strategies import created, launched
from tests.unit.fleet.notifications.world import FakeTargets, NotificationWorld, RecordingNotifier, settle

pytestmark = pytest.mark.anyio
DOWN = Temporary("chat is down", "wait")


async def test_a_notification_is_recorded_before_and_after_it_is_sent(tmp_path: Path) -> None:
    pending: list[tuple[int, str]] = []

    class PendingReader(Notifier):
        async def notify(self, notification: Notification) -> None:
            rows = [row for row in await world.store.pending() if row.intent.kind == "notify"]
            pending.append((len(rows), notification.id))

    world = await NotificationWorld(FakeTargets({"chat": PendingReader()}), tmp_path).start()
    await world.notify_person()
    assert pending == [(1, "n1")]
    assert await world.outcomes() == [("chat", "sent", ("n1",))]
    assert await world.store.pending() == []


async def test_an_unsent_notification_of_an_earlier_daemon_is_sent(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = NotificationWorld(FakeTargets({"chat": chat}), tmp_path)
    await world.flow.start()
    await world.notify_person()  # no runner executes it
    assert chat.sent == []
    await world.restart()
    await settle()
    assert [message.id for message in chat.sent] == ["n1"]


async def test_a_failing_notifier_is_retried_and_reported_once(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors = [DOWN] * 4
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person("a")
    await world.notify_person("b")
    await world.later(600.0)
    assert sorted(message.message for message in chat.sent) == ["a", "b"]
    assert len(await world.kinds("notifier-failing")) == 1
    assert len(await world.kinds("notifier-recovered")) == 1
    assert world.notifying.health.troubles() == []
    assert await world.kinds("effect-failed", "effect-delayed") == []


async def test_the_pause_requested_by_a_receiver_is_kept(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    chat.errors = [Temporary("too many", "", world.time() + 120.0)]
    await world.notify_person("a")
    await world.later(119.0)
    await world.notify_person("b")
    assert chat.sent == []
    await world.later(2.0)
    assert [message.message for message in chat.sent] == ["a", "b"]


async def test_a_hanging_notifier_does_not_block_the_others(tmp_path: Path) -> None:
    never = asyncio.Event()

    class Hanging(Notifier):
        async def notify(self, _notification: Notification) -> None:
            await never.wait()

    chat = RecordingNotifier()
    world = await NotificationWorld(FakeTargets({"hanging": Hanging(), "chat": chat}), tmp_path).start()
    await world.notify_person("a")
    await world.notify_person("b")
    assert [message.message for message in chat.sent] == ["a", "b"]


async def test_a_permanent_failure_is_reported_once(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors = [Denied("the token is refused", "make a new one")] * 2
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person("a")
    await world.notify_person("b")
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["failed", "failed"]
    (failing,) = await world.kinds("notifier-failing")
    assert failing == e.NotifierFailing("chat", "chat-1", "the token is refused", "make a new one")
    assert world.notifying.health.troubles("app")[0]["why"] == "the token is refused: make a new one"
    assert world.notifying.health.troubles("other") == []
    chat.errors.append(Denied("the token is refused", "make a new one"))
    world = await world.restart()  # which reads it from the log, and does not notify again
    await world.notify_person("c")
    assert len(await world.kinds("notifier-failing")) == 1
    assert world.notifying.health.troubles("app") != []
    await world.notify_person("d")
    assert [message.message for message in chat.sent] == ["d"]
    assert world.notifying.health.troubles("app") == []


async def test_a_plugin_may_raise_any_exception(tmp_path: Path) -> None:
    REDACTOR.learn({"test": "s3cr3tW0rdOfTheTest"})
    chat = RecordingNotifier()
    chat.errors = [ValueError("no\nsuch s3cr3tW0rdOfTheTest")]
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person("a")
    await world.notify_person("b")
    (failing,) = await world.kinds("notifier-failing")
    assert isinstance(failing, e.NotifierFailing)
    assert failing.error == "ValueError: no such [secret test]"
    assert [message.message for message in chat.sent] == ["b"]


async def test_a_missing_desktop_is_no_failure(tmp_path: Path) -> None:
    desktop = RecordingNotifier()
    desktop.errors = [Missing("no notify-send", "install it")]
    world = await NotificationWorld(FakeTargets({"desktop": desktop}, plugin="desktop"), tmp_path).start()
    await world.notify_person()
    assert await world.outcomes() == []
    assert await world.kinds("notifier-failing", "effect-failed") == []
    assert await world.store.pending() == []


async def test_a_doubtful_message_is_repeated_once_with_its_id(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors, chat.arrives = [Doubtful("no answer")] * 3, True
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person()
    await world.later(3600.0)
    assert [message.id for message in chat.sent] == ["n1", "n1"]
    assert await world.outcomes() == [("chat", "doubtful", ("n1",))]


async def test_a_receiver_that_knows_ids_gets_any_number_of_repetitions(tmp_path: Path) -> None:
    chat = RecordingNotifier(keyed=True)
    chat.errors, chat.arrives = [Doubtful("no answer")] * 3, True
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person()
    await world.later(3600.0)
    assert [message.id for message in chat.sent] == ["n1"] * 4
    assert await world.outcomes() == [("chat", "sent", ("n1",))]


@pytest.mark.parametrize("crashes", [1, 2, 3])
async def test_a_daemon_that_dies_while_sending_repeats_at_most_once(tmp_path: Path, crashes: int) -> None:
    never = asyncio.Event()
    arrived: list[str] = []

    class Dying(Notifier):
        async def notify(self, notification: Notification) -> None:
            arrived.append(notification.id)
            if len(arrived) <= crashes:
                await never.wait()

    world = await NotificationWorld(FakeTargets({"chat": Dying()}), tmp_path).start()
    await world.notify_person()
    for _ in range(crashes):
        world = await world.restart(crash=True)
        await settle()
    assert arrived == ["n1", "n1"]
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["sent" if crashes == 1 else "doubtful"]


async def test_certain_failures_before_a_restart_are_simply_retried(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors = [DOWN] * 5
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person()
    await world.later(100.0)
    world = await world.restart()
    await world.later(900.0)
    assert [message.id for message in chat.sent] == ["n1"]


async def test_a_notification_expires_after_a_day(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors = [DOWN] * 1000
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person()
    await world.later(90_000.0)
    assert await world.outcomes() == [("chat", "late", ("n1",))]
    assert await world.store.pending() == []


async def test_a_digest_is_one_message_and_settles_all_its_notices(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(
        FakeTargets({"chat": chat}, {"chat": SendLimits(digest_seconds=60.0)}), tmp_path
    ).start()
    for number in range(3):
        await world.notify_person(f"m{number}", "info")
        await world.later(10.0)
    await world.notify_person("now", "urgent")
    assert [message.message for message in chat.sent] == ["now"]
    await world.later(120.0)
    assert len(chat.sent) == 2
    assert chat.sent[1].title == "3 notifications of app"
    assert chat.sent[1].message == "• title: m0\n• title: m1\n• title: m2"
    assert await world.store.pending() == []


async def test_a_digest_survives_a_restart(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(
        FakeTargets({"chat": chat}, {"chat": SendLimits(digest_seconds=60.0)}), tmp_path
    ).start()
    await world.notify_person("a", "info")
    await world.later(30.0)
    world = await world.restart()
    await world.notify_person("b", "info")
    await world.later(31.0)
    assert [message.message for message in chat.sent] == ["• title: a\n• title: b"]


async def test_a_repeated_notification_is_sent_once_across_restarts(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(
        FakeTargets({"chat": chat}, {"chat": SendLimits(repeat_after=600.0)}), tmp_path
    ).start()
    await world.notify_person("same", key="a")
    world = await world.restart()
    await world.notify_person("same", key="b")
    await world.notify_person("same", key="c", session="app-y")
    assert [(message.message, message.session_id) for message in chat.sent] == [("same", "app-x"), ("same", "app-y")]
    assert [outcome for _, outcome, _ in await world.outcomes()] == ["sent", "repeated", "sent"]
    await world.later(601.0)
    await world.notify_person("same", key="d")
    assert len(chat.sent) == 3


async def test_a_flood_is_combined_into_few_messages_without_loss(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(
        FakeTargets({"chat": chat}, {"chat": SendLimits(max_messages=3, period_seconds=60.0, repeat_after=0.0)}),
        tmp_path,
    ).start()
    for number in range(100):
        await world.notify_person(f"m{number}.", "warning")
    await world.later(600.0)
    assert len(chat.sent) <= 6
    all_messages = " ".join(message.message for message in chat.sent)
    missing = [number for number in range(100) if f"m{number}." not in all_messages]
    assert len(missing) <= 60 and ("more: ao events" in all_messages)
    settled = [notice for _, outcome, notices in await world.outcomes() for notice in notices if outcome == "sent"]
    assert len(settled) == 100


async def test_no_secret_is_sent(tmp_path: Path) -> None:
    REDACTOR.learn({"test": "s3cr3tW0rdOfTheTest"})
    chat = RecordingNotifier()
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person("the key is s3cr3tW0rdOfTheTest")
    assert chat.sent[0].message == "the key is [secret test]"


async def test_the_link_leads_to_the_session(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.notify_person(session="app-ö x")
    assert chat.sent[0].url == "http://127.0.0.1:3000/sessions/app-%C3%B6%20x"


async def test_a_removed_notifier_is_not_used(tmp_path: Path) -> None:
    chat, targets = RecordingNotifier(), FakeTargets({"chat": RecordingNotifier(), "gone": RecordingNotifier()})
    world = NotificationWorld(targets, tmp_path)
    await world.flow.start()
    await world.notify_person()
    targets.notifiers = {"chat": chat}
    world = await world.restart()
    await settle()
    assert len(chat.sent) == 1
    assert await world.store.pending() == []


async def test_a_request_answered_meanwhile_is_not_notified(tmp_path: Path) -> None:
    chat = RecordingNotifier()
    chat.errors = [DOWN] * 12
    world = await NotificationWorld(FakeTargets({"chat": chat}), tmp_path).start()
    await world.flow.append(created(), launched())
    for name in ("asked", "again"):
        blocked = e.PermissionAsked("Bash", name)
        await world.flow.append(Event(blocked, world.time(), "hooks", name, "app", "app-x", 1))
        await world.notify_person(name, "urgent", trigger="agent-blocked")
        if name == "asked":
            goes_on = Event(e.AgentActivity("active"), world.time(), "hooks", "goes on", "app", "app-x", 1)
            await world.flow.append(goes_on)
            await world.later(700.0)
            assert await world.outcomes() == [("chat", "late", ("n4",))]
    chat.errors.clear()
    await world.later(700.0)
    assert [message.message for message in chat.sent] == ["again"]
