"""Processes of this machine by their id, and the limit of open files of this one. Light imports: the command line's client uses it."""

from __future__ import annotations

import contextlib
import os
import sys

TARGET_OPEN_FILES = 65536
"""The limit of open files that the daemon sets for itself and its children, where that needs no privileges."""


def is_process_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    if os.name != "posix" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:  # it has just ended, or this system has no /proc
        return not os.path.isdir("/proc/self")
    except PermissionError:
        return True
    except OSError:
        return False


def raise_open_file_limit() -> None:
    """Raise the limit of open files of this process and its children as far as that needs no privileges."""
    if sys.platform == "win32":
        return
    import resource

    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = TARGET_OPEN_FILES if hard_limit == resource.RLIM_INFINITY else min(hard_limit, TARGET_OPEN_FILES)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < new_limit:
        with contextlib.suppress(OSError, ValueError):  # a system may have another, lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))
