"""A private disk for each world, which can be full or read-only: a file system in memory that only this process tree sees."""

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


def can_mount() -> bool:
    """Return whether file systems can be mounted on this machine."""
    return os.geteuid() == 0 and Path("/proc/self/ns/mnt").exists()


def unshare_mounts() -> None:
    """Enter a mount namespace: later mounts are visible only to this process and its children, and end with them."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    _mount("--make-rprivate", "/")


class PrivateDisk:
    """A file system mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=755", "ao-faults", str(folder))
        self._read_only: list[Path] = []

    def fill(self, left: int) -> None:
        """Reduce the size of the disk so that `left` bytes are free."""
        now = os.statvfs(self.folder)
        used = (now.f_blocks - now.f_bfree) * now.f_frsize
        for more in (0, 16, 256):  # another process may be writing
            size = max(used + left + more * _PAGE, _PAGE)
            if _mount("-o", f"remount,size={size}", str(self.folder), check=False):
                return

    def make_read_only(self, part: Path) -> None:
        """Make a folder read-only."""
        _mount("--bind", str(part), str(part))
        self._read_only.append(part)
        for _ in range(200):
            if _mount("-o", "remount,bind,ro", str(part), check=False):
                return
            time.sleep(0.005)  # a file is open for writing

    def restore(self) -> None:
        """Make everything writable and large again."""
        while self._read_only:
            subprocess.run(["umount", "-l", str(self._read_only.pop())], check=True, capture_output=True)
        _mount("-o", f"remount,size={SIZE}", str(self.folder))

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.restore()
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)


def _mount(*argv: str, check: bool = True) -> bool:
    return subprocess.run(["mount", *argv], check=check, capture_output=True).returncode == 0
