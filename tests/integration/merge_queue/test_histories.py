"""Any history of a queue: the base is always green, what landed is there once, and nobody and nothing is lost.

    AO_EXAMPLES=5000 python -m pytest -q -p no:xdist tests/integration/merge_queue/test_histories.py

plays a thousand of them; an ordinary run plays a few. A history is a number of changes (good, bad, bad only together, flaky, in conflict
with each other; by every strategy and priority), and what happens while they are in the queue: more of them ask to land, somebody
pushes to the base, forces a branch elsewhere, or calls a landing off, collisions are predicted that may come or not, and the daemon is
killed, in the midst of a landing too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.merge_queue.lane import Refused, Withdrawn
from tests.examples import examples
from tests.integration.merge.world import STEPS
from tests.integration.merge_queue.world import CONTENT, Change, World

NAMES = "abcde"
KINDS = st.sampled_from(("plain", *CONTENT))
PAUSES = st.sampled_from((0.0, 0.01, 0.03, 0.08))
ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(NAMES)),
    st.tuples(st.just("push"), st.sampled_from(("own.txt", "shared.txt"))),
    st.tuples(st.just("force"), st.sampled_from(NAMES)),
    st.tuples(st.just("call off"), st.sampled_from(NAMES)),
    st.tuples(st.just("predict"), st.sampled_from(NAMES)),
    st.tuples(st.just("crash"), st.just("")),
    st.tuples(st.just("die"), st.sampled_from(STEPS)),
)
CHANGE = st.tuples(KINDS, st.sampled_from(("squash", "merge", "rebase")), st.integers(0, 1))


class Killed(BaseException):
    """The daemon is gone at this point of a landing."""


class Deaths:
    """Kills at a step of the next landing, once it is told to."""

    def __init__(self) -> None:
        self.step = ""
        self.dead = asyncio.Event()
        self._land = merge.merge

    async def land(self, host: Any, spec: Any, built: Any, **more: Any) -> Any:
        """Stands in for the real one."""
        return await self._land(host, spec, built, self._after, **more)

    def _after(self, step: str) -> None:
        if step == self.step:
            self.step = ""
            self.dead.set()
            raise Killed(step)


async def play(
    box: World, deaths: Deaths, history: list[tuple[tuple[str, str], float]], forced: set[str], off: set[str]
) -> None:
    """What happens, and then whoever did not ask yet asks."""
    for number, ((action, what), pause) in enumerate(history):
        match action:
            case "ask" if what in box.changes and what not in box.joined:
                box.ask(what)
            case "push":
                box.push({what if what == "shared.txt" else f"own{number}.txt": f"push {number}"}, f"push {number}")
                box.lane.look()
            case "force" if what in box.changes and what not in box.outcomes and not box.lane.lands(what):
                forced.add(what)
                box.force(what)
                box.lane.look()
            case "call off" if what in box.joined and box.call_off(what):
                off.add(what)
            case "predict":
                box.predicted = {**box.predicted, what: frozenset(NAMES[: number % 4])}
                box.lane.look()
            case "crash":
                await box.crash()
            case "die":
                deaths.step = what
        await asyncio.sleep(pause)
        await rise(box, deaths)
    box.ask(*(name for name in box.changes if name not in box.joined))
    while not all(task.done() for task in box.joined.values()):
        await rise(box, deaths)
        await asyncio.wait(box.joined.values(), timeout=0.02)
    deaths.step = ""


async def rise(box: World, deaths: Deaths) -> None:
    """A daemon that was killed has a successor."""
    if deaths.dead.is_set():
        deaths.dead.clear()
        await box.crash()


async def check(changes: list[Change], history: list[tuple[tuple[str, str], float]], room: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box, deaths = World(Path(folder), room).make(changes), Deaths()
        forced: set[str] = set()
        off: set[str] = set()
        asyncio.get_running_loop().set_exception_handler(quiet(asyncio.get_running_loop().default_exception_handler))
        with mock.patch("agent_orchestrator.changes.merge_queue.lane.merge.merge", deaths.land):
            async with asyncio.timeout(600):
                await play(box, deaths, history, forced, off)
        await box.over()
        assert box.wrong() == [], (changes, history)
        assert box.outcomes.keys() == box.changes.keys()
        for name, outcome in box.outcomes.items():
            kind = box.changes[name].kind
            event(f"{kind}: {type(outcome).__name__}")
            if isinstance(outcome, Refused):
                assert kind in ("bad", "left", "right"), f"{name} was wrongly blamed"
            if isinstance(outcome, merge.Conflicted):
                assert kind == "shared"
            if isinstance(outcome, merge.BranchMoved):
                assert name in forced
            if isinstance(outcome, Withdrawn):
                assert name in off
            assert not (isinstance(outcome, merge.Merged) and kind == "bad")


def quiet(tell: Callable[[dict[str, Any]], None]) -> Callable[[Any, dict[str, Any]], None]:
    """That a killed landing's task was killed is no news."""
    return lambda _loop, context: None if isinstance(context.get("exception"), Killed) else tell(context)


@settings(
    max_examples=examples(0.2),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(CHANGE, min_size=1, max_size=len(NAMES)),
    st.lists(st.tuples(ACTIONS, PAUSES), max_size=8),
    st.integers(1, 4),
)
def test_any_history_keeps_the_base_green_and_loses_nothing(
    changes: list[tuple[str, Any, int]], history: list[tuple[tuple[str, str], float]], room: int
) -> None:
    made = [Change(name, *change) for name, change in zip(NAMES, changes, strict=False)]
    asyncio.run(check(made, history, room))
