"""After the machine slept nobody is called stuck for a silence that was the machine's, and nothing comes in a storm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, RetryLater, Runner
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import Row
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.status import STUCK_AFTER, derive
from agent_orchestrator.sessions.sleep_detection import MIN_SLEEP, SleepDetector
from tests.parts import make_core
from tests.unit.core.world import SESSION, Time, World, created

pytestmark = pytest.mark.anyio
NIGHT = 8 * 3600.0


class SleepingTime(Time):
    """A clock of a machine that may sleep."""

    slept = 0.0

    def monotonic(self) -> float:
        return self.now - self.slept


class Asleep(World):
    """A world whose silence is looked at as the daemon does it, and whose machine may sleep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = SleepingTime()
        super().__init__(self.machine)

    def effects(self) -> dict[str, Effect]:
        return {**super().effects(), "silence": Effect(self.silence), "react": Effect(self.react)}

    async def silence(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        heard = max(facts.activity.at, facts.heard_at)
        if self.time.now < heard + STUCK_AFTER:
            raise RetryLater(heard + STUCK_AFTER - self.time.now)
        raise RetryLater(STUCK_AFTER, self.event(e.TimerDue("silence"), f"silent:{heard}", facts.generation))

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        self.reacted.append(str(intent.args["trigger"]))
        return []

    async def start(self) -> None:
        self.reacted: list[str] = []
        await super().start()

    def make_runner(self) -> Runner:
        self.waking = SleepDetector(make_core(self.folder, self.flow))
        return Runner(self.flow, self.effects(), self.waking.settle)

    async def sleep(self, seconds: float) -> None:
        """Timers of a sleeping machine stand still."""
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


async def in_a_turn(world: Asleep) -> None:
    await world.tell(world.event(e.AgentActivity("active"), generation=world.flow.sessions[SESSION].generation))
    await world.steps(20)
    assert derive(world.flow.sessions[SESSION], world.time.now).name == "working"


async def test_a_night_asleep_is_no_silence(world: Asleep) -> None:
    await in_a_turn(world)
    await world.awake(300)
    await world.sleep(NIGHT)
    await world.awake(STUCK_AFTER - 120)
    assert derive(world.flow.sessions[SESSION], world.time.now).name == "working"
    assert world.reacted == []
    told = await world.store.events(kind="machine-woke")
    assert [one.session for one in told] == [SESSION]


async def test_who_is_silent_for_long_after_it_is_stuck_all_the_same(world: Asleep) -> None:
    await in_a_turn(world)
    await world.sleep(NIGHT)
    await world.awake(2 * STUCK_AFTER)
    assert derive(world.flow.sessions[SESSION], world.time.now).name == "stuck"
    assert world.reacted == ["agent-stuck"]


async def test_who_rests_is_not_woken(world: Asleep) -> None:
    await in_a_turn(world)
    await world.tell(world.event(e.AgentActivity("idle"), generation=world.flow.sessions[SESSION].generation))
    await world.sleep(NIGHT)
    await world.waking.settle()
    assert await world.store.events(kind="machine-woke") == []


async def test_a_moment_is_no_sleep_and_a_clock_put_back_none_either(world: Asleep) -> None:
    await in_a_turn(world)
    await world.sleep(MIN_SLEEP - 1)
    await world.waking.settle()
    await world.sleep(-NIGHT)
    await world.waking.settle()
    assert await world.store.events(kind="machine-woke") == []


async def test_a_full_disk_does_not_lose_it(world: Asleep) -> None:
    await in_a_turn(world)
    await world.sleep(NIGHT)
    world.store.fail_at(1)
    await world.waking.settle()
    assert len(await world.store.events(kind="machine-woke")) == 1


async def test_what_became_due_comes_once(world: Asleep) -> None:
    await in_a_turn(world)
    runs: list[str] = []

    async def remind(intent: Intent, _attempts: int) -> Sequence[Event]:
        runs.append(intent.key)
        return []

    world.runner.effects = {**world.runner.effects, "remind": Effect(remind)}
    due = {f"remind:{number}": world.time.now + 600.0 * number for number in range(1, 40)}
    world.runner.take([Row(Intent("remind", key, ""), 0, number, at) for number, (key, at) in enumerate(due.items())])
    await world.sleep(NIGHT)
    await world.awake(3600)
    assert sorted(runs) == sorted(due)
