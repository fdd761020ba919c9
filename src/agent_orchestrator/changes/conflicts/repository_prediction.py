"""Predict the conflicts of one repository: read the content of its live branches and compare every two (`RepositoryPrediction`)."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.changes.conflicts.compare import BranchComparer
from agent_orchestrator.changes.conflicts.hunks import ATTRIBUTES
from agent_orchestrator.changes.conflicts.merge_bases import commit_pair
from agent_orchestrator.changes.conflicts.model import Branch, BranchSnapshot, ConflictingPair
from agent_orchestrator.changes.conflicts.snapshot import Snapshots, read_branch_head
from agent_orchestrator.changes.merge.merge_tree import write_attributes
from agent_orchestrator.protocols.host import Host

MAX_FILES = 500
"""Maximum number of files named per conflict."""
PREDICTIONS_PER_RESET = 300
"""Number of predictions after which our own objects are deleted and made again as needed."""

log = structlog.get_logger()


class RepositoryPrediction:
    """The predicted conflicts of one repository."""

    def __init__(self, host: Host, common: Path, work: Path) -> None:
        self.host = host
        self.common = common.resolve()
        self.work = work
        self.pairs: tuple[ConflictingPair, ...] = ()
        """The conflicts of the last prediction."""
        self._snapshots = Snapshots(host, self.common, work)
        self._comparison = BranchComparer(Git(host, self.common), work / "languages")
        self._latest: dict[str, BranchSnapshot] = {}
        self._rounds = 0
        self._attributes = ""
        self._changed_paths: dict[tuple[str, str], frozenset[str]] = {}
        self._broken_commits: frozenset[str] = frozenset()
        """Commits whose history or content is incomplete; an agent can create them by hand."""

    async def predict(self, branches: Sequence[Branch], stale: Collection[str]) -> tuple[ConflictingPair, ...]:
        """Return the branches' conflicts now; only branches that are in `stale` or have moved are read again."""
        if self._rounds % PREDICTIONS_PER_RESET == 0:
            await asyncio.to_thread(self._reset)
        self._rounds += 1
        names = {branch.session for branch in branches}
        self._snapshots.forget_all_except(names)
        self._latest = {session: snapshot for session, snapshot in self._latest.items() if session in names}
        moved = [branch for branch in branches if branch.session in stale or self._has_moved(branch)]
        for branch, new_snapshot in zip(moved, await asyncio.gather(*map(self._take_snapshot, moved)), strict=True):
            if new_snapshot is not None:
                self._latest[branch.session] = new_snapshot
        await self._compare([branch for branch in branches if self._has_work(branch)])
        return self.pairs

    async def changed_paths(self, branch: Branch, base: str) -> frozenset[str]:
        """Return the paths that a branch had changed at the last prediction, compared with this commit of its base."""
        snapshot = self._latest.get(branch.session)
        if snapshot is None or not self._has_work(branch):
            return frozenset()
        key = (snapshot.commit, base)
        if key not in self._changed_paths:
            await self._write_base_attributes(base)
            self._changed_paths = {key: paths for key, paths in self._changed_paths.items() if key[1] == base}
            self._changed_paths[key] = await self._comparison.changed_paths(snapshot, base)
        return self._changed_paths[key]

    def _reset(self) -> None:
        """Empty our object folder and forget everything that depends on it."""
        self._snapshots.reset()
        self._comparison.attributes.write_text(ATTRIBUTES)
        self._latest.clear()
        self._broken_commits = frozenset()
        self._attributes = ""

    def _has_moved(self, branch: Branch) -> bool:
        """Return whether the branch has another commit than at its last snapshot."""
        snapshot = self._latest.get(branch.session)
        return snapshot is None or snapshot.head != self._snapshots.head(branch)

    async def _take_snapshot(self, branch: Branch) -> BranchSnapshot | None:
        """Return a new snapshot of the branch, or None if it has no readable content."""
        return await self._snapshots.take_snapshot(branch, self._latest.get(branch.session))

    def _has_work(self, branch: Branch) -> bool:
        """Return whether the branch has content beyond its start, and it can be read."""
        snapshot = self._latest.get(branch.session)
        return (
            snapshot is not None
            and snapshot.commit != branch.start_commit
            and snapshot.commit not in self._broken_commits
        )

    async def _compare(self, branches: Sequence[Branch]) -> None:
        """Compare the branches and store the conflicts; branches that Git cannot read are left out from then on."""
        if len(branches) < 2:
            self.pairs = ()
            return
        base = read_branch_head(self.common, Counter(branch.base for branch in branches).most_common(1)[0][0])
        await self._write_base_attributes(base)
        snapshots = [self._latest[branch.session] for branch in branches]
        try:
            verdicts = await self._comparison.compare(snapshots, base)
        except GitFailed:
            broken_branches = [branch for branch in branches if not await self._is_complete(branch, base)]
            if not broken_branches:
                raise
            log.info(
                "branches that are not all there collide with nobody",
                sessions=[broken_branch.session for broken_branch in broken_branches],
            )
            self._broken_commits |= {self._latest[broken_branch.session].commit for broken_branch in broken_branches}
            await self._compare([branch for branch in branches if branch not in broken_branches])
            return
        pairs = []
        oldest_first = sorted(branches, key=lambda branch: (branch.created_at, branch.session))
        for index, a in enumerate(oldest_first):
            for b in oldest_first[index + 1 :]:
                commits = commit_pair(self._latest[a.session].commit, self._latest[b.session].commit)
                verdict = verdicts.get(commits)
                if verdict is not None and verdict.kind:
                    pairs.append(ConflictingPair(a.session, b.session, verdict.files[:MAX_FILES], verdict.kind))
        self.pairs = tuple(pairs)

    async def _is_complete(self, branch: Branch, base: str | None) -> bool:
        """Return whether Git can read everything that a branch has beyond its base."""
        exclusions = (f"^{base}",) if base else ()
        arguments = ("rev-list", "--objects", "--quiet", self._latest[branch.session].commit, *exclusions, "--")
        return (await self._comparison.git.run(*arguments, ok=(0, 1, 128), timeout=None)).code == 0

    async def _write_base_attributes(self, base: str | None) -> None:
        """Let merges use the base branch's own attributes, which Git reads from the folder it runs in."""
        folder = self.work / "attributes"
        env = {"GIT_DIR": str(self.common), "GIT_WORK_TREE": str(folder), **self._snapshots.environment()}
        self._comparison.git = Git(self.host, folder, env)
        if self._attributes != (base or "none"):
            if folder.exists():
                shutil.rmtree(folder)  # errors are not ignored, so that a read-only disk is reported
            folder.mkdir()
            if base:
                await write_attributes(self._comparison.git, base, folder)
            self._attributes = base or "none"
