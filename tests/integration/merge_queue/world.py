"""A repository with branches to merge, a check that depends on file names, and a queue that can crash at any time."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.clock import SystemClock
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.assessment import Assessment
from agent_orchestrator.changes.checks.results import CheckResult
from agent_orchestrator.changes.merge import BuiltMerge, MergeSpec, Strategy
from agent_orchestrator.changes.merge_queue.base_queue import (
    BaseQueue,
    FailedQueueCheck,
    QueueOutcome,
    Ticket,
    WithdrawnChange,
)
from agent_orchestrator.changes.merge_queue.plan import QueuedChange
from agent_orchestrator.core.events import CheckFinished
from tests.integration.rescue.world import git

CONTENT = {"plain": "", "flaky": "", "bad": "bad", "left": "left", "right": "right", "shared": "shared.txt"}
"""The additional file of each kind of change: `bad` fails alone, `left` and `right` fail together, `shared` conflicts."""


@dataclass(frozen=True)
class BranchToMerge:
    """A branch to merge."""

    name: str
    kind: str = "plain"
    strategy: Strategy = "squash"
    priority: int = 0
    unchecked: bool = False


@dataclass
class MergeQueueWorld:
    """The repository, its queue, and the outcomes of all changes."""

    root: Path
    max_checks: int = 4
    host: LocalHost = field(default_factory=LocalHost)
    heads: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, QueueOutcome] = field(default_factory=dict)
    wait_reasons: dict[str, list[str]] = field(default_factory=dict)
    checked: list[frozenset[str]] = field(default_factory=list)
    failed_trees: set[str] = field(default_factory=set)
    running: int = 0
    """The number of running checks."""
    release: asyncio.Event | None = None
    """An event that checks wait for before they end."""
    predicted: dict[str, frozenset[str]] = field(default_factory=dict)
    """The predicted conflicts of each change, right or wrong."""
    pushed: list[str] = field(default_factory=list)
    lane: BaseQueue = field(init=False)
    joined: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    changes: dict[str, BranchToMerge] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def make(self, changes: Iterable[BranchToMerge]) -> MergeQueueWorld:
        """Create the repository with all branches at once, without a checkout of `main`."""
        git(self.root, "init", "-q", "-b", "elsewhere", str(self.repo))
        self.changes = {change.name: change for change in changes}
        stream = _commit("main", "start", {"README.md": "x", "shared.txt": "nobody"})
        for change in self.changes.values():
            extra_file = CONTENT[change.kind]
            stream += _commit(f"b/{change.name}", f"work {change.name}", {f"{change.name}.txt": change.name}, "main")
            if extra_file:
                stream += _commit(
                    f"b/{change.name}",
                    f"more {change.name}",
                    {extra_file: change.name if extra_file == "shared.txt" else extra_file},
                )
        subprocess.run(["git", "fast-import", "--quiet"], input=stream.encode(), cwd=self.repo, check=True)
        refs = git(self.repo, "for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/heads/b").split("\n")
        self.heads = dict(line.split() for line in refs if line)
        self.start()
        return self

    # -- the queue -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the queue, as the first or next daemon does."""
        room, predicted = (lambda: self.max_checks), (lambda: self.predicted)
        self.lane = BaseQueue(
            self.host, SystemClock(), self.repo, "main", self._check, self._record_wait, room, predicted
        )

    def _record_wait(self, ticket: Ticket, reason: str) -> None:
        self.wait_reasons.setdefault(ticket.entry.session, []).append(reason)

    async def _check(self, _ticket: Ticket, built: BuiltMerge, doubt: Callable[[], None]) -> FailedQueueCheck | None:
        self.running += 1
        try:
            return await self._verdict(built, doubt)
        finally:
            self.running -= 1

    async def _verdict(self, built: BuiltMerge, doubt: Callable[[], None]) -> FailedQueueCheck | None:
        names = await self._names(built.tree)
        self.checked.append(names)
        if self.release:
            await self.release.wait()
        flaky = any(change.kind == "flaky" and f"{name}.txt" in names for name, change in self.changes.items())
        if has_failing_check(names) or (flaky and built.tree not in self.failed_trees):
            self.failed_trees.add(built.tree)
            doubt()
            await asyncio.sleep(0.01)
        if has_failing_check(names):
            result = CheckResult("failure", built.tree, 1, 0.0, Path("log"), "it ended with exit code 1")
            return FailedQueueCheck(
                "test", Assessment("failure", result), CheckFinished("test", built.commit, "failure")
            )
        return None

    async def _names(self, tree: str) -> frozenset[str]:
        return frozenset(await asyncio.to_thread(lambda: git(self.repo, "ls-tree", "--name-only", tree).split()))

    def spec(self, name: str) -> MergeSpec:
        change, work = self.changes[name], self.root / "work" / name
        work.mkdir(parents=True, exist_ok=True)
        branch, title = f"b/{name}", f"Land {name}"
        return MergeSpec(name, self.repo, branch, self.heads[name], "main", change.strategy, title, "", work)

    def request_merge(self, *names: str) -> None:
        """Request these merges; they join the queue in this order."""
        loop = asyncio.get_running_loop()
        existing = loop.create_task(self._find(names))
        for name in names:
            self.joined[name] = loop.create_task(self._join(name, existing))

    async def _find(self, names: Iterable[str]) -> dict[str, merge.CompletedMerge | None]:
        """Return the merges that already exist, after the queue has found its base."""
        merged = [(name, await merge.find_merge(self.host, self.spec(name))) for name in names]
        await self.lane.read_base_head()
        return dict(merged)

    async def _join(self, name: str, existing: asyncio.Task[dict[str, merge.CompletedMerge | None]]) -> None:
        spec, change = self.spec(name), self.changes[name]
        outcome: QueueOutcome | None = (await existing)[name]
        if outcome is None:
            requested = float(list(self.changes).index(name))
            entry = QueuedChange(name, spec.head, change.priority, requested, change.unchecked)
            outcome = await self.lane.join(Ticket(entry, spec))
        assert name not in self.outcomes, "two outcomes of one merge"
        self.outcomes[name] = outcome

    def withdraw(self, name: str) -> bool:
        """Withdraw a change from the queue, as a person does."""
        return self.lane.remove(name, WithdrawnChange())

    async def crash(self) -> None:
        """Crash the daemon and let another one continue."""
        waiting = [name for name, task in self.joined.items() if not task.done()]
        for name in waiting:
            self.joined[name].cancel()
        await asyncio.gather(*(self.joined[name] for name in waiting), return_exceptions=True)
        await self.lane.close()
        await merge.repair_checkouts(self.host, self.repo)
        self.start()
        self.request_merge(*waiting)

    async def finish(self, timeout: float = 300.0) -> None:
        """Wait for the outcome of every change."""
        await asyncio.wait_for(asyncio.gather(*self.joined.values()), timeout)
        await self.lane.close()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(120):
            while not holds():
                await asyncio.sleep(0.005)

    # -- others --------------------------------------------------------------------------------------------------------

    def push(self, content: dict[str, str], message: str) -> str:
        """Commit to `main` as another person."""
        while True:
            old = self.main()
            new = self._commit_on(old, content, message)
            swap = ["git", "update-ref", "refs/heads/main", new, old]
            if not subprocess.run(swap, cwd=self.repo, capture_output=True).returncode:
                self.pushed.append(message)
                return new

    def force(self, name: str) -> str:
        """Replace the head of a branch by another commit, as a forced push does."""
        first = git(self.repo, "rev-list", "--max-parents=0", "main")
        new = self._commit_on(first, {f"{name}.txt": "forced"}, f"forced {name}")
        git(self.repo, "update-ref", f"refs/heads/b/{name}", new)
        return new

    def _commit_on(self, parent: str, content: dict[str, str], message: str) -> str:
        stream = (
            f"commit refs/scratch\ncommitter P <p@example.invalid> 1700000000 +0000\n{_data(message)}from {parent}\n"
        )
        stream += "".join(f"M 100644 inline {name}\n{_data(text)}" for name, text in content.items()) + "\n"
        subprocess.run(["git", "fast-import", "--quiet", "--force"], input=stream.encode(), cwd=self.repo, check=True)
        return git(self.repo, "rev-parse", "refs/scratch")

    # -- the result --------------------------------------------------------------------------------------------------

    def main(self) -> str:
        return git(self.repo, "rev-parse", "refs/heads/main")

    def files(self, at: str = "main") -> set[str]:
        return set(git(self.repo, "ls-tree", "--name-only", at).split())

    def subjects(self, *options: str) -> list[str]:
        """Return the subjects of the base's commits, oldest first."""
        return git(self.repo, "log", "--reverse", "--format=%s", *options, "main").split("\n")

    def merged_names(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if isinstance(outcome, merge.CompletedMerge)]

    def other_outcomes(self) -> dict[str, type]:
        """Return the type of outcome of each change that was not merged."""
        return {
            name: type(outcome)
            for name, outcome in self.outcomes.items()
            if not isinstance(outcome, merge.CompletedMerge)
        }

    def problems(self) -> list[str]:
        """Return the violated invariants after a history."""
        commits = git(self.repo, "rev-list", "--first-parent", "main").split()
        problems = [
            f"main was red at {commit}" for commit in commits if has_failing_check(frozenset(self.files(commit)))
        ]
        subjects = self.subjects()
        for name, change in self.changes.items():
            is_merged = isinstance(self.outcomes.get(name), merge.CompletedMerge)
            mark = f"work {name}" if change.strategy == "rebase" else f"Land {name}"
            if subjects.count(mark) != is_merged:
                problems.append(
                    f"{name} is on main {subjects.count(mark)} times; it {'' if is_merged else 'did not '}landed"
                )
            if is_merged and f"{name}.txt" not in self.files():
                problems.append(f"{name} landed, and its file is not there")
        problems += [f"{name} has no outcome" for name in self.joined if name not in self.outcomes]
        return problems + [f"{message} is gone" for message in self.pushed if subjects.count(message) != 1]


def has_failing_check(names: frozenset[str]) -> bool:
    """Return whether the project's check fails on these files."""
    return "bad" in names or {"left", "right"} <= names


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _commit(branch: str, message: str, content: dict[str, str], start: str = "") -> str:
    begin = f"commit refs/heads/{branch}\ncommitter P <p@example.invalid> 1700000000 +0000\n{_data(message)}"
    files = "".join(f"M 100644 inline {name}\n{_data(text)}" for name, text in content.items())
    return begin + (f"from refs/heads/{start}\n" if start else "") + files + "\n"
