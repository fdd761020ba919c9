"""Files of a runtime that are read once (a launch, a specification, a message), and their removal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

REMOVE_RETRY_SECONDS = 1.0
"""Seconds after which the removal of a file is retried."""


def remove_stale_files(private: Path, kind: str) -> None:
    """Remove one-time files that a killed daemon left; a process that still starts to read one fails completely."""
    for path in private.glob(f"{kind}.*"):
        if path.name.split(".")[1] != str(os.getpid()):
            path.unlink(missing_ok=True)


def remove_one_time_files(private: Path) -> list[Path]:
    """Remove one-time files that nothing will read any more and that their reader could not remove (the disk was read-only).

    Return those that cannot be removed now.
    """
    return remove(path for kind in ("launch", "spec", "message") for path in private.glob(f"{kind}.*"))


def remove_with_retry(paths: Iterable[Path]) -> None:
    """Remove files that hold a message or an environment, retrying until each is removed, however long the disk is read-only."""
    if remaining := remove(paths):
        asyncio.get_running_loop().call_later(REMOVE_RETRY_SECONDS, remove_with_retry, remaining)


def remove(paths: Iterable[Path]) -> list[Path]:
    """Remove files; return those that cannot be removed now."""
    remaining = []
    for path in [*paths]:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            remaining.append(path)
    return remaining
