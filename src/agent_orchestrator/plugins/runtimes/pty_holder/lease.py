"""Until when an agent may run, and how it and everything it started is ended. Sleep of the machine counts."""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds after which one that hangs in the kernel is looked at again.
AGAIN = 1
# Seconds that the killed get to end.
PATIENCE = 2.0
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TFD_FLAGS, _TFD_TIMER_ABSTIME = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0), 1


class Lease:
    """A deadline in a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.deadline = 0
        self.timer: int | None = None
        self._libc = _libc()

    def is_over(self) -> bool:
        """Has the deadline come, and has nobody put it off?"""
        if _now() < self.deadline:
            return False
        self._set(_read(self.path))
        return _now() >= self.deadline

    def left(self) -> float:
        """Seconds until the file is to be read again."""
        return (self.deadline - _now()) / 1e9

    def look_again(self) -> None:
        """Read the file again soon."""
        self._set(_now() + AGAIN * 1000000000)

    def watch(self) -> None:
        """Be woken at the deadline, and get back what leaves its family: orphans become our children, not the system's."""
        if self._libc is None:
            return
        timer = self._libc.timerfd_create(_CLOCK, _TFD_FLAGS)
        self.timer = timer if timer >= 0 else None
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._set(self.deadline)

    def die_with_holder(self) -> None:
        """In the agent's process: without us nobody would watch the deadline."""
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)

    def _set(self, deadline: int) -> None:
        self.deadline = deadline
        if self.timer is not None and self._libc is not None:
            from ctypes import c_long

            at = max(deadline, 1)
            when = (c_long * 4)(0, 0, at // 1000000000, at % 1000000000)
            self._libc.timerfd_settime(self.timer, _TFD_TIMER_ABSTIME, when, None)


def end_family(agent: int) -> None:
    """Kill the agent and all that came of it. All are stopped first: who is stopped starts nothing new meanwhile."""
    until = time.monotonic() + PATIENCE
    while more := _family(agent):
        members = set[int]()
        while more:
            for pid in more:
                _kill(pid, _signal.SIGSTOP)
            members |= more
            more = _family(agent) - members
        for pid in members:
            _kill(pid, _signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(0.001)


def _family(agent: int) -> set[int]:
    """The live processes of the agent's terminal session, and our descendants."""
    ourselves = os.getpid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return {agent} if _lives(agent) else set()
    table = {int(name): stat for name in names if name.isdigit() and (stat := _stat(name))}
    members = {pid for pid, (_, parent, leader) in table.items() if parent == ourselves or leader == agent}
    while more := {pid for pid, (_, parent, _) in table.items() if parent in members} - members:
        members |= more
    return {pid for pid in members if table[pid][0] not in b"ZX"} - {ourselves}


def _stat(pid: str) -> tuple[bytes, int, int] | None:
    """State, parent and session leader."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, _, leader = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return state, int(parent), int(leader)


def _lives(pid: int) -> bool:
    """Where there is no list of processes: a child of ours that nobody has waited for yet may be killed with its group."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        _kill(-pid, _signal.SIGKILL)
    return ended is None


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _read(path: str) -> int:
    """The deadline that stands there; none that can be read is one that has come."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _now() -> int:
    return time.clock_gettime_ns(_CLOCK)


def _libc() -> Any:
    """The C library, for what Python itself has only since 3.13; none where it has no such things."""
    try:
        from ctypes import CDLL

        library = CDLL(None)
        return library if hasattr(library, "timerfd_create") and hasattr(library, "prctl") else None
    except (ImportError, OSError):
        return None
