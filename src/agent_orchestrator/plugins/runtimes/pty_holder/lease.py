"""The lease until which an agent may run, and how the agent and everything it started is killed. The machine's sleep counts as time."""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds after which a process that hangs in the kernel is checked again.
RECHECK_SECONDS = 1
# Seconds that killed processes get to end.
KILL_TIMEOUT = 2.0
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
        """Return whether the deadline has passed, reading the file again first in case it was renewed."""
        if _now() < self.deadline:
            return False
        self._set(_read(self.path))
        return _now() >= self.deadline

    def seconds_left(self) -> float:
        """Return the seconds until the file is to be read again."""
        return (self.deadline - _now()) / 1e9

    def recheck_soon(self) -> None:
        """Schedule another reading of the file after `RECHECK_SECONDS`."""
        self._set(_now() + RECHECK_SECONDS * 1000000000)

    def watch(self) -> None:
        """Set the timer that wakes the holder at the deadline, and become the parent of orphaned descendants of the agent."""
        if self._libc is None:
            return
        timer = self._libc.timerfd_create(_CLOCK, _TFD_FLAGS)
        self.timer = timer if timer >= 0 else None
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._set(self.deadline)

    def die_with_holder(self) -> None:
        """Let the kernel kill the agent's process when the holder dies: nothing else would enforce the deadline. Runs in that process."""
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)

    def _set(self, deadline: int) -> None:
        """Store the deadline and set the timer to it."""
        self.deadline = deadline
        if self.timer is not None and self._libc is not None:
            from ctypes import c_long

            nanoseconds = max(deadline, 1)
            timer_value = (c_long * 4)(0, 0, nanoseconds // 1000000000, nanoseconds % 1000000000)
            self._libc.timerfd_settime(self.timer, _TFD_TIMER_ABSTIME, timer_value, None)


def kill_descendants(agent: int) -> None:
    """Kill the agent and all its descendants. All are stopped first: a stopped process starts nothing new meanwhile."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while new_members := _live_family(agent):
        members = set[int]()
        while new_members:
            for pid in new_members:
                _kill(pid, _signal.SIGSTOP)
            members |= new_members
            new_members = _live_family(agent) - members
        for pid in members:
            _kill(pid, _signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.001)


def _live_family(agent: int) -> set[int]:
    """Return the live processes of the agent's terminal session, and this process's descendants."""
    own_pid = os.getpid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return {agent} if _kill_group_if_alive(agent) else set()
    processes = {int(name): stat for name in names if name.isdigit() and (stat := _process_stat(name))}
    members = {pid for pid, (_, parent, leader) in processes.items() if parent == own_pid or leader == agent}
    while new_members := {pid for pid, (_, parent, _) in processes.items() if parent in members} - members:
        members |= new_members
    return {pid for pid in members if processes[pid][0] not in b"ZX"} - {own_pid}


def _process_stat(pid: str) -> tuple[bytes, int, int] | None:
    """Return a process's state, parent and session leader; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, _, leader = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return state, int(parent), int(leader)


def _kill_group_if_alive(pid: int) -> bool:
    """Return whether the agent lives, on systems without `/proc`; a live one is killed with its process group.

    The agent is a child that is not reaped yet, so its pid is still valid.
    """
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        _kill(-pid, _signal.SIGKILL)
    return ended is None


def _kill(pid: int, number: int) -> None:
    """Send a signal; a process that is gone is no error."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _read(path: str) -> int:
    """Return the deadline in the file; 0, which has passed, if it cannot be read."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _now() -> int:
    """Return the clock of the leases in nanoseconds."""
    return time.clock_gettime_ns(_CLOCK)


def _libc() -> Any:
    """Return the C library, for calls that Python has only since 3.13; None if it does not have them."""
    try:
        from ctypes import CDLL

        library = CDLL(None)
        return library if hasattr(library, "timerfd_create") and hasattr(library, "prctl") else None
    except (ImportError, OSError):
        return None
