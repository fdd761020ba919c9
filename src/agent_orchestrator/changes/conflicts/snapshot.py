"""Make a commit of a branch's current content, uncommitted work included, that only we can see (`Snapshots`).

The workspace and its index are only read. Uncommitted content is written with a copy of the index, as objects in our own folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import tempfile
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent_orchestrator.base.files.safe import copy_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.listings import StatusEntry
from agent_orchestrator.base.git.refs import MAX_INDEX_BYTES, Layout, find_layout, read_head, read_ref
from agent_orchestrator.changes.conflicts.model import Branch, BranchSnapshot
from agent_orchestrator.errors import AoError, resource_shortage
from agent_orchestrator.protocols.host import Host

MAX_FILE_BYTES = 16 << 20
"""Maximum size of an uncommitted file in bytes; larger files are left out because they are not merged line by line."""

_MAX_TREES = 1000
_OPERATION_MARKERS = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
_COMMIT_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Agent Orchestrator"), ("EMAIL", "ao@localhost"), ("DATE", "@0 +0000"))
}

log = structlog.get_logger()


def join_git_paths(paths: list[Path]) -> str:
    """Return the paths as a list for one of Git's environment variables."""
    return os.pathsep.join(f'"{path}"' if os.pathsep in str(path) else str(path) for path in paths)


@dataclass(slots=True)
class _WorkspaceState:
    """The fingerprint of a workspace and the snapshot made from that state."""

    fingerprint: str
    snapshot: BranchSnapshot


class Snapshots:
    """Makes snapshots of the branches of one repository."""

    def __init__(self, host: Host, common: Path, work: Path) -> None:
        self.host = host
        self.common = common
        self.work = work
        self.objects = work / "objects"
        self._latest: dict[str, _WorkspaceState] = {}
        self._concurrency = asyncio.Semaphore(max(2, os.cpu_count() or 2))
        self._clones: dict[str, Path] = {}
        self._trees: OrderedDict[str, str] = OrderedDict()
        self._tree_lock = asyncio.Lock()

    def reset(self) -> None:
        """Delete all our objects and start with an empty folder."""
        try:
            if self.work.exists():
                shutil.rmtree(self.work)
            self.objects.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise resource_shortage(error) or error from None
        self._latest.clear()
        self._trees.clear()

    def environment(self) -> dict[str, str]:
        """Return the variables that make Git write objects to our folder and read those of all repositories."""
        object_folders = [self.common / "objects", *self._clones.values()]
        return {
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": join_git_paths(object_folders),
        }

    def forget_all_except(self, sessions: set[str]) -> None:
        """Forget the snapshots of all other sessions."""
        for session in self._latest.keys() - sessions:
            del self._latest[session]
        for session in self._clones.keys() - sessions:
            del self._clones[session]

    def head(self, branch: Branch) -> str | None:
        """Return the commit that a branch is at, read from Git's files."""
        layout = find_layout(branch.workspace) if branch.workspace else None
        if layout is None:
            return branch.head
        if (layout.git_dir / "rebase-merge").is_dir() or (layout.git_dir / "rebase-apply").is_dir():
            return branch.head or read_head(layout.git_dir)
        return read_head(layout.git_dir) or branch.head

    async def take_snapshot(self, branch: Branch, last_snapshot: BranchSnapshot | None) -> BranchSnapshot | None:
        """Return a snapshot of the branch, or None if it has no commit.

        `known` is the branch's last snapshot: it is returned if the workspace cannot be read, and saves reading the tree of an unchanged
        commit.
        """
        async with self._concurrency:
            try:
                return await self._read_content(branch, last_snapshot)
            except (AoError, OSError) as error:  # the workspace may be removed meanwhile
                log.info("a workspace could not be looked at", session=branch.session, error=str(error))
                return last_snapshot

    async def _read_content(self, branch: Branch, last_snapshot: BranchSnapshot | None) -> BranchSnapshot | None:
        """Return a snapshot of the branch's content, the last one if the workspace has not changed since."""
        head = self.head(branch)
        if head is None:
            return None
        layout = find_layout(branch.workspace) if branch.workspace else None
        if layout is None or branch.workspace is None:
            return await self._committed_snapshot(head, last_snapshot)
        if layout.common.resolve() != self.common:
            self._clones[branch.session] = layout.common.resolve() / "objects"
        if any((layout.git_dir / name).exists() for name in _OPERATION_MARKERS):
            return await self._committed_snapshot(head, last_snapshot)
        git = Git(self.host, branch.workspace)
        changed = [
            change for change in await git.status() if not change.path.endswith("/") and not change.sub.startswith("S")
        ]
        fingerprint = await asyncio.to_thread(_fingerprint, branch.workspace, head, changed)
        latest = self._latest.get(branch.session)
        if latest is None or latest.fingerprint != fingerprint:
            snapshot = await (
                self._uncommitted_snapshot(git, layout, head, changed)
                if changed
                else self._committed_snapshot(head, last_snapshot)
            )
            latest = self._latest[branch.session] = _WorkspaceState(fingerprint, snapshot)
        return latest.snapshot

    async def _committed_snapshot(self, head: str, last_snapshot: BranchSnapshot | None) -> BranchSnapshot:
        """Return the snapshot of a commit without uncommitted work."""
        if last_snapshot is not None and last_snapshot.commit == head:
            return last_snapshot
        async with self._tree_lock:  # only one of the sessions that begin at the same commit reads its tree
            if head not in self._trees:
                git = Git(self.host, self.common, {"GIT_DIR": str(self.common), **self.environment()})
                self._trees[head] = await git.text("rev-parse", "--verify", f"{head}^{{tree}}")
                if len(self._trees) > _MAX_TREES:
                    self._trees.popitem(last=False)
            return BranchSnapshot(head, head, self._trees[head])

    async def _uncommitted_snapshot(
        self, git: Git, layout: Layout, head: str, changed: list[StatusEntry]
    ) -> BranchSnapshot:
        """Write the workspace's changes to a copy of its index and return the snapshot of a commit of it."""
        paths = [change.path for change in changed if _is_included(git.repo / change.path)]
        with tempfile.TemporaryDirectory(dir=self.work, prefix="index-") as folder:
            index = Path(folder, "index")
            with suppress(FileNotFoundError):  # keep its times: Git uses them to skip unchanged files
                await asyncio.to_thread(copy_regular_file, layout.git_dir / "index", index, MAX_INDEX_BYTES)
            env = {"GIT_INDEX_FILE": str(index), "GIT_LITERAL_PATHSPECS": "1", **self.environment()}
            listing = os.fsencode("".join(f"{path}\0" for path in paths))
            update = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
            await git.run(*update, env=env, config=git.missing_lfs_config(), input=listing, timeout=None)
            tree = await git.text("write-tree", env=env)
            commit = await git.commit_tree(tree, (head,), "uncommitted", {**_COMMIT_IDENTITY, **env})
        return BranchSnapshot(head, commit, tree)


def _is_included(path: Path) -> bool:
    """Return whether a changed path belongs in the snapshot: removed, a symlink, or a file that is not too large."""
    try:
        status = path.lstat()
    except OSError:
        return True  # a removed file is a change too
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES)


def _fingerprint(workspace: Path, head: str, changed: list[StatusEntry]) -> str:
    """Return a fingerprint of a workspace: while it stays the same, so does the content."""
    digest = hashlib.sha256(head.encode())
    for change in changed:
        try:
            status = (workspace / change.path).lstat()
            file_state = f"{status.st_size} {status.st_mtime_ns} {status.st_ino} {status.st_mode}"
        except OSError:
            file_state = "gone"
        digest.update(os.fsencode(f"{change.xy} {change.path}\0{file_state}\0"))
    return digest.hexdigest()


def read_branch_head(common: Path, branch: str) -> str | None:
    """Return the commit that a branch of the repository is at, in the repository or at `origin`."""
    return read_ref(common, f"refs/heads/{branch}") or read_ref(common, f"refs/remotes/origin/{branch}")
