"""A killed and restarted daemon: the time until it shows all sessions that kept running."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import HTTPConnection
from benchmarks.measure import Figure, Growth, Result, exact_cpu_seconds, quartiles

RESTART_COUNT = 3
FIGURE_SIZE = 200
TIMEOUT = 60.0
BARE_IMPORT = [sys.executable, "-c", "import agent_orchestrator.daemon.__main__"]


class Restarts:
    """Restart times at each number of sessions."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.seconds: dict[int, list[float]] = {}
        self.cpu: dict[int, float] = {}
        self.imports: list[float] = []

    def measure(self, size: int) -> None:
        """Restart the daemon several times, in turns with the import alone."""
        self.seconds[size] = []
        for _ in range(RESTART_COUNT):
            before = _children_cpu()
            subprocess.run(BARE_IMPORT, env=self.box.env, check=True)
            self.imports.append(_children_cpu() - before)
            self.seconds[size].append(self._restart(size))

    def results(self) -> Iterator[Result]:
        """Yield all figures."""
        seconds = self.seconds[FIGURE_SIZE]
        imports = statistics.median(self.imports)
        note = (
            f"from the start of the program to an answer that shows all of them alive; {self.cpu[FIGURE_SIZE]:.2f} s of CPU, "
            f"{imports:.2f} s of these for Python and the imports alone"
        )
        yield Figure(
            f"adoption of {FIGURE_SIZE} sessions at start",
            statistics.median(seconds),
            2,
            "s",
            note=note,
            stretch=0.5,
            spread=quartiles(seconds),
        )
        points = [(float(size), statistics.median(times)) for size, times in self.seconds.items()]
        yield Growth("adoption at start", "sessions", points, "s", "linear")

    def _restart(self, size: int) -> float:
        box = self.box
        agents_before = _live_agents(box)
        box.stop(signal.SIGKILL)
        started_at = time.monotonic()
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(box.start)
            adopted: dict[str, int] | None = None
            while (adopted is None or len(adopted) < size) and time.monotonic() < started_at + TIMEOUT:
                with contextlib.suppress(OSError):  # the daemon does not listen yet
                    adopted = _live_agents(box)
                time.sleep(0.001)
            seconds = time.monotonic() - started_at
            self.cpu[size] = exact_cpu_seconds(started.result())
        if adopted != agents_before:
            raise RuntimeError(
                f"{len(agents_before)} agents ran before the daemon was killed, and {len(adopted or {})} were adopted"
            )
        return seconds


def _children_cpu() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _live_agents(box: Sandbox) -> dict[str, int]:
    """Return the running agents by session, as the daemon lists them; check that their processes exist."""
    with HTTPConnection.unix(box) as line:
        sessions = json.loads(line.get("/api/sessions?all=1")[1])["sessions"]
    agents = {
        str(session["id"]): int(session["pid"])
        for session in sessions
        if session["pid"] and session["status"] != "crashed"
    }
    for pid in agents.values():
        os.kill(pid, 0)
    return agents
