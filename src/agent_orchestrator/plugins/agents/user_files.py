"""Taking part in the locks by which other programs guard their files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 12.0
STALE_AFTER = 10.0
"""Seconds after which a lock that nobody renewed belongs to a dead process: the convention of npm's `proper-lockfile`."""


@contextlib.contextmanager
def lock_folder(guarded: Path, patience: float = PATIENCE) -> Iterator[bool]:
    """Hold `<file>.lock`, a folder, as `proper-lockfile` does; gives False where it could not be had in time."""
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
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > STALE_AFTER:
                    lock.rmdir()
                    continue
        except OSError:
            return False
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
