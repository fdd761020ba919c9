"""Somebody's checkout of the base branch, which follows a landing.

While it follows, Git's own `index.lock` is held, so that no other Git command changes the index there, or HEAD to another commit. To
begin a branch where one stands Git needs no lock: who did that before the ref moved has his files and index back. The lock says whose
it is and where the checkout comes from and goes to: what a crash leaves behind can be told from anybody else's lock, and set right.
The order is files, index, base ref, lock: at each point in between, a person sees his files and at worst a staged change that is the
landing itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import new_file, read_plain
from agent_orchestrator.base.git.commands import Git, GitFailed, find_layout, valid_branch
from agent_orchestrator.changes.merge.index import Delta, PrivateIndex, deltas
from agent_orchestrator.changes.merge.model import Waits
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Temporary, machine_short
from agent_orchestrator.protocols.host import Host, ProcessId

_MARK = "Agent Orchestrator: a landing is moving this checkout; `ao start` sets it right if this file stays"
_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
}
_PATIENCE = 5.0
_LONGEST = 1 << 20
"""Bytes of a file of Git's that is read here; agents write some of them."""
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Marker:
    """What our lock says: who holds it, and which way the checkout goes."""

    pid: int
    started: str
    boot: str
    ref: str
    old: str
    new: str

    def sound(self) -> bool:
        """Is it what we write? An agent in whose checkout it lies may have written it."""
        kinds = [type(value) for value in astuple(self)] == [int, *[str] * 5]
        commits = kinds and all(_OBJECT.fullmatch(one) for one in (self.old, self.new))
        return commits and valid_branch(self.ref) and 0 < self.pid < 1 << 31


class Checkout:
    """One checkout: its folder, and its own part of the repository."""

    def __init__(self, host: Host, top: Path, git_dir: Path) -> None:
        self.host = host
        self.top = top
        self.git_dir = git_dir
        self._index = git_dir / "index"
        self._lock = git_dir / "index.lock"
        self._private = git_dir / "ao-landing.index"

    def unfinished(self) -> Waits | None:
        """Is somebody in the middle of something here that a moved branch would spoil?"""
        for name, what in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                return Waits(f"{what} is unfinished in {self.top}", self.top)
        return None

    async def obstacle(self, old: str, new: str, work: Path) -> Waits | None:
        """What stands in the way of following; touches nothing."""
        waits = self.unfinished()
        if waits is not None:
            return waits
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = PrivateIndex(self.host, self.top, self._index, work / f"index-{os.getpid()}-{id(self)}")
        try:
            if (problem := await index.begin()) is not None:
                return Waits(problem, self.top)
            changes = await deltas(index.git, old, new)
            in_the_way, _ = await index.obstacles(changes, await index.state())
        finally:
            index.discard()
        return self._waits(in_the_way)

    def _waits(self, files: list[str]) -> Waits | None:
        if not files:
            return None
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        return Waits(f"what you changed in {self.top} stands in the way: {shown}", self.top, tuple(files))

    # -- the lock ------------------------------------------------------------------------------------------------------

    async def lock(self, ref: str, old: str, new: str) -> Waits | None:
        """Keep all other Git commands from changing index and HEAD; waits a little for one that is at work."""
        me = self.host.process(os.getpid())
        marker = Marker(os.getpid(), me.started if me else "", self.host.boot_id(), ref, old, new)
        content = json.dumps({"about": _MARK, **asdict(marker)}) + "\n"
        for pause in (0.02, 0.05, 0.1, 0.2, 0.4, 0.0):
            try:
                self._make_lock(content)
            except FileExistsError:
                await asyncio.sleep(pause)
            except (PermissionError, IsADirectoryError):
                return Waits(f"{self.git_dir} may not be written", self.top)
            else:
                return None
        return Waits(f"another Git command is at work in {self.top} ({self._lock} exists)", self.top)

    def _make_lock(self, content: str) -> None:
        """With all its content at once or not at all, where the disk can do that."""
        complete = self._private.with_name("ao-landing.lock")
        with new_file(complete) as file:
            file.write(content.encode())
        try:
            self._lock.hardlink_to(complete)
        except FileExistsError:
            raise
        except OSError:
            with self._lock.open("x") as lock:
                lock.write(content)
        finally:
            complete.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let others go on."""
        self._lock.unlink(missing_ok=True)

    def left_behind(self) -> Marker | None:
        """Our lock, if nobody who lives holds it."""
        try:
            fields = json.loads(read_plain(self._lock, _LONGEST))
            about = fields.pop("about")
            marker = Marker(**fields)
        except OSError as error:
            if short := machine_short(error):
                raise short from None
            return None
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return None
        if not marker.sound():
            return None
        holder = ProcessId(marker.pid, marker.started)
        alive = marker.boot == self.host.boot_id() and self.host.process(marker.pid) == holder
        return marker if about == _MARK and (not alive or marker.pid == os.getpid()) else None

    # -- following -----------------------------------------------------------------------------------------------------

    async def stayed(self, old: str) -> bool:
        """Is it, the ref having moved, where it came from? Then somebody has begun a branch there meanwhile."""
        return await Git(self.host, self.top).resolve("HEAD") == old

    async def advance(self, old: str, new: str, after: Callable[[str], None]) -> Waits | None:
        """Under the lock: take files and index from one commit to the other, or say what stands in the way."""
        waits = self.unfinished()
        if waits is not None:
            return waits
        index = PrivateIndex(self.host, self.top, self._index, self._private)
        if (problem := await index.begin()) is not None:
            return Waits(problem, self.top)
        in_the_way, adopted = await index.obstacles(await deltas(index.git, old, new), await index.state())
        if in_the_way:
            index.discard()
            return self._waits(in_the_way)
        await index.put(adopted)
        try:
            await index.move(old, new)
        except GitFailed as error:
            index.discard()
            if error.retryable:  # it was ended half-way: what it did is taken back, and it is tried again
                raise
            said = error.stderr.strip().splitlines() or [error.text]
            return Waits(f"{self.top} cannot follow: {said[0]}", self.top)
        after("files")
        self._private.replace(self._index)
        after("index")
        return None

    async def retreat(self, old: str, new: str) -> None:
        """Under the lock: take back what was done on the way from old to new; what a person changed since stays his."""
        await self._wait_for_writer()
        index = PrivateIndex(self.host, self.top, self._index, self._private)
        if (problem := await index.begin()) is not None:
            raise Temporary(problem, f"see what is in {self.git_dir}")
        changes = await deltas(index.git, old, new)
        state = await index.state()
        behind = {d.path: d.new for d in changes if state.entries.get(d.path) == d.old}
        ours = await index.same(behind) | {path for path in behind if not os.path.lexists(self.top / path)}
        for delta in changes:
            held = state.entries.get(delta.path)
            if held == delta.new and delta.path not in state.dirty and not self._is_new_file(delta):
                ours.add(delta.path)
        await index.put({d.path: d.old for d in changes if state.entries.get(d.path) == d.new})
        target = await index.git.text("write-tree")
        await index.put({d.path: d.new for d in changes if d.path in ours})
        await index.move(await index.git.text("write-tree"), target)
        self._private.replace(self._index)

    def _is_new_file(self, delta: Delta) -> bool:
        return delta.new is None and os.path.lexists(self.top / delta.path)

    async def _wait_for_writer(self) -> None:
        """A Git command that outlived us may still be writing files; its lock tells."""
        writing = self._private.with_name(f"{self._private.name}.lock")
        waited = 0.0
        while writing.exists() and waited < _PATIENCE:
            await asyncio.sleep(0.05)
            waited += 0.05


async def checkouts(repository: Repository) -> list[tuple[Checkout, str | None]]:
    """All checkouts that are there, each with the branch it is on."""
    found = []
    for entry in await repository.git.worktrees():
        layout = None if entry.bare else find_layout(entry.path)
        if layout is not None:
            found.append((Checkout(repository.git.host, entry.path, layout.git_dir), entry.branch))
    return found


async def checkouts_of(repository: Repository, base: str, but: Collection[Path] = ()) -> list[Checkout] | Waits:
    """The checkouts that have the base branch checked out, `but` for some; or why the branch must not be moved now."""
    left_out = {os.path.realpath(path) for path in but}
    entries = {
        entry.path: entry
        for entry in await repository.git.worktrees()
        if not entry.bare and os.path.realpath(entry.path) not in left_out
    }
    there = [one for one in await checkouts(repository) if one[0].top in entries]
    for checkout, _ in there:
        entries.pop(checkout.top, None)
        if _rebases(checkout.git_dir, base):
            return Waits(f"{base} is being rebased in {checkout.top}", checkout.top)
    for entry in entries.values():
        if entry.branch == base and entry.locked:
            return Waits(f"the locked worktree {entry.path} has {base} checked out, but is not there now", entry.path)
    return [checkout for checkout, branch in there if branch == base]


async def users_of_branch(repository: Repository, branch: str) -> list[Path]:
    """The checkouts that are on a branch or are rebasing it."""
    on_it = [entry.path for entry in await repository.git.worktrees() if entry.branch == branch]
    rebasing = [c.top for c, _ in await checkouts(repository) if _rebases(c.git_dir, branch)]
    return [*on_it, *rebasing]


def _rebases(git_dir: Path, branch: str) -> bool:
    wanted = f"refs/heads/{branch}"
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs"):
        try:
            lines = read_plain(git_dir / name, _LONGEST).decode(errors="surrogateescape").splitlines()
        except OSError as error:
            if short := machine_short(error):
                raise short from None
            continue
        if wanted in lines:
            return True
    return False


async def is_on(checkout: Checkout, branch: str) -> bool:
    """Is the branch checked out there at this moment?"""
    return await Git(checkout.host, checkout.top).current_branch() == branch
