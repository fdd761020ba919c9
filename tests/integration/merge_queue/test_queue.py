"""The merge queue with the flow and real checks: recorded events, queue entries and withdrawals."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec
from agent_orchestrator.changes.conflicts import ConflictPredictor
from agent_orchestrator.changes.forge_sync import PullRequestActions
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.changes.merge_router import MergeRouter
from agent_orchestrator.config.model import CheckSection
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import EffectRunner
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.integration.merge_queue.world import BranchToMerge, MergeQueueWorld
from tests.parts import make_core, make_flow
from tests.unit.core.world import created

pytestmark = pytest.mark.anyio


class Stage:
    """The merge queue of a daemon and its flow, on one repository."""

    def __init__(self, root: Path, changes: list[BranchToMerge], command: str, store: MemoryStore) -> None:
        self.world = MergeQueueWorld(root)
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
        core.sites.local.login_ready.set()
        self.checks = Checks(core.home, core.host)
        required, conflicts = RequiredChecks(self.flow, core.home, core.settings), ConflictPredictor(core)
        self.queue = MergeQueue(core, self.checks, required, self._spec, conflicts)
        self.merges = MergeRouter(self.flow, self.queue, PullRequestActions(core, cast("Any", None)))
        self.runner = EffectRunner(self.flow, self.merges.effects())
        self.recorded: list[Event] = []
        self.flow.listeners.on_events(lambda changes: self.recorded.extend(change.event for change in changes))

    def _spec(self, facts: Any, _project: object, name: str, check: CheckSection, commit: str) -> CheckSpec:
        env = {"PATH": os.environ["PATH"]}
        return CheckSpec(facts.project, self.repo, commit, name, check.command, env=env, parallel=check.parallel)

    async def start(self) -> None:
        self.runner.start(await self.flow.start())

    async def end(self) -> None:
        await asyncio.gather(self.runner.drain(), self.queue.close())
        await self.flow.stop()

    async def record(self, session: str, *bodies: e.Body) -> None:
        at = self.flow.clock()
        events = [Event(body, at, "test", f"{session}:{body.type}:{at}", "app", session) for body in bodies]
        await self.flow.append(*events)

    async def open(self, *names: str) -> None:
        """Open a pull request for each branch and stop its session."""
        for number, name in enumerate(names, 1):
            await self.flow.append(created(f"app-{name}", branch=f"b/{name}", repo=str(self.repo)))
            opened = e.PrOpened(number, f"Work on {name}", "main", draft=False)
            await self.record(f"app-{name}", e.HeadMoved(self.world.heads[name]), opened, e.SessionStopped())

    async def merge(self, *names: str, force: bool = False) -> None:
        """Request these merges, each once the one before is in the queue, to keep the order."""
        for name in names:
            await self.record(f"app-{name}", e.MergeRequested(force=force))
            await self.until(lambda name=name: self.state(name) != "landing" or self.is_being_merged(name))  # type: ignore[misc]

    def is_being_merged(self, name: str) -> bool:
        return f"app-{name}" in [entry["session"] for entry in self.queue.entries(None) if entry["state"] != "queued"]

    def state(self, name: str) -> str:
        pr = self.flow.sessions[f"app-{name}"].pr
        return "landing" if pr and pr.merge_request else pr.state if pr else ""

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def stage(
    root: Path, changes: list[BranchToMerge], command: str, store: MemoryStore | None = None
) -> AsyncIterator[Stage]:
    running_stage = Stage(root, changes, command, store or MemoryStore())
    await running_stage.start()
    try:
        yield running_stage
    finally:
        await running_stage.end()


async def test_a_rejected_change_gets_the_failing_check_and_the_changes_ahead(tmp_path: Path) -> None:
    changes = [BranchToMerge("a", "left"), BranchToMerge("b"), BranchToMerge("c", "right")]
    async with stage(tmp_path, changes, "test ! -e left -o ! -e right || { echo 'error: both'; exit 1; }") as running:
        await running.open("a", "b", "c")
        await running.merge("a", "b", "c")
        await running.until(lambda: [running.state(name) for name in "abc"] == ["merged", "merged", "open"])
        pr = running.flow.sessions["app-c"].pr
        assert pr is not None and pr.merge_failure.startswith("the check test fails on top of main")
        run = pr.checks["test"]
        assert run.state == "failure" and run.head == running.world.heads["c"]
        assert run.summary.startswith("on top of main") and "error: both" in run.summary
        assert running.world.subjects() == ["start", "Work on a (#1)", "Work on b (#2)"]
        failed = [entry.body for entry in running.recorded if isinstance(entry.body, e.LandingFailed)]
        assert [entry.cause for entry in failed] == ["checks"]


async def test_changes_with_known_failures_of_the_base_are_merged(tmp_path: Path) -> None:
    async with stage(tmp_path, [BranchToMerge("a"), BranchToMerge("b")], "echo always; exit 1") as running:
        await running.open("a", "b")
        await running.merge("a", "b")
        await running.until(lambda: [running.state(name) for name in "ab"] == ["merged", "merged"])


async def test_queue_entries_are_shown_and_can_be_withdrawn(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    wait = f"while test -e {hold}; do sleep 0.05; done"
    async with stage(tmp_path, [BranchToMerge("a"), BranchToMerge("b")], wait) as running:
        await running.open("a", "b")
        await running.merge("a", "b")
        await running.until(lambda: [entry["checks"] for entry in running.queue.entries(None)] == [RUNNING, RUNNING])
        first, second = running.queue.entries("app")
        assert (first["session"], first["position"], first["state"], first["base"]) == ("app-a", 1, "checking", "main")
        assert second["ahead"] == ["app-a"] and second["tree"] and second["tree"] != first["tree"]
        assert running.queue.entries("other") == []
        await running.merges.withdraw_merge("app-a")
        assert [entry["session"] for entry in running.queue.entries(None)] == ["app-b"]
        with pytest.raises(Conflict, match="is not to land"):
            await running.merges.withdraw_merge("app-a")
        hold.unlink()
        await running.until(lambda: running.state("b") == "merged")
        await running.until(lambda: running.state("a") == "open")
        assert running.world.subjects() == ["start", "Work on b (#2)"]
        await running.merge("a")
        await running.until(lambda: running.state("a") == "merged")


async def test_a_merge_that_a_checkout_blocks_is_withdrawn_during_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def attempt(*_args: Any, **_more: Any) -> merge.Blocked:
        begun.set()
        await go.wait()
        return merge.Blocked("a.txt stands in the way", tmp_path)

    monkeypatch.setattr("agent_orchestrator.changes.merge_queue.base_queue.merge.merge", attempt)
    async with stage(tmp_path, [BranchToMerge("a")], "true") as running:
        await running.open("a")
        await running.merge("a")
        await begun.wait()
        withdrawing = asyncio.ensure_future(running.merges.withdraw_merge("app-a"))
        await asyncio.sleep(0.05)
        go.set()
        await withdrawing
        assert running.queue.entries(None) == [] and running.state("a") == "open"


RUNNING = [{"name": "test", "state": "running", "url": None}]


async def test_another_daemon_continues_the_queue(tmp_path: Path) -> None:
    hold, store = tmp_path / "hold", MemoryStore()
    hold.touch()
    wait = f"while test -e {hold}; do sleep 0.05; done"
    async with stage(tmp_path, [BranchToMerge("a"), BranchToMerge("b")], wait, store) as running:
        heads = running.world.heads
        await running.open("a", "b")
        await running.merge("a", "b")
        await running.until(lambda: [entry["checks"] for entry in running.queue.entries(None)] == [RUNNING, RUNNING])
    async with stage(tmp_path, [], wait, store) as running:
        running.world.heads = heads
        await running.until(lambda: [entry["checks"] for entry in running.queue.entries(None)] == [RUNNING, RUNNING])
        hold.unlink()
        await running.until(lambda: [running.state(name) for name in "ab"] == ["merged", "merged"])
        assert running.world.subjects() == ["start", "Work on a (#1)", "Work on b (#2)"]
