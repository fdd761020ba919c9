"""Copies of files and folders of the main checkout, by several threads: copy-on-write where the file system can.

A copy has what its original has: content, mode, times and extended attributes; a symlink stays one. Nothing that is there already is
touched, and no symlink is followed. Who interrupts it takes the whole workspace away: the last file may be half written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent_orchestrator.errors import Conflict

if sys.platform == "linux":
    import fcntl

_FICLONE = 0x40049409
_CANNOT = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.ENOSYS}
"""What two file systems answer that will answer so for every other file too."""
_BLOCK = 1 << 20
THREADS = 4
"""They work in the kernel, or wait for the disk, where no lock of Python's is held; more gained nothing."""


class Stopped(Exception):
    """Nobody wants these copies any more."""


class Copier:
    """Copies from a checkout into a workspace; `stop` ends it between two files."""

    def __init__(self, top: Path, workspace: Path, notes: list[str], stop: threading.Event | None = None) -> None:
        self._top, self._real_top = str(top), top.resolve()
        self._workspace, self._real_workspace = str(workspace), workspace.resolve()
        self._notes = notes
        self._stop = stop or threading.Event()
        self._clones = sys.platform == "linux"

    def copy(self, source: Path) -> list[str]:
        """Copy one file, symlink or folder to the same place in the workspace; returns the names of what was made."""
        folder, name = os.path.split(os.path.relpath(source, self._top))
        if source.is_symlink() or not source.is_dir():
            return self._copy_some(folder, [(name, source.is_symlink())])
        with ThreadPoolExecutor(THREADS, "ao-copy") as threads:
            found = self._folders(f"{folder}/{name}" if folder else name)
            works = [threads.submit(self._copy_some, *some) for some in found]
            try:
                return [one for work in works for one in work.result()]
            except BaseException:
                self._stop.set()
                raise

    def _folders(self, start: str) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
        """Each folder with the files and symlinks (true) in it, Git's own left out."""
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            found, below = [], []
            with os.scandir(f"{self._top}/{folder}") as entries:
                for entry in entries:
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        below.append(f"{folder}/{entry.name}")
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.is_symlink()))
            waiting += sorted(below, reverse=True)
            if found:
                yield folder, sorted(found)

    def _copy_some(self, folder: str, entries: list[tuple[str, bool]]) -> list[str]:
        """Copy files and symlinks of one folder."""
        before = f"{folder}/" if folder else ""
        made: list[str] = []
        for name, is_link in entries:
            if self._stop.is_set():
                raise Stopped
            path = before + name
            target = f"{self._workspace}/{path}"
            if os.path.lexists(target) or (is_link and not self._may_be_copied(path)):
                continue
            if not made:
                make_folder(Path(self._workspace, folder), self._real_workspace)
            copy = self._copy_link if is_link else self._copy_file
            if copy(f"{self._top}/{path}", target):
                made.append(path)
        return made

    def _may_be_copied(self, path: str) -> bool:
        """A symlink may not lead out, but to the interpreter of a virtual environment."""
        link = Path(self._top, path)
        if link.resolve().is_relative_to(self._real_top):
            return True
        environment = link.parent.parent / "pyvenv.cfg"
        if link.name.startswith("python") and environment.is_file() and link.readlink().is_absolute():
            return True
        self._notes.append(f"{path} leads out of {self._top}: it was not copied")
        return False

    def _copy_link(self, source: str, target: str) -> bool:
        Path(target).symlink_to(os.readlink(source))  # noqa: PTH115 - Path would tidy the target
        shutil.copystat(source, target, follow_symlinks=False)
        return True

    def _copy_file(self, source: str, target: str) -> bool:
        """False: it is no file, or none any more."""
        try:
            reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            status = os.fstat(reading)
            if not stat.S_ISREG(status.st_mode):
                return False
            writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if not (status.st_size and self._clones and self._clone(reading, writing)):
                    self._write(reading, writing)
                if sys.platform == "linux":
                    _give(reading, writing, status)
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        if sys.platform != "linux":
            shutil.copystat(source, target, follow_symlinks=False)
        return True

    def _clone(self, reading: int, writing: int) -> bool:
        """Let both files have the same blocks until one of them is written to; false: an ordinary copy must do."""
        try:
            fcntl.ioctl(writing, _FICLONE, reading)
        except OSError as error:
            self._clones = error.errno not in _CANNOT
            return False
        return True

    def _write(self, reading: int, writing: int) -> None:
        while block := os.read(reading, _BLOCK):
            if self._stop.is_set():
                raise Stopped
            left = memoryview(block)
            while left:
                left = left[os.write(writing, left) :]


def _give(reading: int, writing: int, status: os.stat_result) -> None:
    """Mode, times and extended attributes, as far as the file system takes them."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(reading):
            with contextlib.suppress(OSError):
                os.setxattr(writing, name, os.getxattr(reading, name))
    os.fchmod(writing, stat.S_IMODE(status.st_mode))
    os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))


def make_folder(folder: Path, workspace: Path) -> None:
    """Make a folder of the workspace, which is given by its real path, and those above it."""
    if not folder.resolve().is_relative_to(workspace):
        raise Conflict(
            f"{folder} would be outside the workspace",
            "the branch has a symlink there; take it out of copy or symlinks",
        )
    folder.mkdir(parents=True, exist_ok=True)
