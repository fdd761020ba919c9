"""A user's checkout of the base branch, which moves with a merge.

During the move Git's own `index.lock` is held, so that no other Git command changes the index there, or moves HEAD to
another commit. Git needs no lock to begin a branch at the present commit: a user who did that before the ref moved gets
the files and the index back.

The lock names the process that holds it and the two commits, so that a lock left by a crash can be distinguished from
other programs' locks, and the checkout can be repaired. The order is files, index, base ref, lock: at each point in
between, users see their own files and at worst a staged change that is the merge itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import create_file, read_regular_file
from agent_orchestrator.base.git.commands import Git, GitFailed, find_layout, is_valid_branch
from agent_orchestrator.changes.merge.index import Delta, PrivateIndex, read_deltas
from agent_orchestrator.changes.merge.model import Blocked
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Temporary, resource_shortage
from agent_orchestrator.protocols.host import Host, ProcessId

_MARK = "Agent Orchestrator: a landing is moving this checkout; `ao start` sets it right if this file stays"
"""The text by which a lock of this program is recognized."""
_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
}
"""Files in a Git folder that show an unfinished operation."""
_WRITER_TIMEOUT = 5.0
"""Seconds to wait for a Git command that still writes."""
_MAX_BYTES = 1 << 20
"""Maximum size in bytes of one of Git's files that is read here; agents can write some of them."""
_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LockContent:
    """The content of our lock: who holds it, and between which commits the checkout moves."""

    pid: int
    started: str
    boot: str
    ref: str
    old: str
    new: str

    def is_well_formed(self) -> bool:
        """Return whether the content is well-formed; an agent may have written a lock in its own checkout."""
        has_types = [type(value) for value in astuple(self)] == [int, *[str] * 5]
        has_commits = has_types and all(_OBJECT_ID.fullmatch(commit) for commit in (self.old, self.new))
        return has_commits and is_valid_branch(self.ref) and 0 < self.pid < 1 << 31


class BranchCheckout:
    """One checkout: its folder, and its own part of the repository."""

    def __init__(self, host: Host, top: Path, git_dir: Path) -> None:
        self.host = host
        self.top = top
        self.git_dir = git_dir
        self._index_file = git_dir / "index"
        self._lock_file = git_dir / "index.lock"
        self._private_index = git_dir / "ao-landing.index"

    def unfinished_operation(self) -> Blocked | None:
        """Return which unfinished operation in the checkout a moved branch would spoil, or None."""
        for name, operation in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                return Blocked(f"{operation} is unfinished in {self.top}", self.top)
        return None

    async def obstacle(self, old: str, new: str, work: Path) -> Blocked | None:
        """Return what keeps the checkout from moving, or None; changes nothing."""
        unfinished = self.unfinished_operation()
        if unfinished is not None:
            return unfinished
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = PrivateIndex(self.host, self.top, self._index_file, work / f"index-{os.getpid()}-{id(self)}")
        try:
            if (problem := await index.copy_original()) is not None:
                return Blocked(problem, self.top)
            changes = await read_deltas(index.git, old, new)
            blocking, _ = await index.obstacles(changes, await index.state())
        finally:
            index.discard()
        return self._blocked_by(blocking)

    def _blocked_by(self, files: list[str]) -> Blocked | None:
        """Return the outcome for files that are in the way, or None if there are none."""
        if not files:
            return None
        file_list = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        return Blocked(f"what you changed in {self.top} stands in the way: {file_list}", self.top, tuple(files))

    # -- the lock ------------------------------------------------------------------------------------------------------

    async def lock(self, ref: str, old: str, new: str) -> Blocked | None:
        """Keep all other Git commands from changing index and HEAD; waits a little for one that is running.

        Return what blocks it, or None.
        """
        process = self.host.process(os.getpid())
        marker = LockContent(os.getpid(), process.started if process else "", self.host.boot_id(), ref, old, new)
        content = json.dumps({"about": _MARK, **asdict(marker)}) + "\n"
        for pause in (0.02, 0.05, 0.1, 0.2, 0.4, 0.0):
            try:
                self._make_lock(content)
            except FileExistsError:
                await asyncio.sleep(pause)
            except (PermissionError, IsADirectoryError):
                return Blocked(f"{self.git_dir} may not be written", self.top)
            else:
                return None
        return Blocked(f"another Git command is at work in {self.top} ({self._lock_file} exists)", self.top)

    def _make_lock(self, content: str) -> None:
        """Create the lock file with all its content at once, where the file system can do that.

        Raises `FileExistsError`.
        """
        complete_file = self._private_index.with_name("ao-landing.lock")
        with create_file(complete_file) as file:
            file.write(content.encode())
        try:
            self._lock_file.hardlink_to(complete_file)
        except FileExistsError:
            raise
        except OSError:
            with self._lock_file.open("x") as lock:
                lock.write(content)
        finally:
            complete_file.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Release the lock."""
        self._lock_file.unlink(missing_ok=True)

    def read_stale_lock(self) -> LockContent | None:
        """Return the content of our lock if no other living process holds it, or None."""
        try:
            fields = json.loads(read_regular_file(self._lock_file, _MAX_BYTES))
            about = fields.pop("about")
            marker = LockContent(**fields)
        except OSError as error:
            if short := resource_shortage(error):
                raise short from None
            return None
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return None
        if not marker.is_well_formed():
            return None
        holder = ProcessId(marker.pid, marker.started)
        is_alive = marker.boot == self.host.boot_id() and self.host.process(marker.pid) == holder
        return marker if about == _MARK and (not is_alive or marker.pid == os.getpid()) else None

    # -- following -----------------------------------------------------------------------------------------------------

    async def is_still_at(self, old: str) -> bool:
        """Return whether the checkout is still at the old commit after the ref moved: then a user began a branch there meanwhile."""
        return await Git(self.host, self.top).resolve("HEAD") == old

    async def advance(self, old: str, new: str, after: Callable[[str], None]) -> Blocked | None:
        """Move files and index, under the lock, from one commit to the other, or say what stands in the way."""
        unfinished = self.unfinished_operation()
        if unfinished is not None:
            return unfinished
        index = PrivateIndex(self.host, self.top, self._index_file, self._private_index)
        if (problem := await index.copy_original()) is not None:
            return Blocked(problem, self.top)
        blocking, adopted = await index.obstacles(await read_deltas(index.git, old, new), await index.state())
        if blocking:
            index.discard()
            return self._blocked_by(blocking)
        await index.put(adopted)
        try:
            await index.move(old, new)
        except GitFailed as error:
            index.discard()
            if error.retryable:  # Git was ended half-way: its changes are reverted and the move is tried again
                raise
            error_lines = error.stderr.strip().splitlines() or [error.text]
            return Blocked(f"{self.top} cannot follow: {error_lines[0]}", self.top)
        after("files")
        self._private_index.replace(self._index_file)
        after("index")
        return None

    async def move_back(self, old: str, new: str) -> None:
        """Move the checkout back from new to old, under the lock; what a user changed since stays.

        Raises `Temporary` if the index cannot be copied.
        """
        await self._wait_for_writer()
        index = PrivateIndex(self.host, self.top, self._index_file, self._private_index)
        if (problem := await index.copy_original()) is not None:
            raise Temporary(problem, f"see what is in {self.git_dir}")
        changes = await read_deltas(index.git, old, new)
        state = await index.state()
        old_in_index = {change.path: change.new for change in changes if state.entries.get(change.path) == change.old}
        own_paths = await index.matching_paths(old_in_index) | {
            path for path in old_in_index if not os.path.lexists(self.top / path)
        }
        for delta in changes:
            current_entry = state.entries.get(delta.path)
            if current_entry == delta.new and delta.path not in state.dirty and not self._is_new_file(delta):
                own_paths.add(delta.path)
        await index.put({change.path: change.old for change in changes if state.entries.get(change.path) == change.new})
        target = await index.git.text("write-tree")
        await index.put({change.path: change.new for change in changes if change.path in own_paths})
        await index.move(await index.git.text("write-tree"), target)
        self._private_index.replace(self._index_file)

    def _is_new_file(self, delta: Delta) -> bool:
        """Return whether a file exists at a path that the new commit deletes."""
        return delta.new is None and os.path.lexists(self.top / delta.path)

    async def _wait_for_writer(self) -> None:
        """Wait for a Git command that outlived the daemon and may still write files, as its lock shows."""
        writer_lock = self._private_index.with_name(f"{self._private_index.name}.lock")
        waited = 0.0
        while writer_lock.exists() and waited < _WRITER_TIMEOUT:
            await asyncio.sleep(0.05)
            waited += 0.05


async def list_checkouts(repository: Repository) -> list[tuple[BranchCheckout, str | None]]:
    """Return all existing checkouts, each with the branch it is on."""
    existing = []
    for entry in await repository.git.worktrees():
        layout = None if entry.bare else find_layout(entry.path)
        if layout is not None:
            existing.append((BranchCheckout(repository.git.host, entry.path, layout.git_dir), entry.branch))
    return existing


async def find_checkouts(
    repository: Repository, base: str, but: Collection[Path] = ()
) -> list[BranchCheckout] | Blocked:
    """Return the checkouts of the base branch, except those at `but`, or why the branch must not be moved now."""
    excluded = {os.path.realpath(path) for path in but}
    entries = {
        entry.path: entry
        for entry in await repository.git.worktrees()
        if not entry.bare and os.path.realpath(entry.path) not in excluded
    }
    existing = [pair for pair in await list_checkouts(repository) if pair[0].top in entries]
    for checkout, _ in existing:
        entries.pop(checkout.top, None)
        if _is_rebasing(checkout.git_dir, base):
            return Blocked(f"{base} is being rebased in {checkout.top}", checkout.top)
    for entry in entries.values():
        if entry.branch == base and entry.locked:
            return Blocked(f"the locked worktree {entry.path} has {base} checked out, but is not there now", entry.path)
    return [checkout for checkout, branch in existing if branch == base]


async def folders_on_branch(repository: Repository, branch: str) -> list[Path]:
    """Return the folders of checkouts that are on a branch or are rebasing it."""
    checked_out = [entry.path for entry in await repository.git.worktrees() if entry.branch == branch]
    rebasing = [
        checkout.top for checkout, _ in await list_checkouts(repository) if _is_rebasing(checkout.git_dir, branch)
    ]
    return [*checked_out, *rebasing]


def _is_rebasing(git_dir: Path, branch: str) -> bool:
    """Return whether a rebase of the branch is unfinished in a checkout."""
    ref = f"refs/heads/{branch}"
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs"):
        try:
            lines = read_regular_file(git_dir / name, _MAX_BYTES).decode(errors="surrogateescape").splitlines()
        except OSError as error:
            if short := resource_shortage(error):
                raise short from None
            continue
        if ref in lines:
            return True
    return False


async def has_checked_out(checkout: BranchCheckout, branch: str) -> bool:
    """Return whether the branch is checked out there at this moment."""
    return await Git(checkout.host, checkout.top).current_branch() == branch
