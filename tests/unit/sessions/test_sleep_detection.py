"""Detection of suspended machines: time asleep counts as no silence, and due timers run once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner, RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.stuck_threshold import STUCK_AFTER_SECONDS
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.sessions.sleep_detection import MIN_SLEEP, SleepDetector
from tests.parts import make_core
from tests.unit.core.world import SESSION, EngineWorld, ManualClock, created

pytestmark = pytest.mark.anyio
NIGHT = 8 * 3600.0


class SleepingTime(ManualClock):
    """A clock of a machine that may sleep."""

    slept = 0.0

    def monotonic(self) -> float:
        return self.now - self.slept


class Asleep(EngineWorld):
    """A world with the daemon's silence check, whose machine may sleep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = SleepingTime()
        super().__init__(self.machine)

    def effects(self) -> dict[str, Effect]:
        return {**super().effects(), "silence": Effect(self.silence), "react": Effect(self.react)}

    async def silence(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        heard = max(facts.activity.at, facts.last_sign_at)
        if self.time.now < heard + STUCK_AFTER_SECONDS:
            raise RetryLater(heard + STUCK_AFTER_SECONDS - self.time.now)
        raise RetryLater(STUCK_AFTER_SECONDS, self.event(e.TimerDue("silence"), f"silent:{heard}", facts.generation))

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        self.reacted.append(str(intent.args["trigger"]))
        return []

    async def start(self) -> None:
        self.reacted: list[str] = []
        await super().start()

    def make_runner(self) -> EffectRunner:
        self.waking = SleepDetector(make_core(self.folder, self.flow))
        return EffectRunner(self.flow, self.effects(), self.waking.record_sleep)

    async def sleep(self, seconds: float) -> None:
        """Suspend the machine: its timers stand still."""
        self.machine.slept += seconds
        self.time.now += seconds
        for timer in self.time.timers:
            timer.at += seconds

    async def awake(self, seconds: float) -> None:
        for _ in range(int(seconds // 60)):
            self.time.advance(60.0)
            await self.steps(20)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Asleep]:
    with structlog.testing.capture_logs():
        world = Asleep(tmp_path)
        await world.start()
        await world.flow.append(created())
        await world.settle()
        yield world
        await world.end()


async def begin_turn(world: Asleep) -> None:
    await world.append_or_skip(
        world.event(e.AgentActivity("active"), generation=world.flow.sessions[SESSION].generation)
    )
    await world.steps(20)
    assert derive_status(world.flow.sessions[SESSION], world.time.now).name == "working"


async def test_a_night_asleep_is_no_silence(world: Asleep) -> None:
    await begin_turn(world)
    await world.awake(300)
    await world.sleep(NIGHT)
    await world.awake(STUCK_AFTER_SECONDS - 120)
    assert derive_status(world.flow.sessions[SESSION], world.time.now).name == "working"
    assert world.reacted == []
    events = await world.store.events(kind="machine-woke")
    assert [event.session for event in events] == [SESSION]


async def test_a_long_silence_after_sleep_is_stuck(world: Asleep) -> None:
    await begin_turn(world)
    await world.sleep(NIGHT)
    await world.awake(2 * STUCK_AFTER_SECONDS)
    assert derive_status(world.flow.sessions[SESSION], world.time.now).name == "stuck"
    assert world.reacted == ["agent-stuck"]


async def test_an_idle_session_records_no_wake_up(world: Asleep) -> None:
    await begin_turn(world)
    await world.append_or_skip(world.event(e.AgentActivity("idle"), generation=world.flow.sessions[SESSION].generation))
    await world.sleep(NIGHT)
    await world.waking.record_sleep()
    assert await world.store.events(kind="machine-woke") == []


async def test_a_short_pause_or_a_clock_set_back_is_no_sleep(world: Asleep) -> None:
    await begin_turn(world)
    await world.sleep(MIN_SLEEP - 1)
    await world.waking.record_sleep()
    await world.sleep(-NIGHT)
    await world.waking.record_sleep()
    assert await world.store.events(kind="machine-woke") == []


async def test_a_full_disk_does_not_lose_the_wake_up(world: Asleep) -> None:
    await begin_turn(world)
    await world.sleep(NIGHT)
    world.store.fail_at(1)
    await world.waking.record_sleep()
    assert len(await world.store.events(kind="machine-woke")) == 1


async def test_effects_that_became_due_during_sleep_run_once(world: Asleep) -> None:
    await begin_turn(world)
    runs: list[str] = []

    async def remind(intent: Intent, _attempts: int) -> Sequence[Event]:
        runs.append(intent.key)
        return []

    world.runner.effects = {**world.runner.effects, "remind": Effect(remind)}
    due = {f"remind:{number}": world.time.now + 600.0 * number for number in range(1, 40)}
    world.runner.add_rows(
        [OutboxRow(Intent("remind", key, ""), 0, number, at) for number, (key, at) in enumerate(due.items())]
    )
    await world.sleep(NIGHT)
    await world.awake(3600)
    assert sorted(runs) == sorted(due)
