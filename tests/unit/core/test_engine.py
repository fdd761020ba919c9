"""The engine in single situations: each was, or could have been, a message lost or doubled, or a session that hangs."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as
from agent_orchestrator.core.effects import Effect, Runner, retry_until_done
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.listeners import Change
from agent_orchestrator.core.outbox import Batch, Row, Snapshot
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules import DEFAULT_RULES
from agent_orchestrator.errors import NotFound, Temporary
from agent_orchestrator.testing.memory import MemoryStore
from tests.unit.core.world import SESSION, Time, World, created

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with structlog.testing.capture_logs():
        world = World()
        await world.start()
        await world.flow.append(created())
        yield world
        await world.end()


def states(world: World) -> list[str]:
    return [message.state for message in world.flow.sessions[SESSION].messages]


async def test_a_message_that_cannot_be_delivered_is_told_and_holds_nobody_back(world: World) -> None:
    await world.settle()
    world.faults["deliver"] = ["fatal"]
    await world.send()
    await world.send()
    await world.settle()
    assert states(world) == ["failed", "delivered"]


async def test_a_message_sent_before_a_pasted_prompt_follows_it(world: World) -> None:
    world.paste = True
    await world.send()
    await world.settle()
    assert states(world) == ["delivered", "delivered"]


async def test_a_stop_while_the_agent_is_being_launched_comes_to_its_end(world: World) -> None:
    world.faults["launch"] = ["after"]
    for _ in range(200):
        await world.steps(1)
        if world.terminals:
            break
    await world.tell(world.event(e.StopRequested()))
    await world.settle()
    assert world.flow.sessions[SESSION].stopped


async def test_a_restore_after_a_failed_launch_launches_again_and_may_fail_again(world: World) -> None:
    world.faults["launch"] = ["fatal", "fatal"]
    await world.settle()
    for _ in range(2):
        failure = world.flow.sessions[SESSION].failure
        assert failure is not None and failure.step == "launching"
        await world.restore()
        await world.settle()
    assert world.flow.sessions[SESSION].live


async def test_a_restore_after_a_stop_before_the_launch_launches(world: World) -> None:
    world.faults["launch"] = ["again"]
    await world.steps(60)
    await world.tell(world.event(e.StopRequested()))
    await world.settle()
    await world.restore()
    await world.settle()
    assert world.flow.sessions[SESSION].live


async def test_what_was_written_but_not_recorded_is_not_written_again_by_the_next_launch(world: World) -> None:
    """The disk is full when a delivery is to be recorded, and the terminal is lost before it can be."""
    await world.settle()
    await world.send()
    for _ in range(200):
        await asyncio.sleep(0)
        if world.written:
            break
    world.store.fail_at(1)
    await world.steps(10)
    world.kill_agent(e.AgentLost("tmux was killed"))
    await world.settle()
    assert list(world.written.values()) == [1]


async def test_the_next_launch_waits_until_it_is_known_whether_a_message_was_written(world: World) -> None:
    await world.settle()
    world.faults["deliver"] = ["after", "before", "before", "before"]
    await world.send()
    await world.steps(10)
    world.kill_agent(e.AgentLost("tmux was killed"))
    await world.settle()
    assert list(world.written.values()) == [1]


@pytest.mark.parametrize(("faults", "doubt"), [(["after", *["before"] * 9], True), (["fatal"], False)])
async def test_a_delivery_that_was_tried_in_vain_says_whether_it_may_have_come(
    world: World, faults: list[str], doubt: bool
) -> None:
    await world.settle()
    world.faults["deliver"] = faults
    await world.send()
    await world.settle()
    [message] = world.flow.sessions[SESSION].messages
    assert message.state == "failed" and ("send it again if it was not" in message.reason) is doubt


async def test_an_intent_needed_again_while_its_drop_is_recorded_is_not_lost(world: World) -> None:
    await world.settle()
    world.kill_agent(e.AgentExited(0))
    await world.steps(20)
    world.faults["launch"] = ["before"]
    await world.tell(world.event(e.MessageQueued("first", "first")))
    await world.steps(20)
    await world.tell(world.event(e.MessageFailed("first", "taken back")))
    world.time.advance(60.0)
    await asyncio.sleep(0)
    await world.tell(world.event(e.MessageQueued("second", "second")))
    await world.settle()
    assert states(world) == ["failed", "delivered"]


async def test_a_message_held_by_a_dialog_goes_when_the_dialog_closes_without_waiting_for_its_time(
    world: World,
) -> None:
    await world.settle()
    blocked = world.event(e.AgentActivity("blocked"), generation=1, source="spool")
    await world.tell(blocked)
    await world.send()
    await world.steps(20)
    assert states(world) == ["queued"]
    await world.tell(world.event(e.AgentActivity("active"), generation=1, source="spool"))
    await world.steps(20)
    assert states(world) == ["delivered"]


async def test_a_dialog_that_closes_while_a_delivery_gives_way_to_it_is_not_missed(world: World) -> None:
    await world.settle()
    await world.tell(world.event(e.AgentActivity("blocked"), generation=1, source="spool"))
    queued = world.event(e.MessageQueued("m", "m"))
    active = world.event(e.AgentActivity("active"), generation=1, source="spool")
    await world.tell(queued)
    for _ in range(200):
        await asyncio.sleep(0)
        if world.gave_way:  # which is being recorded now
            break
    await world.tell(active)
    await world.steps(40)
    assert states(world) == ["delivered"]


async def test_what_is_recorded_between_a_start_and_the_first_effect_is_carried_out(world: World) -> None:
    """A daemon finds the agent of a session gone that was being stopped, and records that before it begins to work."""
    await world.settle()
    world.faults["stop"] = ["again"]
    await world.tell(world.event(e.StopRequested()))
    await world.steps(20)
    await world.end()
    world.store = world.store.clone()
    world.flow = Flow(world.store, world.time, lambda _project, _profile: DEFAULT_RULES)
    world.runner = Runner(world.flow, world.effects())
    pending = await world.flow.start()
    await world.tell(world.event(e.AgentStopped(0), f"ended:{SESSION}:1", 1))
    assert [row.intent.kind for row in pending if row.intent.kind != "silence"] == ["stop"]
    world.runner.start(pending)
    await world.settle()
    assert world.flow.sessions[SESSION].stopped


async def test_the_same_thing_told_twice_is_stored_once(world: World) -> None:
    event = world.event(e.AgentReport("x"), "once")
    both = await asyncio.gather(world.flow.append(event, event), world.flow.append(event))
    assert [len(stored) for stored in both] == [1, 0]
    assert await world.flow.append(event) == []


async def test_appends_that_come_together_share_a_commit_and_keep_their_order() -> None:
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    stored = await asyncio.gather(
        *(flow.append(Event(e.AgentReport(str(n)), 1.0, "test", f"k{n}", "app", SESSION)) for n in range(50))
    )
    assert [one.seq for part in stored for one in part] == list(range(1, 51))
    assert store.commits < 5
    await flow.stop()


async def test_a_failing_write_is_told_to_all_it_concerns_and_keeps_nothing() -> None:
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    store.fail_at(1)
    with pytest.raises(Temporary, match="full"), acting_as("local me"):
        await flow.append(created())
    assert flow.sessions == {} and await store.events() == []
    assert [event.seq for event in await flow.append(created())] == [1]
    await flow.stop()


async def test_what_nobody_would_say_again_is_written_as_soon_as_that_is_possible() -> None:
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    store.fail_at(1)
    store.fail_at(2)
    assert [event.seq for event in await flow.append(created())] == [1]
    assert SESSION in flow.sessions
    await flow.stop()


async def test_a_store_that_stays_away_keeps_nobody_from_ending() -> None:
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    for write in range(1, 100_000):
        store.fail_at(write)
    telling = asyncio.create_task(flow.append(created()))
    await asyncio.sleep(0.01)
    await flow.stop()
    with pytest.raises(Temporary, match="full"):
        await telling


async def test_whatever_goes_wrong_while_it_is_told_that_a_write_failed_the_next_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    store.fail_at(1)

    def full(*_words: object, **_fields: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("agent_orchestrator.core.engine.log.warning", full)
        with pytest.raises(OSError, match="No space"):
            await flow.append(created())
    assert [event.seq for event in await flow.append(created())] == [1]
    await flow.stop()


async def test_what_cannot_be_recorded_harms_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(MemoryStore(), Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    poison = Event(e.AgentReport("x"), 1.0, "test", "poison", "app", SESSION)

    def reduce(home: object, event: Event) -> object:
        if event.key == "poison":
            raise ValueError("poison")
        return home

    monkeypatch.setattr("agent_orchestrator.core.engine.reduce_home", reduce)
    bad, good = await asyncio.gather(flow.append(poison), flow.append(created()), return_exceptions=True)
    assert isinstance(bad, ValueError)
    assert isinstance(good, list) and len(good) == 1
    await flow.stop()


async def test_a_listener_that_fails_stops_neither_the_others_nor_the_writing(world: World) -> None:
    def broken(_changes: Sequence[Change]) -> None:
        raise RuntimeError("a listener's own fault")

    told: list[Change] = []
    world.flow.listeners.on(broken)
    world.flow.listeners.on(told.extend)
    await world.flow.append(world.event(e.AgentReport("x")))
    await world.flow.append(world.event(e.AgentReport("y")))
    assert len(told) == 2


async def test_nothing_is_accepted_once_the_flow_has_stopped() -> None:
    flow = Flow(MemoryStore(), Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    await flow.stop()
    with pytest.raises(Temporary, match="stopping"):
        async with asyncio.timeout(60):
            await flow.append(created())


async def test_facts_that_could_not_be_saved_are_saved_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 2)
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    with structlog.testing.capture_logs():
        await flow.start()
        store.fail_at(2)
        await flow.append(created(), created("app-y"))
        await flow.append(Event(e.SessionAdmitted(), 2.0, "test", "a", "app", "app-y"))
        await flow.append(Event(e.SessionAdmitted(), 2.0, "test", "b", "app", "app-y"))
        await flow.stop()
    snapshot = await store.snapshot()
    assert snapshot is not None
    assert snapshot.sessions == flow.sessions


async def test_facts_that_were_saved_in_part_when_the_daemon_died_are_folded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 6)
    monkeypatch.setattr("agent_orchestrator.core.engine.SESSIONS_PER_SAVE", 1)
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    names = ("app-a", "app-b", "app-c")
    with structlog.testing.capture_logs():
        await flow.start()
        await flow.append(*(created(name) for name in names))
        store.fail_at(3)  # the second slice; the first has what follows already
        used = [Event(e.AgentUsage(input=5), 2.0, "test", f"u{name}", "app", name) for name in names]
        await flow.append(*used)
        await flow.append()
    again = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    saved = await store.snapshot()
    assert saved is not None and saved.seq == 0 and list(saved.sessions) == ["app-a"]
    await again.follow()
    assert again.sessions == flow.sessions
    assert again.home == flow.home


async def test_an_event_that_cannot_be_folded_keeps_no_other_from_being_seen() -> None:
    """A damaged record, or one that a newer version meant otherwise."""
    store = MemoryStore()
    odd = Event(e.decode("agent-usage", {"input": "five"}), 2.0, "test", "odd", "app", "app-a", seq=2)
    after = Event(e.AgentUsage(input=7), 3.0, "test", "after", "app", "app-a", seq=3)
    first = replace(created("app-a"), seq=1)
    await store.write(lambda _known: (Batch([first, odd, after], []), None))
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    with structlog.testing.capture_logs() as told:
        await flow.follow()
    assert flow.sessions["app-a"].usage.input == 7
    assert [(one["log_level"], one["seq"]) for one in told] == [("error", 2)]


async def test_a_row_of_the_outbox_is_recorded_without_secrets(world: World) -> None:
    secret = "ghp_" + "a1B2" * 9
    intent = Intent("command", "k", SESSION, args={"variables": {"errors": f"E {secret}"}})
    await world.flow.append(rows=[Row(intent, 1, 1, 0.0, state="done", result=f"failed: {secret}")])
    [row] = [one for one in await world.store.rows(SESSION) if one.intent.key == "k"]
    assert row.intent.args == {"variables": {"errors": "E [secret GitHub token]"}}
    assert row.result == "failed: [secret GitHub token]"


async def test_what_is_told_while_facts_are_saved_does_not_wait_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 30)
    monkeypatch.setattr("agent_orchestrator.core.engine.SESSIONS_PER_SAVE", 2)
    store = MemoryStore()
    flow = Flow(store, Time(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    order: list[str] = []
    save, write = store.save_snapshot, store.write

    async def saving(snapshot: Snapshot, changed: Sequence[str]) -> None:
        order.append(f"saved {len(changed)}")
        await save(snapshot, changed)
        await asyncio.sleep(0)

    async def writing(compute: Any) -> Any:
        order.append("written")
        return await write(compute)

    monkeypatch.setattr(store, "save_snapshot", saving)
    monkeypatch.setattr(store, "write", writing)
    await flow.append(*(created(f"app-{number:02}") for number in range(30)))
    await flow.append(Event(e.SessionAdmitted(), 2.0, "test", "a", "app", "app-00"))
    await flow.stop()
    assert order.count("saved 2") == 15
    assert order.index("written", 1) < order.index("saved 2") + 5


async def test_a_landing_that_is_tried_no_more_is_told_so_and_waited_for_by_nobody(world: World) -> None:
    async def land(_intent: object, _attempts: int) -> list[Event]:
        raise IndexError("list index out of range")

    async def nothing(_intent: object, _attempts: int) -> list[Event]:
        return []

    await world.settle()
    world.runner.effects = {
        **world.effects(),
        "land": Effect(land),
        "check": Effect(nothing),
        "compare": Effect(nothing),
    }
    opened = (e.HeadMoved("c1"), e.PrOpened(1, "t", "main"), e.PrReady(), e.MergeRequested("squash"))
    await world.flow.append(*(world.event(body) for body in opened))
    await world.settle()
    pr = world.flow.sessions[SESSION].pr
    assert pr is not None and pr.landing is None and "IndexError" in (pr.refused or "")


@pytest.mark.parametrize(
    "hindrance",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        NotFound("the project app is not registered any more", "add it"),
    ],
    ids=["disk", "project"],
)
async def test_what_nothing_would_ask_for_again_waits_for_a_full_disk_and_is_done_after_it(
    world: World, hindrance: Exception
) -> None:
    tried: list[str] = []

    async def check(_intent: object, _attempts: int) -> list[Event]:
        tried.append("check")
        if len(tried) < 20:
            raise hindrance
        return [world.event(e.ChecksSettled("c1"))]

    async def nothing(_intent: object, _attempts: int) -> list[Event]:
        return []

    await world.settle()
    world.runner.effects = {
        **world.effects(),
        "check": Effect(retry_until_done(check)),
        "compare": Effect(nothing),
    }
    await world.flow.append(*(world.event(body) for body in (e.HeadMoved("c1"), e.PrOpened(1, "t", "main"))))
    for _ in range(25):
        await world.steps(30)
        world.time.advance(301.0)
    pr = world.flow.sessions[SESSION].pr
    assert len(tried) == 20 and pr is not None and pr.settled == "c1"
    told = [event.body for event in await world.store.events(0, 1000) if isinstance(event.body, e.EffectDelayed)]
    assert [one.intent for one in told] == ["check"], "once, however long it lasts"
    assert told[0].error in str(hindrance)
