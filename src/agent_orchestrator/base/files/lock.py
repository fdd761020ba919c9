"""Locks on files that the system lets go with the process, so that none is ever stale."""

from __future__ import annotations

import sys
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt

    def take(file: IO[Any]) -> bool:
        """Have the file for oneself until it is closed; false: somebody else has it."""
        try:
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(0)
        return True

    def is_free(file: IO[Any]) -> bool:
        """Does nobody have it?"""
        if not take(file):
            return False
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        return True

    _FAR = 1 << 30  # a byte that is locked can be read by nobody else: this one is behind all that is written
else:
    import fcntl

    def take(file: IO[Any]) -> bool:
        """Have the file for oneself until it is closed; false: somebody else has it."""
        return _locked(file, fcntl.LOCK_EX)

    def is_free(file: IO[Any]) -> bool:
        """Does nobody have it?"""
        return _locked(file, fcntl.LOCK_SH)

    def _locked(file: IO[Any], how: int) -> bool:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
