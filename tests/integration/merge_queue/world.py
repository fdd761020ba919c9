"""A repository with branches that are to land, a check that judges by content, and a queue that may die at any time."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.clock import SystemClock
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks import Assessment, Result
from agent_orchestrator.changes.merge import Built, MergeSpec, Strategy
from agent_orchestrator.changes.merge_queue.lane import BaseQueue, Failed, Outcome, Ticket, Withdrawn
from agent_orchestrator.changes.merge_queue.next_step import Entry
from agent_orchestrator.core.events import CheckFinished
from tests.integration.rescue.world import git

CONTENT = {"plain": "", "flaky": "", "bad": "bad", "left": "left", "right": "right", "shared": "shared.txt"}
"""What a change brings beside a file of its own: `bad` is red by itself, `left` and `right` together, `shared` conflicts."""


@dataclass(frozen=True)
class Change:
    """A branch that is to land."""

    name: str
    kind: str = "plain"
    strategy: Strategy = "squash"
    priority: int = 0
    unchecked: bool = False


@dataclass
class World:
    """All of it."""

    root: Path
    room: int = 4
    host: LocalHost = field(default_factory=LocalHost)
    heads: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    waits: dict[str, list[str]] = field(default_factory=dict)
    checked: list[frozenset[str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    running: int = 0
    """Checks that run now."""
    hold: asyncio.Event | None = None
    """Checks do not end before this is set."""
    predicted: dict[str, frozenset[str]] = field(default_factory=dict)
    """Whom each is said to conflict with, truly or not."""
    pushed: list[str] = field(default_factory=list)
    lane: BaseQueue = field(init=False)
    joined: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def make(self, changes: Iterable[Change]) -> World:
        """The repository with all branches, in one go; nobody has `main` checked out."""
        git(self.root, "init", "-q", "-b", "elsewhere", str(self.repo))
        self.changes = {change.name: change for change in changes}
        stream = _commit("main", "start", {"README.md": "x", "shared.txt": "nobody"})
        for change in self.changes.values():
            beside = CONTENT[change.kind]
            stream += _commit(f"b/{change.name}", f"work {change.name}", {f"{change.name}.txt": change.name}, "main")
            if beside:
                stream += _commit(
                    f"b/{change.name}",
                    f"more {change.name}",
                    {beside: change.name if beside == "shared.txt" else beside},
                )
        subprocess.run(["git", "fast-import", "--quiet"], input=stream.encode(), cwd=self.repo, check=True)
        refs = git(self.repo, "for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/heads/b").split("\n")
        self.heads = dict(line.split() for line in refs if line)
        self.start()
        return self

    # -- the queue -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """What the first or next daemon does."""
        room, predicted = (lambda: self.room), (lambda: self.predicted)
        self.lane = BaseQueue(self.host, SystemClock(), self.repo, "main", self._judge, self._tell, room, predicted)

    def _tell(self, ticket: Ticket, reason: str) -> None:
        self.waits.setdefault(ticket.entry.session, []).append(reason)

    async def _judge(self, _ticket: Ticket, built: Built, doubt: Callable[[], None]) -> Failed | None:
        self.running += 1
        try:
            return await self._verdict(built, doubt)
        finally:
            self.running -= 1

    async def _verdict(self, built: Built, doubt: Callable[[], None]) -> Failed | None:
        names = await self._names(built.tree)
        self.checked.append(names)
        if self.hold:
            await self.hold.wait()
        flaky = any(change.kind == "flaky" and f"{name}.txt" in names for name, change in self.changes.items())
        if red(names) or (flaky and built.tree not in self.seen):
            self.seen.add(built.tree)
            doubt()
            await asyncio.sleep(0.01)
        if red(names):
            result = Result("failure", built.tree, 1, 0.0, Path("log"), "it ended with exit code 1")
            return Failed("test", Assessment("failure", result), CheckFinished("test", built.commit, "failure"))
        return None

    async def _names(self, tree: str) -> frozenset[str]:
        return frozenset(await asyncio.to_thread(lambda: git(self.repo, "ls-tree", "--name-only", tree).split()))

    def spec(self, name: str) -> MergeSpec:
        change, work = self.changes[name], self.root / "work" / name
        work.mkdir(parents=True, exist_ok=True)
        branch, title = f"b/{name}", f"Land {name}"
        return MergeSpec(name, self.repo, branch, self.heads[name], "main", change.strategy, title, "", work)

    def ask(self, *names: str) -> None:
        """Let these land: they join in this order, whosever Git is slow."""
        loop = asyncio.get_running_loop()
        found = loop.create_task(self._find(names))
        for name in names:
            self.joined[name] = loop.create_task(self._join(name, found))

    async def _find(self, names: Iterable[str]) -> dict[str, merge.Merged | None]:
        """What has landed already; the lane knows its base then."""
        every = [(name, await merge.find_merge(self.host, self.spec(name))) for name in names]
        await self.lane.find_base()
        return dict(every)

    async def _join(self, name: str, found: asyncio.Task[dict[str, merge.Merged | None]]) -> None:
        spec, change = self.spec(name), self.changes[name]
        outcome: Outcome | None = (await found)[name]
        if outcome is None:
            asked = float(list(self.changes).index(name))
            entry = Entry(name, spec.head, change.priority, asked, change.unchecked)
            outcome = await self.lane.join(Ticket(entry, spec))
        assert name not in self.outcomes, "two ends of one landing"
        self.outcomes[name] = outcome

    def call_off(self, name: str) -> bool:
        """A person takes it out again."""
        return self.lane.settle(name, Withdrawn())

    async def crash(self) -> None:
        """The daemon is gone, and another one takes up what it left."""
        waiting = [name for name, task in self.joined.items() if not task.done()]
        for name in waiting:
            self.joined[name].cancel()
        await asyncio.gather(*(self.joined[name] for name in waiting), return_exceptions=True)
        await self.lane.close()
        await merge.repair_checkouts(self.host, self.repo)
        self.start()
        self.ask(*waiting)

    async def over(self, patience: float = 300.0) -> None:
        """Wait for the end of every landing."""
        await asyncio.wait_for(asyncio.gather(*self.joined.values()), patience)
        await self.lane.close()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for something to be so."""
        async with asyncio.timeout(120):
            while not holds():
                await asyncio.sleep(0.005)

    # -- others --------------------------------------------------------------------------------------------------------

    def push(self, content: dict[str, str], message: str) -> str:
        """Somebody else commits on `main`."""
        while True:
            old = self.main()
            new = self._commit_on(old, content, message)
            swap = ["git", "update-ref", "refs/heads/main", new, old]
            if not subprocess.run(swap, cwd=self.repo, capture_output=True).returncode:
                self.pushed.append(message)
                return new

    def force(self, name: str) -> str:
        """Somebody puts another commit in the place of the branch's head."""
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

    # -- what is so ----------------------------------------------------------------------------------------------------

    def main(self) -> str:
        return git(self.repo, "rev-parse", "refs/heads/main")

    def files(self, at: str = "main") -> set[str]:
        return set(git(self.repo, "ls-tree", "--name-only", at).split())

    def subjects(self, *options: str) -> list[str]:
        """Of the base's commits, the oldest first."""
        return git(self.repo, "log", "--reverse", "--format=%s", *options, "main").split("\n")

    def landed(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if isinstance(outcome, merge.Merged)]

    def out(self) -> dict[str, type]:
        """Who did not land, and why."""
        return {name: type(one) for name, one in self.outcomes.items() if not isinstance(one, merge.Merged)}

    def wrong(self) -> list[str]:
        """What must be so after any history, and is not."""
        commits = git(self.repo, "rev-list", "--first-parent", "main").split()
        problems = [f"main was red at {commit}" for commit in commits if red(frozenset(self.files(commit)))]
        subjects = self.subjects()
        for name, change in self.changes.items():
            there = isinstance(self.outcomes.get(name), merge.Merged)
            mark = f"work {name}" if change.strategy == "rebase" else f"Land {name}"
            if subjects.count(mark) != there:
                problems.append(
                    f"{name} is on main {subjects.count(mark)} times; it {'' if there else 'did not '}landed"
                )
            if there and f"{name}.txt" not in self.files():
                problems.append(f"{name} landed, and its file is not there")
        problems += [f"{name} has no outcome" for name in self.joined if name not in self.outcomes]
        return problems + [f"{one} is gone" for one in self.pushed if subjects.count(one) != 1]


def red(names: frozenset[str]) -> bool:
    """Would the project's check fail on these files?"""
    return "bad" in names or {"left", "right"} <= names


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _commit(branch: str, message: str, content: dict[str, str], start: str = "") -> str:
    begin = f"commit refs/heads/{branch}\ncommitter P <p@example.invalid> 1700000000 +0000\n{_data(message)}"
    files = "".join(f"M 100644 inline {name}\n{_data(text)}" for name, text in content.items())
    return begin + (f"from refs/heads/{start}\n" if start else "") + files + "\n"
