"""Files of the user's that an agent CLI keeps: where they are through his symlinks, and the locks by which other programs guard them.

Agents write in the CLI's own folder, also from a sandbox. A symlink that stands outside of it is the user's, and is followed; one that
stands in it may be an agent's, and is followed within that folder only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.base.files import safe
from agent_orchestrator.base.files.safe import NotPlain

PATIENCE = 12.0
STALE_AFTER = 10.0
"""Seconds after which a lock that nobody renewed belongs to a dead process: the convention of npm's `proper-lockfile`."""
MOST_LINKS = 40


def followed(path: Path, agents: Path) -> Path:
    """The real place of a user's file, be it there or not; raises `NotPlain` where a symlink in the folder `agents` leads out of it."""
    kept, here, links, theirs = os.path.realpath(agents), "/", 0, False
    steps = list(Path(os.path.abspath(path)).parts[:0:-1])  # noqa: PTH100 - through no link
    while steps:
        step = steps.pop()
        if step == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - it has no links
            continue
        there = os.path.join(here, step)
        try:
            target = os.readlink(there)  # noqa: PTH115
        except OSError:
            here = there
            continue
        links, theirs = links + 1, theirs or _inside(here, kept)
        if links > MOST_LINKS:
            raise NotPlain(f"{path} leads in a circle")
        here = "/" if target.startswith("/") else here
        steps += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    if theirs and not _inside(here, kept):
        raise NotPlain(
            f"{path} leads out of {agents}, where agents write, by a symlink: keep the file itself there, or the symlink elsewhere"
        )
    return Path(here)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _place(path: Path, agents: Path) -> tuple[Path, str]:
    """A folder that leads nowhere else, and the file's name below it: no step of that follows a link, whatever becomes of it."""
    target, kept = followed(path, agents), os.path.realpath(agents)
    if _inside(str(target), kept):
        return Path(kept), os.path.relpath(target, kept)
    return target.parent, target.name


def read(path: Path, agents: Path) -> tuple[bytes, int]:
    """What is in a file, and its mode; raises `NotPlain` for a pipe, what is too long, or leads elsewhere; or the system's own error."""
    with safe.opened(*_place(path, agents)) as file:
        return file.read(safe.LONGEST), os.fstat(file.fileno()).st_mode & 0o777


def write(path: Path, agents: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step, in its place behind the user's symlinks; raises what `read` raises."""
    safe.put(*_place(path, agents), content, mode)


def read_settings(path: Path) -> bytes:
    """What is in a file that is only looked at, behind whatever symlink; raises as `read` does."""
    return safe.read_plain(Path(os.path.realpath(path)))


@contextlib.contextmanager
def lock_folder(guarded: Path, patience: float = PATIENCE) -> Iterator[bool]:
    """Hold `<file>.lock`, a folder, as `proper-lockfile` does; gives False where it could not be had in time. Waits: not for the loop."""
    lock = guarded.with_name(f"{guarded.name}.lock")
    held = _take(lock, time.monotonic() + patience)
    try:
        yield held
    finally:
        if held:
            with contextlib.suppress(OSError):
                lock.rmdir()


def _take(lock: Path, until: float) -> bool:
    while True:
        try:
            lock.mkdir()
            return True
        except FileNotFoundError:
            lock.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if _no_lock(lock):
                return False
            with contextlib.suppress(OSError):
                if abs(time.time() - lock.lstat().st_mtime) > STALE_AFTER:
                    lock.rmdir()
                    continue
        except OSError:
            return False
        if time.monotonic() > until:
            return False
        time.sleep(0.02)


def _no_lock(lock: Path) -> bool:
    """Is something there that none of these programs makes, nor will remove? Theirs are empty folders."""
    try:
        with os.scandir(lock) as entries:
            return lock.is_symlink() or any(True for _ in entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True
