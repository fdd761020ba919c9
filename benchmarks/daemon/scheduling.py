"""A thousand queued tasks: the time of a scheduling decision, including the files that each task names, and its memory."""

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
from agent_orchestrator.changes.conflicts import ConflictPredictor
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.fleet.scheduling.admission import Admission
from agent_orchestrator.fleet.scheduling.backlog import Backlog
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import Figure, resident_megabytes
from tests.parts import make_core, make_flow, never_quiet

QUEUED_SESSIONS = 1000
SLOTS = 8
FILES = 2000
DECISIONS = 200
HELD_ACCOUNTS = 3
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


def measure_scheduling(folder: Path) -> Iterator[Figure]:
    """Measure the CPU time of decisions over 1,000 queued sessions of three projects, and of reading a backlog of 1,000 issues."""
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
        home.create_folders()
        home.config.write_text(CONFIG.replace("path: app", f"path: {box.repo}"))
        flow = make_flow(rules=DEFAULT_RULES)
        await flow.start()
        core = make_core(home.path, flow)
        core.config.load_home()
        quota, budgets = AccountLimits(core), Budgets(core, never_quiet)
        admission = Admission(core, ConflictPredictor(core).expected_files, [quota.gate, budgets.gate])
        await flow.append(*_sessions(box.repo))
        await flow.append(*_issues())
        try:
            figures = [*await _decisions(flow, admission), *await _time_backlog(Backlog(core))]
            await flow.append(*_account_holds())
            return [*figures, *await _decisions(flow, admission, ", all accounts held")]
        finally:
            await quota.close()
            await flow.stop()


def _sessions(repo: Path) -> list[Event]:
    """Return the events of eight working and a thousand queued sessions; every third depends on another one."""
    events = []
    for number in range(QUEUED_SESSIONS + SLOTS):
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
        for number in range(1, QUEUED_SESSIONS + 1)
    ]
    return [Event(body, 1000.0, "person", f"issue:{body.number}", "abc"[body.number % 3]) for body in bodies]


def _account_holds() -> list[Event]:
    """Return events that hold every account, so that each session that could start waits for its account."""
    now = time.time()
    bodies = [e.AccountHeld(f"a{number}", now + 3600.0) for number in range(HELD_ACCOUNTS)]
    return [Event(body, now, "daemon", f"held:{body.account}") for body in bodies]


async def _decisions(flow: Flow, admission: Admission, suffix: str = "") -> list[Figure]:
    verdicts = await admission.decide_starts()
    waits = sum(bool(verdict.reason) for verdict in verdicts)

    async def decide() -> None:
        await _toggle_session(flow)
        await admission.decide_starts()

    seconds = await _cpu_seconds_per_call(decide, 20)
    gc.collect()
    before = resident_megabytes(os.getpid())
    seconds += await _cpu_seconds_per_call(decide, DECISIONS)
    gc.collect()
    growth = resident_megabytes(os.getpid()) - before
    note = f"p95 {sorted(seconds)[int(len(seconds) * 0.95)] * 1e3:.1f} ms; {waits} wait, {FILES} files"
    return [
        Figure(
            f"a decision, {QUEUED_SESSIONS} queued{suffix} (median)",
            statistics.median(seconds) * 1e3,
            20,
            "ms",
            note=note,
        ),
        Figure(f"memory grown by {DECISIONS} decisions{suffix}", max(0.0, growth), 2, "MB"),
    ]


async def _toggle_session(flow: Flow) -> None:
    """Stop or continue one working session, so that each decision has another result."""
    facts = flow.sessions["s0000"]
    flow.sessions["s0000"] = replace(facts, stopped=not facts.stopped)


async def _time_backlog(backlog: Backlog) -> list[Figure]:
    async def read_backlog() -> None:
        backlog.entries(None)

    seconds = await _cpu_seconds_per_call(read_backlog, 50)
    return [
        Figure(
            f"a look at the backlog, {QUEUED_SESSIONS} open issues (median)", statistics.median(seconds) * 1e3, 20, "ms"
        )
    ]


async def _cpu_seconds_per_call(work: Callable[[], Awaitable[None]], count: int) -> list[float]:
    """Return the CPU seconds of each call."""
    seconds = []
    for _ in range(count):
        started_at = time.process_time()
        await work()
        seconds.append(time.process_time() - started_at)
    return seconds
