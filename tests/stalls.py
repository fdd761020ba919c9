"""Run the suite while its processes are stopped at random, each for up to about a second.

A test that checks too early, or a program that relies on being quick, fails here within minutes instead of once in fifty runs. With
`--only daemons` only daemons are stopped, half of the time, so that they lag behind Git, agents and forges. With `--only tests` only
the tests' own processes are, so that they miss short states.

`python -m tests.stalls [--seed N] [--only daemons|tests] [pytest's own arguments]`
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

STOP_INTERVAL = 0.08
"""Seconds between stops."""
STOP_SECONDS = (0.05, 0.1, 0.3, 0.6, 1.2)
"""Durations of a stop in seconds."""
MIN_PROCESSES_PER_STOP = 4
"""At most one process of this many is stopped at a time."""
MEAN_RUN_SECONDS = 0.5
"""Average seconds between two stops of a process, with `--only`."""
SCAN_INTERVAL = 0.4
"""Seconds between scans for processes."""
_ONLY = {
    "daemons": (b"\0agent_orchestrator.daemon\0", b"\0agent_orchestrator.testing.preloaded\0"),
    "tests": (b"exec(eval(sys.stdin.readline()))", b"\0agent_orchestrator\0"),
}
"""Parts of the command lines of `--only`; tests run in workers of pytest-xdist."""
_NEVER_STOPPED = b"\0top\0"
"""Continued after a stop, Textual opens the terminal a second time: `ao top` cannot be stopped like this."""


class SuiteProcesses:
    """The processes with the run's mark in their environment, and their descendants: agents do not get the environment."""

    def __init__(self, mark: str, only: str | None) -> None:
        self._mark = mark.encode()
        self.only = only
        self._inspected: dict[tuple[int, str], tuple[bool, bool]] = {}

    def processes(self) -> list[int]:
        """Return the pids of all processes of the run."""
        parents: dict[int, int] = {}
        marked, left_out = set(), set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    pid = int(entry.name)
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    parents[pid] = int(fields[1])
                    has_mark, is_left_out = self._inspect(entry, (pid, fields[19]))
                    marked |= {pid} if has_mark else set()
                    left_out |= {pid} if is_left_out else set()
        return sorted(pid for pid in parents.keys() - left_out if self._below(pid, parents, marked))

    def _inspect(self, entry: Path, process: tuple[int, str]) -> tuple[bool, bool]:
        """Return whether a process has the mark, and whether it must not be stopped."""
        if process not in self._inspected:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
            is_other = self.only is not None and not any(name in command for name in _ONLY[self.only])
            self._inspected[process] = self._mark in environment, is_other or _NEVER_STOPPED in command
        return self._inspected[process]

    @staticmethod
    def _below(pid: int, parents: dict[int, int], marked: set[int]) -> bool:
        while pid > 1:
            if pid in marked:
                return True
            pid = parents.get(pid, 0)
        return False


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def stall(run: SuiteProcesses, chance: random.Random, tests: subprocess.Popen[bytes]) -> int:
    """Stop processes for a moment until the tests have ended; return the number of stops."""
    stopped: list[tuple[float, int]] = []
    processes: list[int] = []
    last_scan, times = float("-inf"), 0
    while tests.poll() is None:
        now = time.monotonic()
        if now > last_scan + SCAN_INTERVAL:
            processes, last_scan = run.processes(), now
        while stopped and stopped[0][0] <= now:
            _signal(heapq.heappop(stopped)[1], signal.SIGCONT)
        stopped_pids = {pid for _, pid in stopped}
        free = [pid for pid in processes if pid not in stopped_pids]
        if run.only:
            chosen = [pid for pid in free if chance.random() < STOP_INTERVAL / MEAN_RUN_SECONDS]
        else:
            chosen = [chance.choice(free)] if len(processes) > MIN_PROCESSES_PER_STOP * (len(stopped_pids) + 1) else []
        for pid in chosen:
            _signal(pid, signal.SIGSTOP)
            heapq.heappush(stopped, (now + chance.choice(STOP_SECONDS), pid))
            times += 1
        time.sleep(STOP_INTERVAL)
    for _, pid in stopped:
        _signal(pid, signal.SIGCONT)
    return times


def main() -> int:
    """Run the tests and return their exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--only", choices=_ONLY)
    options, rest = parser.parse_known_args()
    mark = f"AO_STALLED_RUN={os.getpid()}"
    tests = subprocess.Popen(["env", mark, sys.executable, "-m", "pytest", *rest])
    times = stall(SuiteProcesses(mark, options.only), random.Random(options.seed), tests)
    sys.stderr.write(f"seed {options.seed}: {times:,} stops\n")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
