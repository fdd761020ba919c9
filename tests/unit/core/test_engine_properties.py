"""The engine under arbitrary schedules of messages, failures and kills: no message is lost or duplicated."""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from tests.unit.core.world import LIFECYCLE, SESSION, EngineWorld, created

FAULTS = ("again", "held", "before", "after", "fatal", "strange")
OPERATIONS = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 40)),
    st.just(("send",)),
    st.tuples(st.just("activity"), st.sampled_from(["active", "idle", "blocked", "waiting_input"])),
    st.just(("exit",)),
    st.just(("lost",)),
    st.just(("stop",)),
    st.just(("restore",)),
    st.tuples(st.just("fault"), st.sampled_from(LIFECYCLE), st.sampled_from(FAULTS), st.integers(1, 3)),
    st.just(("crash",)),
    st.tuples(st.just("crash at"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("full"), st.integers(1, 4)),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 5.0, 60.0, 700.0])),
)


async def perform(world: EngineWorld, operation: tuple[object, ...]) -> None:
    match operation:
        case ("steps", int(count)):
            await world.steps(count)
        case ("send",):
            await world.send()
        case ("activity", str(state)):
            generation = world.flow.sessions[SESSION].generation
            await world.append_or_skip(world.event(e.AgentActivity(state), generation=generation, source="spool"))
        case ("exit",):
            world.kill_agent(e.AgentExited(0))
        case ("lost",):
            world.kill_agent(e.AgentLost("tmux was killed"))
        case ("stop",):
            await world.append_or_skip(world.event(e.StopRequested()))
        case ("restore",):
            await world.restore()
        case ("fault", str(kind), str(name), int(times)):
            world.faults[kind] += [name] * times
        case ("crash",):
            world.store.crash()
            await world.steps(1)
        case ("crash at", int(write), bool(committed)):
            world.store.crash_at(write, committed=committed)
        case ("full", int(write)):
            world.store.fail_at(write)
        case ("advance", float(seconds)):
            world.time.advance(seconds)
    if world.store.is_dead:
        await world.steps(1)


async def begin(world: EngineWorld, *, defer: bool) -> None:
    await world.start()
    await world.flow.append(created(at=world.time.now, prompt="" if defer else "do it", defer=defer))


async def run(operations: list[tuple[object, ...]], *, paste: bool, defer: bool) -> None:
    world = EngineWorld(paste=paste)
    await begin(world, defer=defer)
    for operation in operations:
        await perform(world, operation)
    world.faults.clear()
    world.store.crash()  # one last kill: the store must be enough for the next daemon
    await world.steps(1)
    await world.settle()
    if world.flow.sessions[SESSION].failure:
        await world.restore()
    facts = world.flow.sessions[SESSION]
    await world.append_or_skip(world.event(e.AgentActivity("active"), generation=facts.generation, source="spool"))
    await world.settle()
    await check_at_rest(world)
    await world.append_or_skip(world.event(e.StopRequested()))
    await world.settle()
    await check_the_end(world)
    await world.end()


async def check_at_rest(world: EngineWorld) -> None:
    assert not world.problems
    facts = world.flow.sessions[SESSION]
    if facts.requested_state == "run" and not facts.stopped:
        states = {message.id: message.state for message in facts.messages if message.pending}
        assert not states, f"left behind: {states}"
        assert facts.live or facts.launched_run == facts.run or facts.spec.defer
    for message in facts.messages:
        assert world.written[message.id] <= 1, f"{message.id} was written {world.written[message.id]} times"
        if message.state in ("delivered", "acknowledged"):
            assert world.written[message.id] == 1, f"{message.id} counts as {message.state} and was not written"


async def check_the_end(world: EngineWorld) -> None:
    await check_at_rest(world)
    facts = world.flow.sessions[SESSION]
    assert facts.stopped, facts
    assert not [terminal for terminal in world.terminals.values() if terminal.alive]
    fates = {message.id: message.state for message in facts.messages}
    assert world.accepted <= fates.keys()
    assert all(state in ("delivered", "acknowledged", "failed") for state in fates.values()), fates
    assert not [row for row in await world.store.pending() if row.intent.kind in LIFECYCLE]
    log = await world.store.events(limit=100_000)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert len({event.key for event in log}) == len(log)
    assert {event.body.message for event in log if isinstance(event.body, e.MessageQueued)} >= world.accepted
    launches = Counter(event.generation for event in log if isinstance(event.body, e.AgentLaunched))
    assert all(count == 1 for count in launches.values()), launches
    folded: SessionFacts | None = None
    for event in log:
        folded = reduce(folded, event)
    assert folded == facts


@given(st.integers(0, 60), st.lists(OPERATIONS, max_size=25), st.booleans(), st.booleans())
@example(head=7, operations=[("send",), ("activity", "blocked")], paste=False, defer=False)
def test_nothing_is_lost_or_doubled(head: int, operations: list[tuple[object, ...]], paste: bool, defer: bool) -> None:
    with structlog.testing.capture_logs():
        asyncio.run(run([("steps", head), *operations], paste=paste, defer=defer))
