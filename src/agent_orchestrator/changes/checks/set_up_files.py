"""Remember the files that a set-up created in a checkout, so that exactly these are kept for later checks.

A later check gets exactly these files. Other files that earlier checks left are removed; if a check changed or removed one of these files,
the checkout is discarded. Only size, times and mode of a file are stored, so a comparison takes a moment and hashes nothing.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.checks.results import write_json

Fingerprint = tuple[int, int, int, int]
"""Size, modification time, mode, and the change time, which no program can set; zeroes for a folder."""
_EMPTY_FOLDER: Fingerprint = (0, 0, 0, 0)
_MAX_LIST_SIZE = 1 << 30
"""Maximum size of the list in bytes, enough for millions of files. The limit is needed because a check can write this file too."""


def is_ready(folder: Path) -> bool:
    """Return whether the set-up of a checkout is finished."""
    return _list_file(folder).is_file()


def last_used_at(folder: Path) -> float:
    """Return when a checkout was last used, as a Unix timestamp; 0.0 if its set-up is not finished."""
    try:
        return _list_file(folder).stat().st_mtime
    except OSError:
        return 0.0


def mark_used(folder: Path) -> None:
    """Record that a checkout is used now."""
    _list_file(folder).touch()


def mark_not_ready(folder: Path) -> None:
    """Mark a checkout as not ready."""
    _list_file(folder).unlink(missing_ok=True)


async def record_set_up_files(git: Git, folder: Path) -> None:
    """Record the files in the checkout that are not part of the commit."""
    listing = os.fsdecode((await git.run("ls-files", "--stage", "-z")).out).split("\0")
    tracked = {path: details[:6] for details, _, path in (entry.partition("\t") for entry in listing) if path}
    submodules = {path for path, mode in tracked.items() if mode == "160000"}
    files: dict[str, Fingerprint] = {}
    _collect_files(folder / "tree", "", submodules, files)
    write_json(_list_file(folder), {path: fingerprint for path, fingerprint in files.items() if path not in tracked})


def remove_other_files(folder: Path) -> bool:
    """Remove everything that the set-up did not create.

    Return False if a file of the set-up was changed or removed, or if something cannot be read or removed.
    """
    try:
        remaining: dict[str, tuple[int, ...]] = {
            path: tuple(fingerprint)
            for path, fingerprint in json.loads(read_regular_file(_list_file(folder), _MAX_LIST_SIZE)).items()
        }
        return _sweep_folder(folder / "tree", "", remaining) and not remaining
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def _collect_files(folder: Path | str, prefix: str, skipped_paths: set[str], files: dict[str, Fingerprint]) -> None:
    """Add the files below a folder, and its empty folders, to `files` with their fingerprints."""
    with os.scandir(folder) as entries:
        children = [entry for entry in entries if prefix or entry.name != ".git"]
    if prefix and not children:
        files[prefix.rstrip("/")] = _EMPTY_FOLDER
    for entry in children:
        path = prefix + entry.name
        if path in skipped_paths:
            continue
        if entry.is_dir(follow_symlinks=False):
            _collect_files(entry.path, f"{path}/", skipped_paths, files)
        else:
            files[path] = _fingerprint(entry.stat(follow_symlinks=False))


def _sweep_folder(folder: Path | str, prefix: str, remaining: dict[str, tuple[int, ...]]) -> bool:
    """Remove unlisted files below a folder and delete unchanged ones from `remaining`; return False at the first changed file."""
    with os.scandir(folder) as entries:
        children = list(entries)
    for entry in children:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _sweep_folder(entry.path, f"{path}/", remaining):
                return False
            if remaining.pop(path, None) is None:
                _remove_if_empty(entry.path)
        else:
            recorded = remaining.pop(path, None)
            if recorded is None:
                os.unlink(entry.path)  # noqa: PTH108 - done for every file there is
            elif recorded != _fingerprint(entry.stat(follow_symlinks=False)):
                return False
    return True


def _remove_if_empty(folder: str) -> None:
    """Remove a folder if it is empty."""
    with os.scandir(folder) as entries:
        if any(True for _ in entries):
            return
    os.rmdir(folder)  # noqa: PTH106


def _fingerprint(status: os.stat_result) -> Fingerprint:
    """Return the fingerprint of a file."""
    mode = stat.S_IFMT(status.st_mode) | stat.S_IMODE(status.st_mode)
    # Ignore the change time of a file with several hard links (a package manager's cache): each new link changes it.
    return status.st_size, status.st_mtime_ns, mode, status.st_ctime_ns if status.st_nlink == 1 else 0


def _list_file(folder: Path) -> Path:
    """Return the file with the list of a checkout's set-up files."""
    return folder / "ready.json"
