"""The engine in single situations that could lose or duplicate a message or leave a session hanging."""

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
from agent_orchestrator.core.effects import Effect, EffectRunner, retry_until_done
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.outbox import Batch, OutboxRow, Snapshot
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.errors import NotFound, Temporary
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.unit.core.world import SESSION, EngineWorld, ManualClock, created

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world() -> AsyncIterator[EngineWorld]:
    with structlog.testing.capture_logs():
        world = EngineWorld()
        await world.start()
        await world.flow.append(created())
        yield world
        await world.end()


def states(world: EngineWorld) -> list[str]:
    return [message.state for message in world.flow.sessions[SESSION].messages]


async def test_an_undeliverable_message_fails_and_does_not_delay_the_next(world: EngineWorld) -> None:
    await world.settle()
    world.faults["deliver"] = ["fatal"]
    await world.send()
    await world.send()
    await world.settle()
    assert states(world) == ["failed", "delivered"]


async def test_a_message_sent_before_a_pasted_prompt_follows_it(world: EngineWorld) -> None:
    world.paste = True
    await world.send()
    await world.settle()
    assert states(world) == ["delivered", "delivered"]


async def test_a_stop_during_the_launch_is_completed(world: EngineWorld) -> None:
    world.faults["launch"] = ["after"]
    for _ in range(200):
        await world.steps(1)
        if world.terminals:
            break
    await world.append_or_skip(world.event(e.StopRequested()))
    await world.settle()
    assert world.flow.sessions[SESSION].stopped


async def test_a_restore_after_a_failed_launch_launches_again_and_may_fail_again(world: EngineWorld) -> None:
    world.faults["launch"] = ["fatal", "fatal"]
    await world.settle()
    for _ in range(2):
        failure = world.flow.sessions[SESSION].failure
        assert failure is not None and failure.step == "launching"
        await world.restore()
        await world.settle()
    assert world.flow.sessions[SESSION].live


async def test_a_restore_after_a_stop_before_the_launch_launches(world: EngineWorld) -> None:
    world.faults["launch"] = ["again"]
    await world.steps(60)
    await world.append_or_skip(world.event(e.StopRequested()))
    await world.settle()
    await world.restore()
    await world.settle()
    assert world.flow.sessions[SESSION].live


async def test_a_message_whose_delivery_was_not_recorded_is_not_written_twice(world: EngineWorld) -> None:
    """The disk is full when a delivery is recorded, and the terminal is lost before the retry."""
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


async def test_the_next_launch_waits_for_the_result_of_a_pending_delivery(world: EngineWorld) -> None:
    await world.settle()
    world.faults["deliver"] = ["after", "before", "before", "before"]
    await world.send()
    await world.steps(10)
    world.kill_agent(e.AgentLost("tmux was killed"))
    await world.settle()
    assert list(world.written.values()) == [1]


@pytest.mark.parametrize(("faults", "doubt"), [(["after", *["before"] * 9], True), (["fatal"], False)])
async def test_a_failed_delivery_says_whether_the_message_may_have_arrived(
    world: EngineWorld, faults: list[str], doubt: bool
) -> None:
    await world.settle()
    world.faults["deliver"] = faults
    await world.send()
    await world.settle()
    [message] = world.flow.sessions[SESSION].messages
    assert message.state == "failed" and ("send it again if it was not" in message.reason) is doubt


async def test_an_intent_needed_again_while_its_drop_is_recorded_is_not_lost(world: EngineWorld) -> None:
    await world.settle()
    world.kill_agent(e.AgentExited(0))
    await world.steps(20)
    world.faults["launch"] = ["before"]
    await world.append_or_skip(world.event(e.MessageQueued("first", "first")))
    await world.steps(20)
    await world.append_or_skip(world.event(e.MessageFailed("first", "taken back")))
    world.time.advance(60.0)
    await asyncio.sleep(0)
    await world.append_or_skip(world.event(e.MessageQueued("second", "second")))
    await world.settle()
    assert states(world) == ["failed", "delivered"]


async def test_a_message_held_by_a_dialog_is_delivered_when_the_dialog_closes(
    world: EngineWorld,
) -> None:
    await world.settle()
    blocked = world.event(e.AgentActivity("blocked"), generation=1, source="spool")
    await world.append_or_skip(blocked)
    await world.send()
    await world.steps(20)
    assert states(world) == ["queued"]
    await world.append_or_skip(world.event(e.AgentActivity("active"), generation=1, source="spool"))
    await world.steps(20)
    assert states(world) == ["delivered"]


async def test_a_dialog_that_closes_while_a_delivery_is_postponed_is_noticed(world: EngineWorld) -> None:
    await world.settle()
    await world.append_or_skip(world.event(e.AgentActivity("blocked"), generation=1, source="spool"))
    queued = world.event(e.MessageQueued("m", "m"))
    active = world.event(e.AgentActivity("active"), generation=1, source="spool")
    await world.append_or_skip(queued)
    for _ in range(200):
        await asyncio.sleep(0)
        if world.deferred_deliveries:  # which is being recorded now
            break
    await world.append_or_skip(active)
    await world.steps(40)
    assert states(world) == ["delivered"]


async def test_events_between_the_start_and_the_first_effect_are_acted_on(world: EngineWorld) -> None:
    """A daemon finds the agent of a stopping session gone and records that before it runs effects."""
    await world.settle()
    world.faults["stop"] = ["again"]
    await world.append_or_skip(world.event(e.StopRequested()))
    await world.steps(20)
    await world.end()
    world.store = world.store.clone()
    world.flow = Flow(world.store, world.time, lambda _project, _profile: DEFAULT_RULES)
    world.runner = EffectRunner(world.flow, world.effects())
    pending = await world.flow.start()
    await world.append_or_skip(world.event(e.AgentStopped(0), f"ended:{SESSION}:1", 1))
    assert [row.intent.kind for row in pending if row.intent.kind != "silence"] == ["stop"]
    world.runner.start(pending)
    await world.settle()
    assert world.flow.sessions[SESSION].stopped


async def test_an_event_appended_twice_is_stored_once(world: EngineWorld) -> None:
    event = world.event(e.AgentReport("x"), "once")
    both = await asyncio.gather(world.flow.append(event, event), world.flow.append(event))
    assert [len(stored) for stored in both] == [1, 0]
    assert await world.flow.append(event) == []


async def test_concurrent_appends_share_a_commit_and_keep_their_order() -> None:
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    stored = await asyncio.gather(
        *(flow.append(Event(e.AgentReport(str(n)), 1.0, "test", f"k{n}", "app", SESSION)) for n in range(50))
    )
    assert [event.seq for events in stored for event in events] == list(range(1, 51))
    assert store.commit_count < 5
    await flow.stop()


async def test_a_failed_write_raises_for_its_caller_and_stores_nothing() -> None:
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    store.fail_at(1)
    with pytest.raises(Temporary, match="full"), acting_as("local me"):
        await flow.append(created())
    assert flow.sessions == {} and await store.events() == []
    assert [event.seq for event in await flow.append(created())] == [1]
    await flow.stop()


async def test_events_without_a_waiting_caller_are_written_once_the_store_recovers() -> None:
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    store.fail_at(1)
    store.fail_at(2)
    assert [event.seq for event in await flow.append(created())] == [1]
    assert SESSION in flow.sessions
    await flow.stop()


async def test_a_store_that_keeps_failing_does_not_block_the_stop() -> None:
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    for write in range(1, 100_000):
        store.fail_at(write)
    appending = asyncio.create_task(flow.append(created()))
    await asyncio.sleep(0.01)
    await flow.stop()
    with pytest.raises(Temporary, match="full"):
        await appending


async def test_an_error_while_reporting_a_failed_write_does_not_block_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
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


async def test_an_event_that_cannot_be_folded_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(MemoryStore(), ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
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


async def test_a_failing_listener_stops_neither_the_others_nor_the_writing(world: EngineWorld) -> None:
    def broken(_changes: Sequence[FactsChange]) -> None:
        raise RuntimeError("a listener's own fault")

    changes: list[FactsChange] = []
    world.flow.listeners.on_events(broken)
    world.flow.listeners.on_events(changes.extend)
    await world.flow.append(world.event(e.AgentReport("x")))
    await world.flow.append(world.event(e.AgentReport("y")))
    assert len(changes) == 2


async def test_nothing_is_accepted_once_the_flow_has_stopped() -> None:
    flow = Flow(MemoryStore(), ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    await flow.stop()
    with pytest.raises(Temporary, match="stopping"):
        async with asyncio.timeout(60):
            await flow.append(created())


async def test_facts_that_could_not_be_saved_are_in_the_next_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 2)
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
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


async def test_a_partly_saved_snapshot_folds_each_event_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 6)
    monkeypatch.setattr("agent_orchestrator.core.engine.SESSIONS_PER_SAVE", 1)
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    names = ("app-a", "app-b", "app-c")
    with structlog.testing.capture_logs():
        await flow.start()
        await flow.append(*(created(name) for name in names))
        store.fail_at(3)  # the second slice; the first has what follows already
        used = [Event(e.AgentUsage(input=5), 2.0, "test", f"u{name}", "app", name) for name in names]
        await flow.append(*used)
        await flow.append()
    again = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    saved = await store.snapshot()
    assert saved is not None and saved.seq == 0 and list(saved.sessions) == ["app-a"]
    await again.catch_up_from_store()
    assert again.sessions == flow.sessions
    assert again.home == flow.home


async def test_an_event_that_cannot_be_folded_is_skipped_on_start() -> None:
    """The event is damaged, or of a newer version."""
    store = MemoryStore()
    damaged = Event(e.decode("agent-usage", {"input": "five"}), 2.0, "test", "odd", "app", "app-a", seq=2)
    after = Event(e.AgentUsage(input=7), 3.0, "test", "after", "app", "app-a", seq=3)
    first = replace(created("app-a"), seq=1)
    await store.write(lambda _keys: (Batch([first, damaged, after], []), None))
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
    with structlog.testing.capture_logs() as lines:
        await flow.catch_up_from_store()
    assert flow.sessions["app-a"].usage.input == 7
    assert [(line["log_level"], line["seq"]) for line in lines] == [("error", 2)]


async def test_a_row_of_the_outbox_is_recorded_without_secrets(world: EngineWorld) -> None:
    secret = "ghp_" + "a1B2" * 9
    intent = Intent("command", "k", SESSION, args={"variables": {"errors": f"E {secret}"}})
    await world.flow.append(rows=[OutboxRow(intent, 1, 1, 0.0, state="done", result=f"failed: {secret}")])
    [row] = [stored for stored in await world.store.rows(SESSION) if stored.intent.key == "k"]
    assert row.intent.args == {"variables": {"errors": "E [secret GitHub token]"}}
    assert row.result == "failed: [secret GitHub token]"


async def test_appends_do_not_wait_for_a_whole_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.SNAPSHOT_EVERY", 30)
    monkeypatch.setattr("agent_orchestrator.core.engine.SESSIONS_PER_SAVE", 2)
    store = MemoryStore()
    flow = Flow(store, ManualClock(5.0), lambda _project, _profile: DEFAULT_RULES)
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


async def test_a_merge_that_fails_for_good_is_refused_with_its_error(world: EngineWorld) -> None:
    async def merge(_intent: object, _attempts: int) -> list[Event]:
        raise IndexError("list index out of range")

    async def nothing(_intent: object, _attempts: int) -> list[Event]:
        return []

    await world.settle()
    world.runner.effects = {
        **world.effects(),
        "land": Effect(merge),
        "check": Effect(nothing),
        "compare": Effect(nothing),
    }
    opened = (e.HeadMoved("c1"), e.PrOpened(1, "t", "main"), e.PrReady(), e.MergeRequested("squash"))
    await world.flow.append(*(world.event(body) for body in opened))
    await world.settle()
    pr = world.flow.sessions[SESSION].pr
    assert pr is not None and pr.merge_request is None and "IndexError" in (pr.merge_failure or "")


@pytest.mark.parametrize(
    "hindrance",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        NotFound("the project app is not registered any more", "add it"),
    ],
    ids=["disk", "project"],
)
async def test_an_effect_is_retried_until_a_full_disk_or_missing_project_recovers(
    world: EngineWorld, hindrance: Exception
) -> None:
    attempts: list[str] = []

    async def check(_intent: object, _attempts: int) -> list[Event]:
        attempts.append("check")
        if len(attempts) < 20:
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
    assert len(attempts) == 20 and pr is not None and pr.settled_head == "c1"
    delays = [event.body for event in await world.store.events(0, 1000) if isinstance(event.body, e.EffectDelayed)]
    assert [delay.intent for delay in delays] == ["check"], "once, however long it lasts"
    assert delays[0].error in str(hindrance)
