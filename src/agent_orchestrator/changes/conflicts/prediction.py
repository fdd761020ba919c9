"""Predictions for one repository: what its live branches hold now, and which two of them collide."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.changes.conflicts.compare import Comparison
from agent_orchestrator.changes.conflicts.hunks import ATTRIBUTES
from agent_orchestrator.changes.conflicts.merge_bases import two
from agent_orchestrator.changes.conflicts.model import Branch, Pair, Snapshot
from agent_orchestrator.changes.conflicts.snapshot import Snapshots, read_branch
from agent_orchestrator.changes.merge.merge_tree import write_attributes
from agent_orchestrator.protocols.host import Host

MOST_FILES = 500
"""Of one collision that are named."""
ROUNDS = 300
"""Looks after which our own objects are thrown away and made again as needed."""

log = structlog.get_logger()


class Outlook:
    """What one repository's branches are heading for."""

    def __init__(self, host: Host, common: Path, work: Path) -> None:
        self.host = host
        self.common = common.resolve()
        self.work = work
        self.pairs: tuple[Pair, ...] = ()
        """As of the last look."""
        self._snapshots = Snapshots(host, self.common, work)
        self._comparison = Comparison(Git(host, self.common), work / "languages")
        self._taken: dict[str, Snapshot] = {}
        self._rounds = 0
        self._attributes = ""
        self._changed: dict[tuple[str, str], frozenset[str]] = {}
        self._broken: frozenset[str] = frozenset()
        """Commits whose history or content is not all there: an agent can make them by hand."""

    async def look(self, branches: Sequence[Branch], stale: Collection[str]) -> tuple[Pair, ...]:
        """Which of them collide now. Only what is `stale`, or has moved, is looked at again."""
        if self._rounds % ROUNDS == 0:
            await asyncio.to_thread(self._begin)
        self._rounds += 1
        names = {branch.session for branch in branches}
        self._snapshots.keep(names)
        self._taken = {session: one for session, one in self._taken.items() if session in names}
        moved = [branch for branch in branches if branch.session in stale or self._has_moved(branch)]
        for branch, taken in zip(moved, await asyncio.gather(*map(self._take, moved)), strict=True):
            if taken is not None:
                self._taken[branch.session] = taken
        await self._compare([branch for branch in branches if self._has_work(branch)])
        return self.pairs

    async def changed(self, branch: Branch, base: str) -> frozenset[str]:
        """The paths that a branch had changed when it was looked at last, beside this commit of its base."""
        taken = self._taken.get(branch.session)
        if taken is None or not self._has_work(branch):
            return frozenset()
        key = (taken.commit, base)
        if key not in self._changed:
            await self._prepare(base)
            self._changed = {key: value for key, value in self._changed.items() if key[1] == base}
            self._changed[key] = await self._comparison.changed(taken, base)
        return self._changed[key]

    def _begin(self) -> None:
        self._snapshots.begin()
        self._comparison.attributes.write_text(ATTRIBUTES)
        self._taken.clear()
        self._broken = frozenset()
        self._attributes = ""

    def _has_moved(self, branch: Branch) -> bool:
        taken = self._taken.get(branch.session)
        return taken is None or taken.head != self._snapshots.head(branch)

    async def _take(self, branch: Branch) -> Snapshot | None:
        return await self._snapshots.take(branch, self._taken.get(branch.session))

    def _has_work(self, branch: Branch) -> bool:
        taken = self._taken.get(branch.session)
        return taken is not None and taken.commit != branch.start and taken.commit not in self._broken

    async def _compare(self, branches: Sequence[Branch]) -> None:
        if len(branches) < 2:
            self.pairs = ()
            return
        base = read_branch(self.common, Counter(branch.base for branch in branches).most_common(1)[0][0])
        await self._prepare(base)
        snapshots = [self._taken[branch.session] for branch in branches]
        try:
            verdicts = await self._comparison.compare(snapshots, base)
        except GitFailed:
            broken = [branch for branch in branches if not await self._is_whole(branch, base)]
            if not broken:
                raise
            log.info("branches that are not all there collide with nobody", sessions=[one.session for one in broken])
            self._broken |= {self._taken[one.session].commit for one in broken}
            await self._compare([branch for branch in branches if branch not in broken])
            return
        found = []
        elder_first = sorted(branches, key=lambda branch: (branch.since, branch.session))
        for place, a in enumerate(elder_first):
            for b in elder_first[place + 1 :]:
                commits = two(self._taken[a.session].commit, self._taken[b.session].commit)
                verdict = verdicts.get(commits)
                if verdict is not None and verdict.kind:
                    found.append(Pair(a.session, b.session, verdict.files[:MOST_FILES], verdict.kind))
        self.pairs = tuple(found)

    async def _is_whole(self, branch: Branch, base: str | None) -> bool:
        """Can Git read all that a branch has beyond its base?"""
        below = (f"^{base}",) if base else ()
        words = ("rev-list", "--objects", "--quiet", self._taken[branch.session].commit, *below, "--")
        return (await self._comparison.git.run(*words, ok=(0, 1, 128), timeout=None)).code == 0

    async def _prepare(self, base: str | None) -> None:
        """Merges go by the base's own attributes, not by whatever is checked out: Git reads them from where it runs."""
        folder = self.work / "attributes"
        env = {"GIT_DIR": str(self.common), "GIT_WORK_TREE": str(folder), **self._snapshots.environment()}
        self._comparison.git = Git(self.host, folder, env)
        if self._attributes != (base or "none"):
            if folder.exists():
                shutil.rmtree(folder)  # where the disk is read-only, that is what is told
            folder.mkdir()
            if base:
                await write_attributes(self._comparison.git, base, folder)
            self._attributes = base or "none"
