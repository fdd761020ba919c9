"""Compare a checkout's files and index with two commits: find what may move from one to the other, and what is in the way.

Everything here works on a copy of the index. Only `move` writes files, and only those whose index entry and content are
exactly those of the old commit.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import copy_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import MAX_INDEX_BYTES
from agent_orchestrator.base.git.settings import PARALLEL_CHECKOUT_CONFIG
from agent_orchestrator.protocols.host import Host

IndexEntry = tuple[str, str] | None
"""Mode and object of a file in a tree or an index; None if it is not in there."""
_SUBMODULE = "160000"
MAX_FOLDERS = 10_000
"""Maximum number of folders that are searched for untracked files, because an agent can create any number of them."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A path that differs between two commits."""

    path: str
    old: IndexEntry
    new: IndexEntry


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of an index and its files."""

    entries: Mapping[str, IndexEntry]
    unmerged: frozenset[str]
    hidden: frozenset[str]
    """Paths that Git is configured not to check (assume-unchanged or skip-worktree)."""
    dirty: frozenset[str]
    """Files that differ from the index, as far as Git checks them."""


async def read_deltas(git: Git, old: str, new: str) -> tuple[Delta, ...]:
    """Return all paths that differ between two commits."""
    result = await git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", old, new, timeout=None)
    fields = os.fsdecode(result.out).split("\0")
    changes = []
    for metadata, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_object, new_object, _ = metadata.removeprefix(":").split(" ")
        changes.append(Delta(path, _make_entry(old_mode, old_object), _make_entry(new_mode, new_object)))
    return tuple(changes)


def _make_entry(mode: str, sha: str) -> IndexEntry:
    """Return mode and object as an entry, or None for an absent file."""
    return None if mode == "000000" else (mode, sha)


class PrivateIndex:
    """A copy of a checkout's index at `file`, to be changed and then put in place of the original."""

    def __init__(self, host: Host, top: Path, original: Path, file: Path) -> None:
        self.git = Git(host, top, {"GIT_INDEX_FILE": str(file)})
        self._folder = top
        self._original = original
        self._file = file
        self._probe = file.with_name(f"{file.name}.probe")

    async def copy_original(self) -> str | None:
        """Make the copy, and return why it cannot be made, or None.

        The copy gets the original's times, because Git decides by them which files it must read. Both files may lie in
        a folder that an agent can write to: no link is followed, and the size is limited.
        """
        try:
            self.discard()
            await asyncio.to_thread(copy_regular_file, self._original, self._file, MAX_INDEX_BYTES)
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

    async def state(self) -> IndexState:
        """Return the state of the index and the files."""
        await self._refresh(self.git)
        result = await self.git.run("ls-files", "-v", "--stage", "-z", timeout=None)
        entries: dict[str, IndexEntry] = {}
        unmerged, hidden = set(), set()
        for line in filter(None, os.fsdecode(result.out).split("\0")):
            metadata, _, path = line.partition("\t")
            tag, mode, sha, stage = metadata.split(" ")
            entries[path] = (mode, sha)
            if stage != "0":
                unmerged.add(path)
            if tag.islower() or tag == "S":
                hidden.add(path)
        return IndexState(entries, frozenset(unmerged), frozenset(hidden), await self._differing_files(self.git))

    async def obstacles(self, changes: Iterable[Delta], state: IndexState) -> tuple[list[str], dict[str, IndexEntry]]:
        """Return the paths that block the move from old to new, and the entries whose files are new already.

        The index does not have the latter entries yet.
        """
        if state.unmerged:
            return sorted(state.unmerged), {}
        suspects: dict[str, str] = {}
        changes = tuple(changes)
        hidden = {
            change.path: change.old
            for change in changes
            if change.path in state.hidden and os.path.lexists(self._folder / change.path)
        }
        visible_changes = hidden.keys() - await self.matching_paths(hidden)
        for delta in changes:
            current_entry = state.entries.get(delta.path)
            if current_entry == delta.new:
                continue
            if current_entry != delta.old or delta.path in state.dirty or delta.path in visible_changes:
                suspects[delta.path] = delta.path
            elif current_entry is None and (blocking := self._find_untracked(delta, state.entries)):
                suspects[delta.path] = blocking
        candidates = [
            change
            for change in changes
            if suspects.get(change.path) == change.path and state.entries.get(change.path) == change.old
        ]
        present = await self.matching_paths({change.path: change.new for change in candidates})
        adopted = {change.path: change.new for change in candidates if change.path in present}
        return sorted({obstacle for path, obstacle in suspects.items() if path not in adopted}), adopted

    def _find_untracked(self, delta: Delta, entries: Mapping[str, IndexEntry]) -> str | None:
        """Return the untracked file at, above or below the path of a file to be written, or None."""
        parts = delta.path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            mode = _mode_of(self._folder / above)
            if mode is None:
                return None
            if not stat.S_ISDIR(mode):
                return None if above in entries else above
        mode = _mode_of(self._folder / delta.path)
        if mode is None:
            return None
        if not stat.S_ISDIR(mode):
            return delta.path
        if delta.new and delta.new[0] == _SUBMODULE:
            return None
        return self._find_untracked_in(delta.path, entries)

    def _find_untracked_in(self, top: str, entries: Mapping[str, IndexEntry]) -> str | None:
        """Return an untracked file in a folder or below it, or None; the folder itself if it cannot be searched."""
        folders = [top]
        for _ in range(MAX_FOLDERS):
            if not folders:
                return None
            folder = folders.pop()
            try:
                with os.scandir(self._folder / folder) as entries_found:
                    for dir_entry in entries_found:
                        name = f"{folder}/{dir_entry.name}"
                        if dir_entry.is_dir(follow_symlinks=False):
                            folders.append(name)
                        elif name not in entries:
                            return name
            except FileNotFoundError:
                continue
            except OSError:
                return top
        return top

    async def matching_paths(self, entries: Mapping[str, IndexEntry]) -> set[str]:
        """Return those paths whose file in the checkout equals the entry after Git's filters; for None, those without a file."""
        absent = {path for path, entry in entries.items() if entry is None and _mode_of(self._folder / path) is None}
        present = {
            path: entry
            for path, entry in entries.items()
            if entry is not None and _mode_of(self._folder / path) is not None
        }
        if not present:
            return absent
        probe = Git(self.git.host, self._folder, {"GIT_INDEX_FILE": str(self._probe)})
        await self._set_entries(probe, present)
        await self._refresh(probe)
        differing = await self._differing_files(probe)
        self._probe.unlink(missing_ok=True)
        return absent | (present.keys() - differing)

    async def put(self, entries: Mapping[str, IndexEntry]) -> None:
        """Set entries of the copy; files stay as they are."""
        if entries:
            await self._set_entries(self.git, entries)
            await self._refresh(self.git)

    async def move(self, old: str, new: str) -> None:
        """Move files and copy from one commit to the other.

        Raises `GitFailed`, with nothing changed, if something is in the way.
        """
        command = ("read-tree", "-m", "-u", "--no-recurse-submodules", old, new)
        await self.git.run(*command, config=(PARALLEL_CHECKOUT_CONFIG, *self.git.missing_lfs_config()), timeout=None)

    async def _set_entries(self, git: Git, entries: Mapping[str, IndexEntry]) -> None:
        """Set and remove entries of an index."""
        lines = "".join(f"{' '.join(entry)}\t{path}\0" for path, entry in entries.items() if entry)
        removed_paths = "".join(f"{path}\0" for path, entry in entries.items() if not entry)
        await git.run("update-index", "-z", "--force-remove", "--stdin", input=os.fsencode(removed_paths))
        await git.run("update-index", "--add", "-z", "--index-info", input=os.fsencode(lines))

    async def _refresh(self, git: Git) -> None:
        """Update the file times in an index."""
        await git.run(
            "update-index", "-q", "--unmerged", "--refresh", config=git.missing_lfs_config(), ok=(0, 1), timeout=None
        )

    async def _differing_files(self, git: Git) -> frozenset[str]:
        """Return the files that differ from an index; a submodule's own state never counts."""
        options = ("-z", "--name-only", "--ignore-submodules=all", "--no-ext-diff")
        result = await git.run("diff-files", *options, config=git.missing_lfs_config(), timeout=None)
        return frozenset(os.fsdecode(name) for name in result.out.split(b"\0") if name)


def _mode_of(path: Path) -> int | None:
    """Return a file's mode, or None if there is no file."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
