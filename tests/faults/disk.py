"""A disk of its own for each world, which can be full or read-only: a small file system in memory, seen by this process's family alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from pathlib import Path

SIZE = 16 << 30
_PAGE = 4096
_NEW_NAMESPACE = 0x00020000


def possible() -> bool:
    """May file systems be mounted here?"""
    return os.geteuid() == 0 and Path("/proc/self/ns/mnt").exists()


def alone() -> None:
    """From now on what is mounted here is seen by this process and its children only, and goes with them."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    _mount("--make-rprivate", "/")


class Disk:
    """A file system at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=755", "ao-faults", str(folder))
        self._shut: list[Path] = []

    def fill(self, left: int) -> None:
        """Leave so many bytes."""
        now = os.statvfs(self.folder)
        used = (now.f_blocks - now.f_bfree) * now.f_frsize
        for more in (0, 16, 256):  # somebody may be writing this moment
            size = max(used + left + more * _PAGE, _PAGE)
            if _mount("-o", f"remount,size={size}", str(self.folder), check=False):
                return

    def shut(self, part: Path) -> None:
        """Let nothing be written below this folder from now on."""
        _mount("--bind", str(part), str(part))
        self._shut.append(part)
        for _ in range(200):
            if _mount("-o", "remount,bind,ro", str(part), check=False):
                return
            time.sleep(0.005)  # somebody writes this moment

    def mend(self) -> None:
        """Room, and writable again."""
        while self._shut:
            subprocess.run(["umount", "-l", str(self._shut.pop())], check=True, capture_output=True)
        _mount("-o", f"remount,size={SIZE}", str(self.folder))

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.mend()
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)


def _mount(*argv: str, check: bool = True) -> bool:
    return subprocess.run(["mount", *argv], check=check, capture_output=True).returncode == 0
