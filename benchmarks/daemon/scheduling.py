"""A thousand tasks in the queue: what a decision who may start takes, with its look at the files that each is about; and its memory."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.changes.conflicts import Conflicts
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.rules import DEFAULT_RULES
from agent_orchestrator.fleet.scheduling.admission import Admission
from agent_orchestrator.fleet.scheduling.backlog import Backlog
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import Figure, resident
from tests.parts import make_core, make_flow, never_quiet

QUEUED = 1000
SLOTS = 8
FILES = 2000
DECISIONS = 200
LIMITED = 3
CONFIG = """
orchestrator: {maxParallelAgents: 8, autoAssign: true, budget: {perDay: $500}}
agents:
  pages: {tool: demo, skills: [react-development], filters: {labels: [ui], paths: ["src/ui/**"]}, maxParallelAgents: 3}
  python: {tool: demo, filters: {languages: [python]}}
projects:
  a: {path: app, budget: {perSession: $2, perDay: $300, perProject: $5000}}
  b: {path: app, maxParallelAgents: 4, budget: {perDay: 10000000 tokens}}
  c: {path: app}
"""


def scheduling(folder: Path) -> Iterator[Figure]:
    """Decisions over a thousand queued sessions of three projects, and looks at a backlog of a thousand issues; by CPU time."""
    yield from asyncio.run(_measured(folder))


async def _measured(folder: Path) -> list[Figure]:
    with Sandbox(folder, "process") as box:
        box.repository()
        for number in range(FILES):
            path = box.repo / "src" / f"part{number % 40}" / f"f{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x\n")
        box.git("add", ".")
        box.git("commit", "-q", "-m", "many files")
        home = Home(folder / "home")
        home.make()
        home.config.write_text(CONFIG.replace("path: app", f"path: {box.repo}"))
        flow = make_flow(rules=DEFAULT_RULES)
        await flow.start()
        core = make_core(home.path, flow)
        core.config.load_home()
        quota, budgets = AccountLimits(core), Budgets(core, never_quiet)
        admission = Admission(core, Conflicts(core).expected, [quota.gate, budgets.gate])
        await flow.append(*_sessions(box.repo))
        await flow.append(*_issues())
        try:
            figures = [*await _decisions(flow, admission), *await _looks(Backlog(core))]
            await flow.append(*_holds())
            return [*figures, *await _decisions(flow, admission, ", all accounts held")]
        finally:
            await quota.close()
            await flow.stop()


def _sessions(repo: Path) -> list[Event]:
    """Eight at work, and a thousand that wait; every third comes after another one."""
    events = []
    for number in range(QUEUED + SLOTS):
        session, project = f"s{number:04}", "abc"[number % 3]
        body = e.SessionCreated(
            task=f"T{number}",
            name=session,
            title=f"Mend src/part{number % 40}/f{number}.py",
            prompt=f"It is about f{number * 7 % FILES}.py and about speed.",
            agent="demo",
            runtime="process",
            workspace="worktree",
            branch=f"feature/{session}",
            base="main",
            repo=str(repo),
            path=str(repo / ".worktrees" / session),
            priority=number % 5,
            after=(f"s{number - 9:04}",) if number % 3 == 0 and number > SLOTS + 9 else (),
            files=(f"src/part{number % 40}/*.py",) if number % 10 == 0 else (),
            account=f"a{number % 3}",
        )
        events.append(Event(body, 1000.0 + number, "person", f"create:{session}", project, session))
        if number < SLOTS:
            events.append(Event(e.SessionAdmitted(), 2500.0, "scheduler", f"admitted:{session}", project, session))
    return events


def _issues() -> list[Event]:
    bodies = [
        e.IssueOpened(number, f"Issue {number}", f"See src/ui/f{number}.py", ("ui",) if number % 3 == 0 else ())
        for number in range(1, QUEUED + 1)
    ]
    return [Event(body, 1000.0, "person", f"issue:{body.number}", "abc"[body.number % 3]) for body in bodies]


def _holds() -> list[Event]:
    """Every account is held: whoever could start is asked for by name, and waits."""
    now = time.time()
    bodies = [e.AccountHeld(f"a{number}", now + 3600.0) for number in range(LIMITED)]
    return [Event(body, now, "daemon", f"held:{body.account}") for body in bodies]


async def _decisions(flow: Flow, admission: Admission, where: str = "") -> list[Figure]:
    verdicts = await admission.verdicts()
    waits = sum(bool(one.reason) for one in verdicts)

    async def decide() -> None:
        await _ends(flow)
        await admission.verdicts()

    took = await _timed(decide, 20)
    gc.collect()
    before = resident(os.getpid())
    took += await _timed(decide, DECISIONS)
    gc.collect()
    grown = resident(os.getpid()) - before
    note = f"p95 {sorted(took)[int(len(took) * 0.95)] * 1e3:.1f} ms; {waits} wait, {FILES} files"
    return [
        Figure(f"a decision, {QUEUED} queued{where} (median)", statistics.median(took) * 1e3, 20, "ms", note=note),
        Figure(f"memory grown by {DECISIONS} decisions{where}", max(0.0, grown), 2, "MB"),
    ]


async def _ends(flow: Flow) -> None:
    """One of those at work is idle, and the next time at work again: some may start, and all the others may not."""
    facts = flow.sessions["s0000"]
    flow.sessions["s0000"] = replace(facts, stopped=not facts.stopped)


async def _looks(backlog: Backlog) -> list[Figure]:
    async def look() -> None:
        backlog.entries(None)

    took = await _timed(look, 50)
    return [Figure(f"a look at the backlog, {QUEUED} open issues (median)", statistics.median(took) * 1e3, 20, "ms")]


async def _timed(work: Callable[[], Awaitable[None]], count: int) -> list[float]:
    """CPU seconds of each call."""
    found = []
    for _ in range(count):
        begun = time.process_time()
        await work()
        found.append(time.process_time() - begun)
    return found
