"""A checkout's files and index, compared with two commits: what may go from one to the other, and what stands in the way.

Everything here works on a copy of the index. Files are written only by `move`, and only where index and file are exactly what
the commit says that the checkout comes from.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import copy_plain
from agent_orchestrator.base.git.commands import PARALLEL, Git
from agent_orchestrator.base.git.refs import LONGEST_INDEX
from agent_orchestrator.protocols.host import Host

Entry = tuple[str, str] | None
"""Mode and object of a file in a tree or an index; none: it is not in there."""
_SUBMODULE = "160000"
MOST_FOLDERS = 10_000
"""Folders that are looked into where a file is to be: an agent can make them without end."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A path that differs between two commits."""

    path: str
    old: Entry
    new: Entry


@dataclass(frozen=True, slots=True)
class State:
    """What index and files say."""

    entries: Mapping[str, Entry]
    unmerged: frozenset[str]
    hidden: frozenset[str]
    """Git was told not to look at these."""
    dirty: frozenset[str]
    """Files that differ from the index, as far as Git looks."""


async def deltas(git: Git, old: str, new: str) -> tuple[Delta, ...]:
    """All paths that differ between two commits."""
    done = await git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", old, new, timeout=None)
    fields = os.fsdecode(done.out).split("\0")
    found = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        before, after, was, becomes, _ = about.removeprefix(":").split(" ")
        found.append(Delta(path, _entry(before, was), _entry(after, becomes)))
    return tuple(found)


def _entry(mode: str, sha: str) -> Entry:
    return None if mode == "000000" else (mode, sha)


class PrivateIndex:
    """A copy of a checkout's index at `file`, to be tried out and then put in its place."""

    def __init__(self, host: Host, top: Path, original: Path, file: Path) -> None:
        self.git = Git(host, top, {"GIT_INDEX_FILE": str(file)})
        self._top = top
        self._original = original
        self._file = file
        self._probe = file.with_name(f"{file.name}.probe")

    async def begin(self) -> str | None:
        """Make the copy, with the original's times: by them Git tells which files it must read, whose own prove nothing.

        Returns why it cannot be made. Both may lie where an agent writes: no link is followed, and a copy has an end.
        """
        try:
            self.discard()
            await asyncio.to_thread(copy_plain, self._original, self._file, LONGEST_INDEX)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._original} cannot be copied: {error.strerror or error}"
        return None

    def discard(self) -> None:
        """Remove the copy."""
        for name in (self._file, self._probe):
            name.unlink(missing_ok=True)
            name.with_name(f"{name.name}.lock").unlink(missing_ok=True)

    async def state(self) -> State:
        """Look at index and files."""
        await self._refresh(self.git)
        done = await self.git.run("ls-files", "-v", "--stage", "-z", timeout=None)
        entries: dict[str, Entry] = {}
        unmerged, hidden = set(), set()
        for line in filter(None, os.fsdecode(done.out).split("\0")):
            about, _, path = line.partition("\t")
            tag, mode, sha, stage = about.split(" ")
            entries[path] = (mode, sha)
            if stage != "0":
                unmerged.add(path)
            if tag.islower() or tag == "S":
                hidden.add(path)
        return State(entries, frozenset(unmerged), frozenset(hidden), await self._differing(self.git))

    async def obstacles(self, changes: Iterable[Delta], state: State) -> tuple[list[str], dict[str, Entry]]:
        """What keeps the checkout from going from old to new; and what is new already, though the index does not know."""
        if state.unmerged:
            return sorted(state.unmerged), {}
        suspects: dict[str, str] = {}
        changes = tuple(changes)
        hidden = {d.path: d.old for d in changes if d.path in state.hidden and os.path.lexists(self._top / d.path)}
        visible_changes = hidden.keys() - await self.same(hidden)
        for delta in changes:
            held = state.entries.get(delta.path)
            if held == delta.new:
                continue
            if held != delta.old or delta.path in state.dirty or delta.path in visible_changes:
                suspects[delta.path] = delta.path
            elif held is None and (blocking := self._untracked(delta, state.entries)):
                suspects[delta.path] = blocking
        maybe = [d for d in changes if suspects.get(d.path) == d.path and state.entries.get(d.path) == d.old]
        there = await self.same({d.path: d.new for d in maybe})
        adopted = {d.path: d.new for d in maybe if d.path in there}
        return sorted({thing for path, thing in suspects.items() if path not in adopted}), adopted

    def _untracked(self, delta: Delta, entries: Mapping[str, Entry]) -> str | None:
        """The untracked thing at, above or below a path that a file is to be written to."""
        parts = delta.path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            mode = _mode(self._top / above)
            if mode is None:
                return None
            if not stat.S_ISDIR(mode):
                return None if above in entries else above
        mode = _mode(self._top / delta.path)
        if mode is None:
            return None
        if not stat.S_ISDIR(mode):
            return delta.path
        if delta.new and delta.new[0] == _SUBMODULE:
            return None
        return self._untracked_in(delta.path, entries)

    def _untracked_in(self, top: str, entries: Mapping[str, Entry]) -> str | None:
        """An untracked file somewhere in a folder; the folder itself, where nobody can tell."""
        folders = [top]
        for _ in range(MOST_FOLDERS):
            if not folders:
                return None
            folder = folders.pop()
            try:
                with os.scandir(self._top / folder) as found:
                    for one in found:
                        name = f"{folder}/{one.name}"
                        if one.is_dir(follow_symlinks=False):
                            folders.append(name)
                        elif name not in entries:
                            return name
            except FileNotFoundError:
                continue
            except OSError:
                return top
        return top

    async def same(self, wanted: Mapping[str, Entry]) -> set[str]:
        """Those paths whose file in the checkout is exactly this, filters and all; none: nothing is there."""
        absent = {path for path, entry in wanted.items() if entry is None and _mode(self._top / path) is None}
        present = {
            path: entry for path, entry in wanted.items() if entry is not None and _mode(self._top / path) is not None
        }
        if not present:
            return absent
        probe = Git(self.git.host, self._top, {"GIT_INDEX_FILE": str(self._probe)})
        await self._set(probe, present)
        await self._refresh(probe)
        differing = await self._differing(probe)
        self._probe.unlink(missing_ok=True)
        return absent | (present.keys() - differing)

    async def put(self, entries: Mapping[str, Entry]) -> None:
        """Set entries of the copy; files stay as they are."""
        if entries:
            await self._set(self.git, entries)
            await self._refresh(self.git)

    async def move(self, old: str, new: str) -> None:
        """Take files and copy from one commit to the other. Raises `GitFailed`, with nothing changed, if something is in the way."""
        command = ("read-tree", "-m", "-u", "--no-recurse-submodules", old, new)
        await self.git.run(*command, config=(PARALLEL, *self.git.filters()), timeout=None)

    async def _set(self, git: Git, entries: Mapping[str, Entry]) -> None:
        lines = "".join(f"{' '.join(entry)}\t{path}\0" for path, entry in entries.items() if entry)
        gone = "".join(f"{path}\0" for path, entry in entries.items() if not entry)
        await git.run("update-index", "-z", "--force-remove", "--stdin", input=os.fsencode(gone))
        await git.run("update-index", "--add", "-z", "--index-info", input=os.fsencode(lines))

    async def _refresh(self, git: Git) -> None:
        await git.run("update-index", "-q", "--unmerged", "--refresh", config=git.filters(), ok=(0, 1), timeout=None)

    async def _differing(self, git: Git) -> frozenset[str]:
        """Files that differ from an index; a submodule's own state never counts."""
        options = ("-z", "--name-only", "--ignore-submodules=all", "--no-ext-diff")
        done = await git.run("diff-files", *options, config=git.filters(), timeout=None)
        return frozenset(os.fsdecode(name) for name in done.out.split(b"\0") if name)


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
