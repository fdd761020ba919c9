"""Reads, writes and locks files of the user that an agent CLI keeps: follows the user's symlinks, and uses the locks of other
programs.

Agents write in the CLI's own folder, also from a sandbox. A symlink outside of that folder is the user's and is followed; one
inside may have been made by an agent and is followed within that folder only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.base.files import safe
from agent_orchestrator.base.files.safe import UnsafePath

LOCK_TIMEOUT = 12.0
STALE_LOCK_SECONDS = 10.0
"""Seconds after which a lock that was not renewed belongs to a dead process: the convention of npm's `proper-lockfile`."""
MAX_SYMLINKS = 40


def resolve(path: Path, agents: Path) -> Path:
    """Return the real path of a user's file, whether it exists or not; raise `UnsafePath` if a symlink in the folder `agents`
    leads out of it.
    """
    agents_root, current, links, is_in_agents = os.path.realpath(agents), "/", 0, False
    steps = list(Path(os.path.abspath(path)).parts[:0:-1])  # noqa: PTH100 - through no link
    while steps:
        step = steps.pop()
        if step == "..":
            current = os.path.dirname(current)  # noqa: PTH120 - it has no links
            continue
        next_path = os.path.join(current, step)
        try:
            target = os.readlink(next_path)  # noqa: PTH115
        except OSError:
            current = next_path
            continue
        links, is_in_agents = links + 1, is_in_agents or _is_inside(current, agents_root)
        if links > MAX_SYMLINKS:
            raise UnsafePath(f"{path} leads in a circle")
        current = "/" if target.startswith("/") else current
        steps += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    if is_in_agents and not _is_inside(current, agents_root):
        raise UnsafePath(
            f"{path} leads out of {agents}, where agents write, by a symlink: keep the file itself there, or the symlink elsewhere"
        )
    return Path(current)


def _is_inside(path: str, folder: str) -> bool:
    """Return whether a path is the folder or in it."""
    return path == folder or path.startswith(f"{folder}/")


def _locate(path: Path, agents: Path) -> tuple[Path, str]:
    """Return a folder that has no symlinks, and the file's path below it; no step of that path may follow a link, whatever it
    becomes later.
    """
    target, agents_root = resolve(path, agents), os.path.realpath(agents)
    if _is_inside(str(target), agents_root):
        return Path(agents_root), os.path.relpath(target, agents_root)
    return target.parent, target.name


def read(path: Path, agents: Path) -> tuple[bytes, int]:
    """Return a file's content and mode; raise `UnsafePath` if it is a pipe, too long, or leads elsewhere, or `OSError`."""
    with safe.open_below(*_locate(path, agents)) as file:
        return file.read(safe.MAX_FILE_BYTES), os.fstat(file.fileno()).st_mode & 0o777


def write(path: Path, agents: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step behind the user's symlinks; raise what `read` raises."""
    safe.write_atomically(*_locate(path, agents), content, mode)


def read_settings(path: Path) -> bytes:
    """Return the content of a file that is only read, behind any symlink; raise what `read` raises."""
    return safe.read_regular_file(Path(os.path.realpath(path)))


@contextlib.contextmanager
def lock_folder(guarded: Path, patience: float = LOCK_TIMEOUT) -> Iterator[bool]:
    """Hold `<file>.lock`, a folder, as `proper-lockfile` does; yield False if it stayed locked. It blocks, so not for the event loop."""
    lock = guarded.with_name(f"{guarded.name}.lock")
    is_held = _acquire(lock, time.monotonic() + patience)
    try:
        yield is_held
    finally:
        if is_held:
            with contextlib.suppress(OSError):
                lock.rmdir()


def _acquire(lock: Path, deadline: float) -> bool:
    """Create the lock's folder, replacing a stale one; return False after the time `until` or if it cannot be created."""
    while True:
        try:
            lock.mkdir()
            return True
        except FileNotFoundError:
            lock.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if _is_foreign(lock):
                return False
            with contextlib.suppress(OSError):
                if abs(time.time() - lock.lstat().st_mtime) > STALE_LOCK_SECONDS:
                    lock.rmdir()
                    continue
        except OSError:
            return False
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _is_foreign(lock: Path) -> bool:
    """Return whether something else is in the lock's place: locks are empty folders."""
    try:
        with os.scandir(lock) as entries:
            return lock.is_symlink() or any(True for _ in entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True
