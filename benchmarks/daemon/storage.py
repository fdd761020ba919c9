"""Events and effects per second on PostgreSQL and on SQLite: both on this machine's disk, measured in turns."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from agent_orchestrator.base.clock import SystemClock
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.testing.postgres import PostgresServer, find_programs
from benchmarks.measure import Figure

ROUNDS = 5
WRITERS = 50
"""Simultaneous writers of events, as of fifty sessions."""
_numbers = itertools.count()


def measure_storage(folder: Path) -> Iterator[Figure]:
    """Yield ratios of throughput; none without an installed PostgreSQL server."""
    if find_programs() is None:
        print("| events on PostgreSQL | – | | | no server is installed: scripts/install-postgres |")
        return
    with PostgresServer() as server:
        url = server.database("bench")
        yield from asyncio.run(_measured(folder, url))


async def _measured(folder: Path, url: str) -> Sequence[Figure]:
    from agent_orchestrator.core.store.leader import DaemonDescription
    from agent_orchestrator.core.store.postgres import Postgres

    stores = [
        Database.sqlite(folder / "ao.db"),
        Postgres(url, DaemonDescription("bench", str(folder), os.getpid(), time.time())),
    ]
    flows = [Flow(store, SystemClock(), lambda _project, _profile: DEFAULT_RULES) for store in stores]
    runners = [EffectRunner(flow, {"prepare": Effect(_prepared)}) for flow in flows]
    for flow, runner in zip(flows, runners, strict=True):
        runner.start(await flow.start())
    works: dict[str, Callable[[Flow], Awaitable[float]]] = {
        f"events told by {WRITERS} at once": lambda flow: _events(flow, 2000, WRITERS),
        "events told one after the other": lambda flow: _events(flow, 150, 1),
        "effects recorded and carried out": lambda flow: _effects(flow, 300),
    }
    figures = []
    for name, work in works.items():
        rates: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for rate, flow in zip(rates, flows, strict=True):
                rate.append(await work(flow))
        sqlite, postgres = (statistics.median(rate) for rate in rates)
        note = f"{postgres:.0f} ÷ {sqlite:.0f} a second"
        figures.append(Figure(f"{name}, PostgreSQL ÷ SQLite", postgres / sqlite, 0.333, at_least=True, note=note))
    for flow, runner in zip(flows, runners, strict=True):
        await runner.drain()
        await flow.stop()
        await flow.store.close()
    return figures


async def _events(flow: Flow, count: int, writers: int) -> float:
    remaining = iter(range(count))

    async def append() -> None:
        for _ in remaining:
            body = e.AgentReport("note", {"text": "x" * 100})
            await flow.append(Event(body, flow.clock(), "bench", f"e{next(_numbers)}", "app", "app-x"))

    started_at = time.perf_counter()
    await asyncio.gather(*(append() for _ in range(writers)))
    return count / (time.perf_counter() - started_at)


async def _effects(flow: Flow, count: int) -> float:
    """Admit sessions at once; return the rate at which their workspaces are recorded as prepared."""
    started_at, names = time.perf_counter(), [f"app-s{next(_numbers)}" for _ in range(count)]
    all_prepared = asyncio.Event()

    def check_prepared(_changes: object) -> None:
        if all((facts := flow.sessions.get(name)) is not None and facts.workspace is not None for name in names):
            all_prepared.set()

    unsubscribe = flow.listeners.on_events(check_prepared)
    await asyncio.gather(*(flow.append(*_admitted(flow, name)) for name in names))
    await all_prepared.wait()
    unsubscribe()
    return count / (time.perf_counter() - started_at)


def _admitted(flow: Flow, session: str) -> list[Event]:
    body = e.SessionCreated(
        task="T1", name=session, title="x", prompt="x", agent="demo", runtime="process", workspace="worktree",
        branch=session, base="main", repo="/r", path=f"/w/{session}", defer=True,
    )  # fmt: skip
    now = flow.clock()
    return [
        Event(body, now, "bench", f"created:{session}", "app", session),
        Event(e.SessionAdmitted(), now, "bench", f"admitted:{session}", "app", session),
    ]


async def _prepared(intent: Intent, _attempts: int) -> Sequence[Event]:
    body = e.WorkspaceCreated("/w", intent.session, "main", "0" * 40, "0" * 40, "/w/.git")
    return [Event(body, time.time(), "bench", f"{intent.key}:done", "app", intent.session)]
