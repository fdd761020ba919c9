"""What a set-up made in a checkout, file by file: so that it can be kept, and nothing else.

A later check finds exactly these files again. Whatever else earlier checks left is removed; if they changed or removed one of these,
the checkout is given up. What is kept of a file is its size, times and mode, so looking takes a moment, not a hash of everything.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.checks.results import write_atomically

Seen = tuple[int, int, int, int]
"""Size, time, mode, and the time of the last change, which no program sets; zeroes for a folder."""
_EMPTY_FOLDER: Seen = (0, 0, 0, 0)
_LONGEST = 1 << 30
"""Bytes of the list: some millions of files. What a check runs may write there too."""


def is_ready(beside: Path) -> bool:
    """Has its set-up been finished?"""
    return _file(beside).is_file()


def used_at(beside: Path) -> float:
    """When it was last used."""
    try:
        return _file(beside).stat().st_mtime
    except OSError:
        return 0.0


def touch(beside: Path) -> None:
    """It was used now."""
    _file(beside).touch()


def forget(beside: Path) -> None:
    """It is not ready any more."""
    _file(beside).unlink(missing_ok=True)


async def remember(git: Git, beside: Path) -> None:
    """Write down what is in the checkout beyond the commit's own files."""
    listing = os.fsdecode((await git.run("ls-files", "--stage", "-z")).out).split("\0")
    tracked = {path: about[:6] for about, _, path in (entry.partition("\t") for entry in listing) if path}
    modules = {path for path, mode in tracked.items() if mode == "160000"}
    made: dict[str, Seen] = {}
    _look(beside / "tree", "", modules, made)
    write_atomically(_file(beside), {path: seen for path, seen in made.items() if path not in tracked})


def sweep(beside: Path) -> bool:
    """Remove everything that the set-up did not make; false if what it made is not as it was, or something resists."""
    try:
        wanted: dict[str, tuple[int, ...]] = {
            path: tuple(seen) for path, seen in json.loads(read_plain(_file(beside), _LONGEST)).items()
        }
        return _sweep(beside / "tree", "", wanted) and not wanted
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def _look(folder: Path | str, prefix: str, passed_over: set[str], made: dict[str, Seen]) -> None:
    with os.scandir(folder) as entries:
        listed = [entry for entry in entries if prefix or entry.name != ".git"]
    if prefix and not listed:
        made[prefix.rstrip("/")] = _EMPTY_FOLDER
    for entry in listed:
        path = prefix + entry.name
        if path in passed_over:
            continue
        if entry.is_dir(follow_symlinks=False):
            _look(entry.path, f"{path}/", passed_over, made)
        else:
            made[path] = _seen(entry.stat(follow_symlinks=False))


def _sweep(folder: Path | str, prefix: str, wanted: dict[str, tuple[int, ...]]) -> bool:
    """Takes what it finds in order out of `wanted`; stops at the first file that was changed."""
    with os.scandir(folder) as entries:
        listed = list(entries)
    for entry in listed:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _sweep(entry.path, f"{path}/", wanted):
                return False
            if wanted.pop(path, None) is None:
                _remove_if_empty(entry.path)
        else:
            before = wanted.pop(path, None)
            if before is None:
                os.unlink(entry.path)  # noqa: PTH108 - done for every file there is
            elif before != _seen(entry.stat(follow_symlinks=False)):
                return False
    return True


def _remove_if_empty(folder: str) -> None:
    with os.scandir(folder) as entries:
        if any(True for _ in entries):
            return
    os.rmdir(folder)  # noqa: PTH106


def _seen(status: os.stat_result) -> Seen:
    mode = stat.S_IFMT(status.st_mode) | stat.S_IMODE(status.st_mode)
    # Of a file that has other names too (a package manager's cache) that time says nothing: each new name changes it.
    return status.st_size, status.st_mtime_ns, mode, status.st_ctime_ns if status.st_nlink == 1 else 0


def _file(beside: Path) -> Path:
    return beside / "ready.json"
