"""The queue with the flow around it and real checks: what is told, to whom, and what a person sees and may do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.changes.checks import Checks, CheckSpec
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.conflicts import Conflicts
from agent_orchestrator.changes.forge_sync import ForgePullRequests
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.changes.merges import Merges
from agent_orchestrator.config.model import Check
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Runner
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.memory import MemoryStore
from tests.integration.merge_queue.world import Change, World
from tests.parts import make_core, make_flow
from tests.unit.core.world import created

pytestmark = pytest.mark.anyio


class Stage:
    """A daemon's part that lands, over one repository."""

    def __init__(self, root: Path, changes: list[Change], command: str, store: MemoryStore) -> None:
        self.world = World(root)
        if not self.world.repo.exists():
            self.world.make(changes)
        self.repo = self.world.repo
        self.flow = make_flow(store)
        core = make_core(root / "ao", self.flow, host=self.world.host)
        ci = {"test": {"command": command, "parallel": 4}}
        project = {"path": str(self.repo), "ci": ci, "redBase": "allow-known"}
        core.home.path.mkdir(exist_ok=True)
        core.home.config.write_text(json.dumps({"projects": {"app": project}}))
        core.config.load_home()
        core.sites.here.login_ready.set()
        self.checks = Checks(core.home, core.host)
        required, conflicts = RequiredChecks(self.flow, core.home, core.settings), Conflicts(core)
        self.queue = MergeQueue(core, self.checks, required, self._spec, conflicts)
        self.merges = Merges(self.flow, self.queue, ForgePullRequests(core, cast("Any", None)))
        self.runner = Runner(self.flow, self.merges.effects())
        self.told: list[Event] = []
        self.flow.listeners.on(lambda changes: self.told.extend(change.event for change in changes))

    def _spec(self, facts: Any, _project: object, name: str, check: Check, commit: str) -> CheckSpec:
        env = {"PATH": os.environ["PATH"]}
        return CheckSpec(facts.project, self.repo, commit, name, check.command, env=env, parallel=check.parallel)

    async def start(self) -> None:
        self.runner.start(await self.flow.start())

    async def end(self) -> None:
        await asyncio.gather(self.runner.drain(), self.queue.close())
        await self.flow.stop()

    async def tell(self, session: str, *bodies: e.Body) -> None:
        at = self.flow.clock()
        events = [Event(body, at, "test", f"{session}:{body.type}:{at}", "app", session) for body in bodies]
        await self.flow.append(*events)

    async def open(self, *names: str) -> None:
        """A pull request for each branch; its agent is gone."""
        for number, name in enumerate(names, 1):
            await self.flow.append(created(f"app-{name}", branch=f"b/{name}", repo=str(self.repo)))
            opened = e.PrOpened(number, f"Work on {name}", "main", draft=False)
            await self.tell(f"app-{name}", e.HeadMoved(self.world.heads[name]), opened, e.SessionStopped())

    async def merge(self, *names: str, force: bool = False) -> None:
        """Ask for these, one when the one before is in the queue: whose Git is quicker is first there."""
        for name in names:
            await self.tell(f"app-{name}", e.MergeRequested(force=force))
            await self.until(lambda name=name: self.state(name) != "landing" or self.lands(name))  # type: ignore[misc]

    def lands(self, name: str) -> bool:
        return f"app-{name}" in [one["session"] for one in self.queue.entries(None) if one["state"] != "queued"]

    def state(self, name: str) -> str:
        pr = self.flow.sessions[f"app-{name}"].pr
        return "landing" if pr and pr.merge_request else pr.state if pr else ""

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def stage(
    root: Path, changes: list[Change], command: str, store: MemoryStore | None = None
) -> AsyncIterator[Stage]:
    made = Stage(root, changes, command, store or MemoryStore())
    await made.start()
    try:
        yield made
    finally:
        await made.end()


async def test_the_culprit_is_told_what_fails_on_top_of_whom(tmp_path: Path) -> None:
    changes = [Change("a", "left"), Change("b"), Change("c", "right")]
    async with stage(tmp_path, changes, "test ! -e left -o ! -e right || { echo 'error: both'; exit 1; }") as it:
        await it.open("a", "b", "c")
        await it.merge("a", "b", "c")
        await it.until(lambda: [it.state(name) for name in "abc"] == ["merged", "merged", "open"])
        pr = it.flow.sessions["app-c"].pr
        assert pr is not None and pr.refused.startswith("the check test fails on top of main")
        run = pr.checks["test"]
        assert run.state == "failure" and run.head == it.world.heads["c"]
        assert run.summary.startswith("on top of main") and "error: both" in run.summary
        assert it.world.subjects() == ["start", "Work on a (#1)", "Work on b (#2)"]
        failed = [one.body for one in it.told if isinstance(one.body, e.LandingFailed)]
        assert [one.cause for one in failed] == ["checks"]


async def test_what_fails_on_the_base_too_lands(tmp_path: Path) -> None:
    async with stage(tmp_path, [Change("a"), Change("b")], "echo always; exit 1") as it:
        await it.open("a", "b")
        await it.merge("a", "b")
        await it.until(lambda: [it.state(name) for name in "ab"] == ["merged", "merged"])


async def test_who_is_in_the_queue_is_shown_and_may_leave_it(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    wait = f"while test -e {hold}; do sleep 0.05; done"
    async with stage(tmp_path, [Change("a"), Change("b")], wait) as it:
        await it.open("a", "b")
        await it.merge("a", "b")
        await it.until(lambda: [one["checks"] for one in it.queue.entries(None)] == [RUNNING, RUNNING])
        first, second = it.queue.entries("app")
        assert (first["session"], first["position"], first["state"], first["base"]) == ("app-a", 1, "checking", "main")
        assert second["ahead"] == ["app-a"] and second["tree"] and second["tree"] != first["tree"]
        assert it.queue.entries("other") == []
        await it.merges.withdraw("app-a")
        assert [one["session"] for one in it.queue.entries(None)] == ["app-b"]
        with pytest.raises(Conflict, match="is not to land"):
            await it.merges.withdraw("app-a")
        hold.unlink()
        await it.until(lambda: it.state("b") == "merged")
        await it.until(lambda: it.state("a") == "open")
        assert it.world.subjects() == ["start", "Work on b (#2)"]
        await it.merge("a")
        await it.until(lambda: it.state("a") == "merged")


RUNNING = [{"name": "test", "state": "running", "url": None}]


async def test_another_daemon_goes_on_with_the_queue(tmp_path: Path) -> None:
    hold, store = tmp_path / "hold", MemoryStore()
    hold.touch()
    wait = f"while test -e {hold}; do sleep 0.05; done"
    async with stage(tmp_path, [Change("a"), Change("b")], wait, store) as it:
        heads = it.world.heads
        await it.open("a", "b")
        await it.merge("a", "b")
        await it.until(lambda: [one["checks"] for one in it.queue.entries(None)] == [RUNNING, RUNNING])
    async with stage(tmp_path, [], wait, store) as it:
        it.world.heads = heads
        await it.until(lambda: [one["checks"] for one in it.queue.entries(None)] == [RUNNING, RUNNING])
        hold.unlink()
        await it.until(lambda: [it.state(name) for name in "ab"] == ["merged", "merged"])
        assert it.world.subjects() == ["start", "Work on a (#1)", "Work on b (#2)"]
