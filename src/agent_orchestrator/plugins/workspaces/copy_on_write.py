"""Copies files and folders of the main checkout, in several threads: copy-on-write if the file system supports it.

A copy has its original's content, mode, times and extended attributes; a symlink stays one. Nothing that exists already is changed, and
no symlink is followed. A caller that interrupts it must remove the whole workspace: the last file may be half written.
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
_CLONE_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.ENOSYS}
"""Errors that two file systems return for every file if they cannot share blocks."""
_BLOCK = 1 << 20
THREADS = 4
"""They work in the kernel or wait for the disk, without Python's lock; more of them were not faster."""


class CopyStopped(Exception):
    """Raised in a copy that was asked to stop."""


class Copier:
    """Copies from a checkout into a workspace; `stop` ends it between two files."""

    def __init__(self, top: Path, workspace: Path, notes: list[str], stop: threading.Event | None = None) -> None:
        self._top, self._real_top = str(top), top.resolve()
        self._workspace, self._real_workspace = str(workspace), workspace.resolve()
        self._notes = notes
        self._stop = stop or threading.Event()
        self._can_clone = sys.platform == "linux"

    def copy(self, source: Path) -> list[str]:
        """Copy one file, symlink or folder to the same path in the workspace; return the paths of what was made."""
        folder, name = os.path.split(os.path.relpath(source, self._top))
        if source.is_symlink() or not source.is_dir():
            return self._copy_entries(folder, [(name, source.is_symlink())])
        with ThreadPoolExecutor(THREADS, "ao-copy") as threads:
            folders = self._folders(f"{folder}/{name}" if folder else name)
            futures = [threads.submit(self._copy_entries, *folder_entries) for folder_entries in folders]
            try:
                return [path for future in futures for path in future.result()]
            except BaseException:
                self._stop.set()
                raise

    def _folders(self, start: str) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
        """Yield each folder with the files and symlinks (true) in it, without `.git`."""
        pending = [start]
        while pending:
            folder = pending.pop()
            files, subfolders = [], []
            with os.scandir(f"{self._top}/{folder}") as entries:
                for entry in entries:
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        subfolders.append(f"{folder}/{entry.name}")
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        files.append((entry.name, entry.is_symlink()))
            pending += sorted(subfolders, reverse=True)
            if files:
                yield folder, sorted(files)

    def _copy_entries(self, folder: str, entries: list[tuple[str, bool]]) -> list[str]:
        """Copy files and symlinks of one folder; return the paths of those that were made."""
        prefix = f"{folder}/" if folder else ""
        paths: list[str] = []
        for name, is_link in entries:
            if self._stop.is_set():
                raise CopyStopped
            path = prefix + name
            target = f"{self._workspace}/{path}"
            if os.path.lexists(target) or (is_link and not self._may_be_copied(path)):
                continue
            if not paths:
                make_folder(Path(self._workspace, folder), self._real_workspace)
            copy_entry = self._copy_link if is_link else self._copy_file
            if copy_entry(f"{self._top}/{path}", target):
                paths.append(path)
        return paths

    def _may_be_copied(self, path: str) -> bool:
        """Return whether a symlink stays in the checkout, or is the interpreter of a virtual environment; note it if not."""
        link = Path(self._top, path)
        if link.resolve().is_relative_to(self._real_top):
            return True
        environment = link.parent.parent / "pyvenv.cfg"
        if link.name.startswith("python") and environment.is_file() and link.readlink().is_absolute():
            return True
        self._notes.append(f"{path} leads out of {self._top}: it was not copied")
        return False

    def _copy_link(self, source: str, target: str) -> bool:
        """Make the same symlink at the target."""
        Path(target).symlink_to(os.readlink(source))  # noqa: PTH115 - Path would tidy the target
        shutil.copystat(source, target, follow_symlinks=False)
        return True

    def _copy_file(self, source: str, target: str) -> bool:
        """Copy one file; return False if it is no regular file or was removed meanwhile."""
        try:
            source_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            status = os.fstat(source_fd)
            if not stat.S_ISREG(status.st_mode):
                return False
            target_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if not (status.st_size and self._can_clone and self._clone(source_fd, target_fd)):
                    self._write(source_fd, target_fd)
                if sys.platform == "linux":
                    _copy_metadata(source_fd, target_fd, status)
            finally:
                os.close(target_fd)
        finally:
            os.close(source_fd)
        if sys.platform != "linux":
            shutil.copystat(source, target, follow_symlinks=False)
        return True

    def _clone(self, source_fd: int, target_fd: int) -> bool:
        """Let both files share blocks until one of them is written to; return False if an ordinary copy is needed."""
        try:
            fcntl.ioctl(target_fd, _FICLONE, source_fd)
        except OSError as error:
            self._can_clone = error.errno not in _CLONE_UNSUPPORTED
            return False
        return True

    def _write(self, source_fd: int, target_fd: int) -> None:
        """Copy the content block by block. Raises `Stopped` if asked to stop."""
        while block := os.read(source_fd, _BLOCK):
            if self._stop.is_set():
                raise CopyStopped
            remaining = memoryview(block)
            while remaining:
                remaining = remaining[os.write(target_fd, remaining) :]


def _copy_metadata(source_fd: int, target_fd: int, status: os.stat_result) -> None:
    """Copy mode, times and extended attributes, as far as the file system accepts them."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(source_fd):
            with contextlib.suppress(OSError):
                os.setxattr(target_fd, name, os.getxattr(source_fd, name))
    os.fchmod(target_fd, stat.S_IMODE(status.st_mode))
    os.utime(target_fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def make_folder(folder: Path, workspace: Path) -> None:
    """Make a folder of the workspace (given by its real path) and the folders above it. Raises `Conflict` if it is outside."""
    if not folder.resolve().is_relative_to(workspace):
        raise Conflict(
            f"{folder} would be outside the workspace",
            "the branch has a symlink there; take it out of copy or symlinks",
        )
    folder.mkdir(parents=True, exist_ok=True)
