"""The actor of recorded events: inherited by tasks begun within a request, and by nothing afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as, actor_of_source, current_actor
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.unit.core.world import ManualClock

pytestmark = pytest.mark.anyio


def stopped_event(key: str, source: str = "person", session: str | None = None) -> Event:
    return Event(e.DaemonStopped(key), 1.0, source, key, session=session)


async def start_flow() -> Flow:
    flow = Flow(MemoryStore(), ManualClock(100.0), lambda _project, _profile: ())
    await flow.start()
    return flow


async def actors_by_key(flow: Flow) -> dict[str, tuple[str, int | None]]:
    return {event.key: (event.actor, event.cause) for event in await flow.store.events()}


async def test_tasks_begun_within_a_request_inherit_its_actor() -> None:
    flow = await start_flow()
    ended = asyncio.Event()

    async def within() -> None:
        await flow.append(stopped_event("within"))

    async def later() -> None:
        await ended.wait()
        await flow.append(stopped_event("later"))

    with acting_as("token ci", 7) as behalf:
        await asyncio.create_task(within())
        outliving = asyncio.create_task(later())
        await flow.append(stopped_event("mine"))
        assert behalf.recorded_event_count == 2
    assert current_actor() is None
    ended.set()
    await outliving
    assert await actors_by_key(flow) == {"within": ("token ci", 7), "mine": ("token ci", 7), "later": ("person", None)}
    await flow.stop()


async def test_events_sharing_a_commit_keep_their_own_actors() -> None:
    flow = await start_flow()

    async def append_as(name: str) -> None:
        with acting_as(f"token {name}"):
            await flow.append(stopped_event(name))

    await asyncio.gather(*(append_as(name) for name in "abc"))
    assert await actors_by_key(flow) == {name: (f"token {name}", None) for name in "abc"}
    await flow.stop()


async def test_an_effects_events_name_its_rule_or_the_daemon_and_their_cause() -> None:
    flow = await start_flow()

    async def run(intent: Intent, _attempts: int) -> Sequence[Event]:
        await flow.append(stopped_event(f"{intent.key}:on-the-way", "github"))
        return [stopped_event(f"{intent.key}:done")]

    EffectRunner(flow, {"x": Effect(run)}).start([])
    rows = [
        OutboxRow(Intent("x", key, "", args=args), 41, 1, 0.0)
        for key, args in (("r", {"rule": "ci-failed"}), ("d", {}))
    ]
    await flow.append(rows=rows)
    while len(await flow.store.events()) < 4:
        await asyncio.sleep(0)
    actors = await actors_by_key(flow)
    assert actors["r:on-the-way"] == actors["r:done"] == ("rule ci-failed", 41)
    assert actors["d:on-the-way"] == actors["d:done"] == ("daemon", 41)
    await flow.stop()


async def test_a_node_reporting_for_an_agent_does_not_become_the_actor() -> None:
    flow = await start_flow()
    with acting_as("node far"):
        await flow.append(stopped_event("said", "spool", "app-x"), stopped_event("joined", "node"))
    assert await actors_by_key(flow) == {"said": ("agent app-x", None), "joined": ("node far", None)}
    await flow.stop()


@pytest.mark.parametrize(
    ("source", "actor"),
    [
        ("person", "person"),
        ("spool", "agent app-x"),
        ("session app-lead", "agent app-lead"),
        ("rule ci-failed", "rule ci-failed"),
        ("scheduler", "daemon"),
        ("github", "github"),
    ],
)
def test_the_actor_is_derived_from_the_source(source: str, actor: str) -> None:
    assert actor_of_source(source, "app-x") == actor
