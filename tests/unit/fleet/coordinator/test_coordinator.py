"""Digests for a coordinating agent: sent while it is idle, combined and once, with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.parts import make_core, make_flow
from tests.unit.core.world import ManualClock, created

ME = "app-coordinator"


class World:
    """An idle coordinating agent and a fleet with events; they are collected for 30 s, the default."""

    def __init__(self, store: MemoryStore | None = None, time: ManualClock | None = None) -> None:
        self.time = time or ManualClock()
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
            await self.record(created(ME, kind="coordinator", prompt="").body, ME)
            await self.record(e.SessionAdmitted(), ME)
            await self.launch(1)
        self.coordinators.start()
        await self.settle()

    async def launch(self, generation: int) -> None:
        handle = {"pid": 7}
        await self.record(e.AgentLaunched(handle), ME, generation)
        await self.record(e.AgentActivity("idle"), ME, generation)

    async def record(self, body: e.Body, session: str | None = "app-w", generation: int = 0) -> None:
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
    def digests(self) -> list[str]:
        return [message.text for message in self.flow.sessions[ME].messages if message.sender == "digest"]

    async def start_turn(self, generation: int = 1) -> None:
        """Let the agent receive its next message and begin a turn."""
        message = self.flow.sessions[ME].next_message
        assert message is not None
        await self.record(e.MessageDelivered(message.id), ME, generation)
        await self.record(e.AgentActivity("active"), ME, generation)

    async def end_turn(self, generation: int = 1) -> None:
        self.time.now += 1
        await self.record(e.AgentTurnEnded("done"), ME, generation)
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
            await world.record(e.AgentDone(f"part {number}"), f"app-w{number}")
            world.time.now += 1
        await world.wait(5)
        assert world.digests == []
        await world.wait(10)
        assert len(world.digests) == 1
        assert world.digests[0].count("> part") == 20
        await world.wait(3600)
        assert len(world.digests) == 1

    play(story)


def test_no_digest_is_sent_during_a_turn() -> None:
    async def story(world: World) -> None:
        await world.record(e.AgentActivity("active"), ME, 1)
        await world.record(e.AgentDone("one"))
        await world.wait(120)
        assert world.digests == []
        await world.end_turn()
        assert len(world.digests) == 1
        await world.start_turn()
        await world.record(e.AgentDone("two"), "app-v")
        await world.wait(120)
        assert len(world.digests) == 1
        await world.end_turn()
        assert len(world.digests) == 2
        assert "> two" in world.digests[1] and "> one" not in world.digests[1]

    play(story)


def test_a_digest_does_not_answer_a_question_to_a_person() -> None:
    async def story(world: World) -> None:
        await world.record(e.AgentAsk("Which database?"), ME, 1)
        await world.record(e.AgentDone("one"))
        await world.wait(600)
        assert world.digests == []

    play(story)


def test_without_news_nothing_is_read_or_scheduled() -> None:
    async def story(world: World) -> None:
        await world.wait(60)
        assert not world.time.timers
        reads = []
        events = world.store.events

        async def recording_events(*args: Any, **filters: Any) -> list[Event]:
            reads.append(filters)
            return await events(*args, **filters)

        world.store.events = recording_events  # type: ignore[method-assign]
        for number in range(50):
            await world.record(e.AgentProgress(number, 50))
        await world.wait(3600)
        assert not reads and not world.time.timers and world.digests == []

    play(story)


def test_digests_are_neither_repeated_nor_lost_across_restarts() -> None:
    async def run() -> None:
        first = World()
        await first.begin()
        await first.record(e.AgentDone("one"))
        await first.wait(60)
        await first.start_turn()
        await first.end_turn()
        await first.record(e.AgentDone("two"), "app-v")
        await first.coordinators.close()  # it dies before that digest
        await first.flow.stop()
        second = World(first.store, first.time)
        await second.begin()
        await second.wait(60)
        assert ["> one" in text for text in second.digests] == [True, False]
        assert "> two" in second.digests[1]
        await second.coordinators.close()
        await second.flow.stop()

    asyncio.run(run())


def test_the_news_of_a_failed_message_are_sent_again() -> None:
    async def story(world: World) -> None:
        await world.record(e.AgentDone("one"))
        await world.wait(60)
        assert len(world.digests) == 1
        await world.record(e.AgentExited(1), ME, 1)
        assert world.flow.sessions[ME].messages[-1].state == "failed"
        await world.wait(600)
        assert len(world.digests) == 1, "it would wake an agent that dies again and again"
        for generation in (2, 3):
            await world.launch(generation)
            await world.wait(60)
            assert len(world.digests) == generation and "> one" in world.digests[-1]
            await world.record(e.AgentExited(1), ME, generation)
            await world.wait(60)

    play(story)


def test_news_restart_an_agent_that_has_ended() -> None:
    async def story(world: World) -> None:
        await world.record(e.AgentExited(0), ME, 1)
        await world.wait(600)
        assert world.digests == []
        await world.record(e.AgentDone("one"))
        await world.wait(60)
        assert len(world.digests) == 1
        assert world.flow.sessions[ME].next_message is not None

    play(story)
