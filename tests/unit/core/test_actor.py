"""On whose behalf something is recorded: it holds for what is begun meanwhile, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as, actor_of_source, current
from agent_orchestrator.core.effects import Effect, Runner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import Row
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.testing.memory import MemoryStore
from tests.unit.core.world import Time

pytestmark = pytest.mark.anyio


def told(key: str, source: str = "person", session: str | None = None) -> Event:
    return Event(e.DaemonStopped(key), 1.0, source, key, session=session)


async def started() -> Flow:
    flow = Flow(MemoryStore(), Time(100.0), lambda _project, _profile: ())
    await flow.start()
    return flow


async def recorded(flow: Flow) -> dict[str, tuple[str, int | None]]:
    return {one.key: (one.actor, one.cause) for one in await flow.store.events()}


async def test_it_holds_for_tasks_begun_within_and_ends_with_the_request() -> None:
    flow = await started()
    ended = asyncio.Event()

    async def within() -> None:
        await flow.append(told("within"))

    async def later() -> None:
        await ended.wait()
        await flow.append(told("later"))

    with acting_as("token ci", 7) as behalf:
        await asyncio.create_task(within())
        outliving = asyncio.create_task(later())
        await flow.append(told("mine"))
        assert behalf.told == 2
    assert current() is None
    ended.set()
    await outliving
    assert await recorded(flow) == {"within": ("token ci", 7), "mine": ("token ci", 7), "later": ("person", None)}
    await flow.stop()


async def test_each_of_those_who_share_a_commit_keeps_his_own_name() -> None:
    flow = await started()

    async def ask(name: str) -> None:
        with acting_as(f"token {name}"):
            await flow.append(told(name))

    await asyncio.gather(*(ask(name) for name in "abc"))
    assert await recorded(flow) == {name: (f"token {name}", None) for name in "abc"}
    await flow.stop()


async def test_what_an_effect_records_is_the_rules_or_the_daemons_because_of_the_event() -> None:
    flow = await started()

    async def run(intent: Intent, _attempts: int) -> Sequence[Event]:
        await flow.append(told(f"{intent.key}:on-the-way", "github"))
        return [told(f"{intent.key}:done")]

    Runner(flow, {"x": Effect(run)}).start([])
    rows = [Row(Intent("x", key, "", args=args), 41, 1, 0.0) for key, args in (("r", {"rule": "ci-failed"}), ("d", {}))]
    await flow.append(rows=rows)
    while len(await flow.store.events()) < 4:
        await asyncio.sleep(0)
    found = await recorded(flow)
    assert found["r:on-the-way"] == found["r:done"] == ("rule ci-failed", 41)
    assert found["d:on-the-way"] == found["d:done"] == ("daemon", 41)
    await flow.stop()


async def test_a_node_that_tells_of_an_agent_does_not_take_its_place() -> None:
    flow = await started()
    with acting_as("node far"):
        await flow.append(told("said", "spool", "app-x"), told("joined", "node"))
    assert await recorded(flow) == {"said": ("agent app-x", None), "joined": ("node far", None)}
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
def test_who_it_was_as_far_as_the_source_tells(source: str, actor: str) -> None:
    assert actor_of_source(source, "app-x") == actor
