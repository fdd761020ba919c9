"""When a coordinating agent is told: at rest, together, once, by a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
from agent_orchestrator.testing.memory import MemoryStore
from tests.parts import make_core, make_flow
from tests.unit.core.world import Time, created

ME = "app-coordinator"


class World:
    """A coordinating agent at rest, and a fleet that things happen to; news are gathered for 30 s, the default."""

    def __init__(self, store: MemoryStore | None = None, time: Time | None = None) -> None:
        self.time = time or Time()
        self.store = store or MemoryStore()
        self.flow = make_flow(self.store, self.time)
        core = make_core(Path("/nowhere"), self.flow)
        core.config.add_adhoc("app", Path("/nowhere/app"))
        nothing: Any = SimpleNamespace()
        self.coordinators = Coordinators(core, nothing, nothing, nothing)
        self._number = 0

    async def begin(self) -> None:
        await self.flow.start()
        if ME not in self.flow.sessions:
            await self.tell(created(ME, kind="coordinator", prompt="").body, ME)
            await self.tell(e.SessionAdmitted(), ME)
            await self.launch(1)
        self.coordinators.start()
        await self.settle()

    async def launch(self, generation: int) -> None:
        handle = {"pid": 7}
        await self.tell(e.AgentLaunched(handle), ME, generation)
        await self.tell(e.AgentActivity("idle"), ME, generation)

    async def tell(self, body: e.Body, session: str | None = "app-w", generation: int = 0) -> None:
        self._number += 1
        key = f"{self.time()}:{self._number}:{id(self)}"
        await self.flow.append(Event(body, self.time(), "spool", key, "app", session, generation))

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)

    async def wait(self, seconds: float) -> None:
        self.time.advance(seconds)
        await self.settle()

    @property
    def told(self) -> list[str]:
        return [one.text for one in self.flow.sessions[ME].messages if one.sender == "digest"]

    async def take_up(self, generation: int = 1) -> None:
        """The agent takes its message, works, and rests again."""
        message = self.flow.sessions[ME].next_message
        assert message is not None
        await self.tell(e.MessageDelivered(message.id), ME, generation)
        await self.tell(e.AgentActivity("active"), ME, generation)

    async def rest(self, generation: int = 1) -> None:
        self.time.now += 1
        await self.tell(e.AgentTurnEnded("done"), ME, generation)
        await self.settle()


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        await world.begin()
        await story(world)
        await world.coordinators.close()
        await world.flow.stop()

    asyncio.run(run())


def test_a_burst_is_one_digest_after_the_pause() -> None:
    async def story(world: World) -> None:
        for number in range(20):
            await world.tell(e.AgentDone(f"part {number}"), f"app-w{number}")
            world.time.now += 1
        await world.wait(5)
        assert world.told == []
        await world.wait(10)
        assert len(world.told) == 1
        assert world.told[0].count("> part") == 20
        await world.wait(3600)
        assert len(world.told) == 1

    play(story)


def test_nothing_is_told_in_a_turn_and_all_of_it_after() -> None:
    async def story(world: World) -> None:
        await world.tell(e.AgentActivity("active"), ME, 1)
        await world.tell(e.AgentDone("one"))
        await world.wait(120)
        assert world.told == []
        await world.rest()
        assert len(world.told) == 1
        await world.take_up()
        await world.tell(e.AgentDone("two"), "app-v")
        await world.wait(120)
        assert len(world.told) == 1
        await world.rest()
        assert len(world.told) == 2
        assert "> two" in world.told[1] and "> one" not in world.told[1]

    play(story)


def test_a_question_to_a_person_is_not_answered_by_a_digest() -> None:
    async def story(world: World) -> None:
        await world.tell(e.AgentAsk("Which database?"), ME, 1)
        await world.tell(e.AgentDone("one"))
        await world.wait(600)
        assert world.told == []

    play(story)


def test_a_quiet_fleet_costs_nothing() -> None:
    async def story(world: World) -> None:
        await world.wait(60)
        assert not world.time.timers
        reads = []
        events = world.store.events

        async def counted(*given: Any, **named: Any) -> list[Event]:
            reads.append(named)
            return await events(*given, **named)

        world.store.events = counted  # type: ignore[method-assign]
        for number in range(50):
            await world.tell(e.AgentProgress(number, 50))
        await world.wait(3600)
        assert not reads and not world.time.timers and world.told == []

    play(story)


def test_nothing_is_told_twice_or_lost_across_restarts() -> None:
    async def run() -> None:
        first = World()
        await first.begin()
        await first.tell(e.AgentDone("one"))
        await first.wait(60)
        await first.take_up()
        await first.rest()
        await first.tell(e.AgentDone("two"), "app-v")
        await first.coordinators.close()  # it dies before that is told
        await first.flow.stop()
        second = World(first.store, first.time)
        await second.begin()
        await second.wait(60)
        assert ["> one" in text for text in second.told] == [True, False]
        assert "> two" in second.told[1]
        await second.coordinators.close()
        await second.flow.stop()

    asyncio.run(run())


def test_what_a_lost_message_told_of_is_told_again() -> None:
    async def story(world: World) -> None:
        await world.tell(e.AgentDone("one"))
        await world.wait(60)
        assert len(world.told) == 1
        await world.tell(e.AgentExited(1), ME, 1)
        assert world.flow.sessions[ME].messages[-1].state == "failed"
        await world.wait(600)
        assert len(world.told) == 1, "it would wake an agent that dies again and again"
        for generation in (2, 3):
            await world.launch(generation)
            await world.wait(60)
            assert len(world.told) == generation and "> one" in world.told[-1]
            await world.tell(e.AgentExited(1), ME, generation)
            await world.wait(60)

    play(story)


def test_news_wake_an_agent_that_has_ended() -> None:
    async def story(world: World) -> None:
        await world.tell(e.AgentExited(0), ME, 1)
        await world.wait(600)
        assert world.told == []
        await world.tell(e.AgentDone("one"))
        await world.wait(60)
        assert len(world.told) == 1
        assert world.flow.sessions[ME].next_message is not None

    play(story)
