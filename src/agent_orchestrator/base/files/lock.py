"""Locks on files that the system releases when the process ends, so that none is ever stale."""

from __future__ import annotations

import sys
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: IO[Any]) -> bool:
        """Lock the file until it is closed; return whether that worked, False if another process has locked it."""
        try:
            file.seek(_LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(0)
        return True

    def is_free(file: IO[Any]) -> bool:
        """Return whether no other process has locked the file."""
        if not try_lock(file):
            return False
        file.seek(_LOCKED_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        return True

    _LOCKED_BYTE = 1 << 30  # a locked byte cannot be read by other processes: this one is behind all content
else:
    import fcntl

    def try_lock(file: IO[Any]) -> bool:
        """Lock the file until it is closed; return whether that worked, False if another process has locked it."""
        return _lock(file, fcntl.LOCK_EX)

    def is_free(file: IO[Any]) -> bool:
        """Return whether no other process has locked the file."""
        return _lock(file, fcntl.LOCK_SH)

    def _lock(file: IO[Any], operation: int) -> bool:
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
