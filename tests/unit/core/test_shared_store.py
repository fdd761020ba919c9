"""Several homes on one store: no effect runs while leadership is uncertain, and each home runs only its own sessions."""

from __future__ import annotations

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Confirm, Effect, EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.errors import Temporary
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.unit.core.world import SESSION, ManualClock, created

pytestmark = pytest.mark.anyio


class Scene:
    def __init__(self, store: MemoryStore, here: str, confirm: Confirm | None = None) -> None:
        self.time, self.done = ManualClock(), list[str]()
        self.flow = Flow(store, self.time, lambda _project, _profile: DEFAULT_RULES, here=here)
        self.runner = EffectRunner(self.flow, {"prepare": Effect(self._prepare)}, confirm)

    async def _prepare(self, intent: Intent, _attempts: int) -> list[Event]:
        self.done.append(intent.key)
        return []

    async def start(self) -> None:
        self.runner.start(await self.flow.start())

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        for _ in range(50):
            await self.flow.append()


def admitted(home: str) -> tuple[Event, Event]:
    return created(home=home), Event(e.SessionAdmitted(), 1000.0, "scheduler", "admit", "app", SESSION)


async def test_no_effect_runs_while_leadership_is_uncertain() -> None:
    away = True

    async def confirm() -> None:
        if away:
            raise Temporary("the database is away")

    scene = Scene(MemoryStore(), "", confirm)
    await scene.start()
    await scene.flow.append(*admitted(""))
    await scene.rest()
    scene.time.advance(5.0)
    await scene.rest()
    assert scene.done == []
    away = False
    scene.time.advance(5.0)
    await scene.rest()
    assert len(scene.done) == 1
    await scene.runner.drain()
    await scene.flow.stop()


async def test_intents_of_another_home_wait_for_that_home() -> None:
    store = MemoryStore()
    here = Scene(store, "one:/ao")
    await here.start()
    await here.flow.append(*admitted("two:/ao"))
    await here.rest()
    here.time.advance(400.0)
    await here.rest()
    assert here.done == [] and here.flow.owner_home(SESSION) == "two:/ao"
    assert [row.intent.kind for row in await store.pending()] == ["prepare"]
    await here.runner.drain()
    await here.flow.stop()
    there = Scene(store.clone(), "two:/ao")
    await there.start()
    await there.rest()
    assert len(there.done) == 1 and there.flow.owner_home(SESSION) == ""
    await there.runner.drain()
    await there.flow.stop()


async def test_a_follower_folds_each_event_once_and_continues_from_there() -> None:
    store = MemoryStore()
    first, second = Scene(store, ""), Scene(store, "")
    await first.start()
    await first.flow.append(*admitted(""))
    await second.flow.catch_up_from_store()
    assert second.flow.sessions == first.flow.sessions
    await first.flow.append(Event(e.SessionWaiting("x"), 1001.0, "scheduler", "wait", "app", SESSION))
    for _ in range(2):
        await second.flow.catch_up_from_store()
        assert second.flow.sessions == first.flow.sessions
    await first.runner.drain()
    await first.flow.stop()
    second.flow.store = store.clone()
    await second.start()
    stored = await second.flow.append(Event(e.SessionWaiting("y"), 1002.0, "scheduler", "wait2", "app", SESSION))
    assert [event.seq for event in stored] == [4]
    await second.runner.drain()
    await second.flow.stop()
