"""A listening plugin driven step by step: the test writes between two reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent_orchestrator.protocols import Agent, ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report

Step = Callable[[], object]


class WaitingClock:
    """Time that passes only while a plugin waits; `after` lets something happen meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Step]] = []

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, step: Step) -> None:
        self.due.append((self.now + seconds, step))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for due in [entry for entry in self.due if entry[0] <= self.now]:
            self.due.remove(due)
            due[1]()


CLOCK = WaitingClock()


class SteppedChanges:
    """`protocols.Changes`: each look is followed by the next step; after the last one the agent has ended."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.watched: list[Path] = []
        self.patience: list[float | None] = []

    def watch(self, path: Path) -> None:
        self.watched.append(path)

    async def next(self, within: float | None = None) -> bool:
        self.patience.append(within)
        if within is not None:
            CLOCK.advance(within)  # nothing changed: the time was up
            return True
        if not self.steps:
            return False
        self.steps.pop(0)()
        return True


def make_run(
    folder: Path,
    steps: Sequence[Step] = (),
    memo: Mapping[str, str] | None = None,
    cursors: Mapping[str, int] | None = None,
) -> RunningLaunch:
    """Return a launch whose files are below `folder`."""

    async def screen() -> str:
        return ""

    (folder / "workspace").mkdir(exist_ok=True)
    (folder / "private").mkdir(exist_ok=True)
    log = folder / "private" / "terminal.log"
    log.touch()
    return RunningLaunch(
        session="app-fix",
        generation=1,
        pid=1,
        started="1",
        workspace=folder / "workspace",
        private=folder / "private",
        log=log,
        conversation=None,
        plugin_data=memo or {},
        cursors=cursors or {},
        changes=SteppedChanges(steps),
        screen=screen,
        ended=asyncio.Event(),
    )


async def read_all_batches(agent: Agent, run: RunningLaunch) -> list[ReportBatch]:
    """Return all batches until the agent has ended."""
    return [batch async for batch in agent.listen(run)]


def reports(batches: Sequence[ReportBatch]) -> list[Report]:
    """Return the reports, in order."""
    return [report for batch in batches for report in batch.reports]
