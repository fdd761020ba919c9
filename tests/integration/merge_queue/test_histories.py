"""Random histories of a merge queue: the base always passes, each change is merged at most once, and nothing is lost.

    AO_EXAMPLES=5000 python -m pytest -q -p no:xdist tests/integration/merge_queue/test_histories.py

runs a thousand of them; an ordinary run only a few. A history is a number of changes (good, bad, bad only together, flaky, in conflict
with each other; with every strategy and priority), and events while they are in the queue: more changes join, commits are pushed to the
base, branches are force-pushed, changes are withdrawn, conflicts are predicted (rightly or not), and the daemon is killed, also during a
merge.
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
from agent_orchestrator.changes.merge_queue.base_queue import RejectedChange, WithdrawnChange
from tests.examples import example_count
from tests.integration.merge.world import STEPS
from tests.integration.merge_queue.world import CONTENT, BranchToMerge, MergeQueueWorld

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
    """Raised in place of a kill of the daemon during a merge."""


class Crasher:
    """Raises Killed at a chosen step of the next merge."""

    def __init__(self) -> None:
        self.step = ""
        self.dead = asyncio.Event()
        self._merge = merge.merge

    async def merge(self, host: Any, spec: Any, built: Any, **options: Any) -> Any:
        """Run the real merge with a hook that may crash it."""
        return await self._merge(host, spec, built, self._after, **options)

    def _after(self, step: str) -> None:
        if step == self.step:
            self.step = ""
            self.dead.set()
            raise Killed(step)


async def play(
    box: MergeQueueWorld,
    deaths: Crasher,
    history: list[tuple[tuple[str, str], float]],
    forced: set[str],
    withdrawn: set[str],
) -> None:
    """Run the history, then let the remaining changes join the queue."""
    for number, ((action, target), pause) in enumerate(history):
        match action:
            case "ask" if target in box.changes and target not in box.joined:
                box.request_merge(target)
            case "push":
                box.push({target if target == "shared.txt" else f"own{number}.txt": f"push {number}"}, f"push {number}")
                box.lane.schedule_cycle()
            case "force" if target in box.changes and target not in box.outcomes and not box.lane.is_merging(target):
                forced.add(target)
                box.force(target)
                box.lane.schedule_cycle()
            case "call off" if target in box.joined and box.withdraw(target):
                withdrawn.add(target)
            case "predict":
                box.predicted = {**box.predicted, target: frozenset(NAMES[: number % 4])}
                box.lane.schedule_cycle()
            case "crash":
                await box.crash()
            case "die":
                deaths.step = target
        await asyncio.sleep(pause)
        await restart_if_dead(box, deaths)
    box.request_merge(*(name for name in box.changes if name not in box.joined))
    while not all(task.done() for task in box.joined.values()):
        await restart_if_dead(box, deaths)
        await asyncio.wait(box.joined.values(), timeout=0.02)
    deaths.step = ""


async def restart_if_dead(box: MergeQueueWorld, deaths: Crasher) -> None:
    """Restart the queue if the daemon was killed."""
    if deaths.dead.is_set():
        deaths.dead.clear()
        await box.crash()


async def check(changes: list[BranchToMerge], history: list[tuple[tuple[str, str], float]], max_checks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box, deaths = MergeQueueWorld(Path(folder), max_checks).make(changes), Crasher()
        forced: set[str] = set()
        withdrawn: set[str] = set()
        asyncio.get_running_loop().set_exception_handler(
            ignore_killed(asyncio.get_running_loop().default_exception_handler)
        )
        with mock.patch("agent_orchestrator.changes.merge_queue.base_queue.merge.merge", deaths.merge):
            async with asyncio.timeout(600):
                await play(box, deaths, history, forced, withdrawn)
        await box.finish()
        assert box.problems() == [], (changes, history)
        assert box.outcomes.keys() == box.changes.keys()
        for name, outcome in box.outcomes.items():
            kind = box.changes[name].kind
            event(f"{kind}: {type(outcome).__name__}")
            if isinstance(outcome, RejectedChange):
                assert kind in ("bad", "left", "right"), f"{name} was wrongly rejected"
            if isinstance(outcome, merge.Conflicted):
                assert kind == "shared"
            if isinstance(outcome, merge.MovedBranch):
                assert name in forced
            if isinstance(outcome, WithdrawnChange):
                assert name in withdrawn
            assert not (isinstance(outcome, merge.CompletedMerge) and kind == "bad")


def ignore_killed(handler: Callable[[dict[str, Any]], None]) -> Callable[[Any, dict[str, Any]], None]:
    """Return an exception handler that ignores Killed."""
    return lambda _loop, context: None if isinstance(context.get("exception"), Killed) else handler(context)


@settings(
    max_examples=example_count(0.2),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(CHANGE, min_size=1, max_size=len(NAMES)),
    st.lists(st.tuples(ACTIONS, PAUSES), max_size=8),
    st.integers(1, 4),
)
def test_any_history_keeps_the_base_passing_and_loses_nothing(
    changes: list[tuple[str, Any, int]], history: list[tuple[tuple[str, str], float]], max_checks: int
) -> None:
    queue_changes = [BranchToMerge(name, *change) for name, change in zip(NAMES, changes, strict=False)]
    asyncio.run(check(queue_changes, history, max_checks))
