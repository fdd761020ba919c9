"""A branch's content as it is now, committed or not, as one commit that nothing but us can see.

The workspace and its index are only read. What is uncommitted goes, by a copy of the index, into objects of our own folder.
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

from agent_orchestrator.base.files.safe import copy_plain
from agent_orchestrator.base.git.commands import Change, Git
from agent_orchestrator.base.git.refs import LONGEST_INDEX, Layout, find_layout, read_head, read_ref
from agent_orchestrator.changes.conflicts.model import Branch, Snapshot
from agent_orchestrator.errors import AoError, machine_short
from agent_orchestrator.protocols.host import Host

MOST_BYTES = 16 << 20
"""An uncommitted file that is larger is left out: nobody merges such by lines."""

_TREES = 1000
_UNDER_WAY = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
_NOBODY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Agent Orchestrator"), ("EMAIL", "ao@localhost"), ("DATE", "@0 +0000"))
}

log = structlog.get_logger()


def quoted(paths: list[Path]) -> str:
    """As a list of folders in one of Git's variables."""
    return os.pathsep.join(f'"{path}"' if os.pathsep in str(path) else str(path) for path in paths)


@dataclass(slots=True)
class _Seen:
    """What a workspace looked like, and the snapshot that it gave."""

    look: str
    snapshot: Snapshot


class Snapshots:
    """Takes snapshots of branches of one repository."""

    def __init__(self, host: Host, common: Path, work: Path) -> None:
        self.host = host
        self.common = common
        self.work = work
        self.objects = work / "objects"
        self._seen: dict[str, _Seen] = {}
        self._several = asyncio.Semaphore(max(2, os.cpu_count() or 2))
        self._clones: dict[str, Path] = {}
        self._trees: OrderedDict[str, str] = OrderedDict()
        self._one_tree = asyncio.Lock()

    def begin(self) -> None:
        """Start with no object of an earlier time."""
        try:
            if self.work.exists():
                shutil.rmtree(self.work)
            self.objects.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise machine_short(error) or error from None
        self._seen.clear()
        self._trees.clear()

    def environment(self) -> dict[str, str]:
        """Makes Git write objects into our folder, and read all there are."""
        read = [self.common / "objects", *self._clones.values()]
        return {"GIT_OBJECT_DIRECTORY": str(self.objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted(read)}

    def keep(self, sessions: set[str]) -> None:
        """Forget all others."""
        for session in self._seen.keys() - sessions:
            del self._seen[session]
        for session in self._clones.keys() - sessions:
            del self._clones[session]

    def head(self, branch: Branch) -> str | None:
        """The commit that a branch is at, read from Git's files."""
        layout = find_layout(branch.workspace) if branch.workspace else None
        if layout is None:
            return branch.head
        if (layout.git_dir / "rebase-merge").is_dir() or (layout.git_dir / "rebase-apply").is_dir():
            return branch.head or read_head(layout.git_dir)
        return read_head(layout.git_dir) or branch.head

    async def take(self, branch: Branch, known: Snapshot | None) -> Snapshot | None:
        """A branch's content; none: it has none that could be read. `known`: one whose head's tree need not be asked for."""
        async with self._several:
            try:
                return await self._take(branch, known)
            except (AoError, OSError) as error:  # a workspace may be removed in the midst of it
                log.info("a workspace could not be looked at", session=branch.session, error=str(error))
                return known

    async def _take(self, branch: Branch, known: Snapshot | None) -> Snapshot | None:
        head = self.head(branch)
        if head is None:
            return None
        layout = find_layout(branch.workspace) if branch.workspace else None
        if layout is None or branch.workspace is None:
            return await self._committed(head, known)
        if layout.common.resolve() != self.common:
            self._clones[branch.session] = layout.common.resolve() / "objects"
        if any((layout.git_dir / name).exists() for name in _UNDER_WAY):
            return await self._committed(head, known)
        git = Git(self.host, branch.workspace)
        changed = [one for one in await git.status() if not one.path.endswith("/") and not one.sub.startswith("S")]
        look = await asyncio.to_thread(_look, branch.workspace, head, changed)
        seen = self._seen.get(branch.session)
        if seen is None or seen.look != look:
            taken = await (self._uncommitted(git, layout, head, changed) if changed else self._committed(head, known))
            seen = self._seen[branch.session] = _Seen(look, taken)
        return seen.snapshot

    async def _committed(self, head: str, known: Snapshot | None) -> Snapshot:
        if known is not None and known.commit == head:
            return known
        async with self._one_tree:  # of sessions that begin at the same commit one asks
            if head not in self._trees:
                git = Git(self.host, self.common, {"GIT_DIR": str(self.common), **self.environment()})
                self._trees[head] = await git.text("rev-parse", "--verify", f"{head}^{{tree}}")
                if len(self._trees) > _TREES:
                    self._trees.popitem(last=False)
            return Snapshot(head, head, self._trees[head])

    async def _uncommitted(self, git: Git, layout: Layout, head: str, changed: list[Change]) -> Snapshot:
        paths = [one.path for one in changed if _fits(git.repo / one.path)]
        with tempfile.TemporaryDirectory(dir=self.work, prefix="index-") as folder:
            index = Path(folder, "index")
            with suppress(FileNotFoundError):  # its times too: by them Git knows what it need not read again
                await asyncio.to_thread(copy_plain, layout.git_dir / "index", index, LONGEST_INDEX)
            env = {"GIT_INDEX_FILE": str(index), "GIT_LITERAL_PATHSPECS": "1", **self.environment()}
            listing = os.fsencode("".join(f"{path}\0" for path in paths))
            update = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
            await git.run(*update, env=env, config=git.filters(), input=listing, timeout=None)
            tree = await git.text("write-tree", env=env)
            commit = await git.commit_tree(tree, (head,), "uncommitted", {**_NOBODY, **env})
        return Snapshot(head, commit, tree)


def _fits(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return True  # it is gone, and that counts
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES)


def _look(workspace: Path, head: str, changed: list[Change]) -> str:
    """Names what a workspace looks like: the same name, the same content."""
    digest = hashlib.sha256(head.encode())
    for one in changed:
        try:
            status = (workspace / one.path).lstat()
            seen = f"{status.st_size} {status.st_mtime_ns} {status.st_ino} {status.st_mode}"
        except OSError:
            seen = "gone"
        digest.update(os.fsencode(f"{one.xy} {one.path}\0{seen}\0"))
    return digest.hexdigest()


def read_branch(common: Path, branch: str) -> str | None:
    """The commit that a branch of the repository is at."""
    return read_ref(common, f"refs/heads/{branch}") or read_ref(common, f"refs/remotes/origin/{branch}")
