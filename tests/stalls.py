"""The suite on a machine that is never quite there: processes of the run are stopped at random, each for up to a second or so.

A test that looks too early, or a program that counts on being quick, fails here within minutes instead of once in fifty runs. With
`--only daemons` only these are, half of the time: what Git, the agent or the forge knows is then seldom known to the daemon as well.
With `--only tests` the tests' own processes are: what passes by quickly is seldom seen by them.

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

EVERY = 0.08
"""Seconds from one stop to the next."""
STOPS = (0.05, 0.1, 0.3, 0.6, 1.2)
"""Seconds that one lasts."""
AT_ONCE = 4
"""One in so many is stopped at a time, at most."""
RUNS = 0.5
"""Seconds that a process is let run from one stop to the next, on average, where only some are stopped."""
LOOKED_AT = 0.4
"""Seconds after which it is looked who is there."""
_ONLY = {
    "daemons": (b"\0agent_orchestrator.daemon\0", b"\0agent_orchestrator.testing.preloaded\0"),
    "tests": (b"exec(eval(sys.stdin.readline()))", b"\0agent_orchestrator\0"),
}
"""By what is in their command lines; tests run in workers of pytest-xdist."""
_LEFT_OUT = b"\0top\0"
"""Continued after a stop, Textual opens the terminal a second time: `ao top` cannot be stopped like this."""


class Run:
    """Processes that have the run's mark in their environment, and all that they started: agents do not get the environment."""

    def __init__(self, mark: str, only: str | None) -> None:
        self._mark = mark.encode()
        self.only = only
        self._known: dict[tuple[int, str], tuple[bool, bool]] = {}

    def processes(self) -> list[int]:
        """All of them, now."""
        parents: dict[int, int] = {}
        marked, left_out = set(), set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    pid = int(entry.name)
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    parents[pid] = int(fields[1])
                    has_mark, is_left_out = self._look(entry, (pid, fields[19]))
                    marked |= {pid} if has_mark else set()
                    left_out |= {pid} if is_left_out else set()
        return sorted(pid for pid in parents.keys() - left_out if self._below(pid, parents, marked))

    def _look(self, entry: Path, process: tuple[int, str]) -> tuple[bool, bool]:
        """Whether it has the mark, and whether it is to be left alone."""
        if process not in self._known:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
            is_other = self.only is not None and not any(name in command for name in _ONLY[self.only])
            self._known[process] = self._mark in environment, is_other or _LEFT_OUT in command
        return self._known[process]

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


def stall(run: Run, chance: random.Random, tests: subprocess.Popen[bytes]) -> int:
    """Stop one after the other for a moment until the tests are over; how often."""
    stopped: list[tuple[float, int]] = []
    there: list[int] = []
    looked, times = float("-inf"), 0
    while tests.poll() is None:
        now = time.monotonic()
        if now > looked + LOOKED_AT:
            there, looked = run.processes(), now
        while stopped and stopped[0][0] <= now:
            _signal(heapq.heappop(stopped)[1], signal.SIGCONT)
        held = {pid for _, pid in stopped}
        free = [pid for pid in there if pid not in held]
        if run.only:
            chosen = [pid for pid in free if chance.random() < EVERY / RUNS]
        else:
            chosen = [chance.choice(free)] if len(there) > AT_ONCE * (len(held) + 1) else []
        for pid in chosen:
            _signal(pid, signal.SIGSTOP)
            heapq.heappush(stopped, (now + chance.choice(STOPS), pid))
            times += 1
        time.sleep(EVERY)
    for _, pid in stopped:
        _signal(pid, signal.SIGCONT)
    return times


def main() -> int:
    """Run the tests; their exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--only", choices=_ONLY)
    options, rest = parser.parse_known_args()
    mark = f"AO_STALLED_RUN={os.getpid()}"
    tests = subprocess.Popen(["env", mark, sys.executable, "-m", "pytest", *rest])
    times = stall(Run(mark, options.only), random.Random(options.seed), tests)
    sys.stderr.write(f"seed {options.seed}: {times:,} stops\n")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
