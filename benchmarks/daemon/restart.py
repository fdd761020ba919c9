"""The daemon is killed and started again: how long until it answers with every session that lived on."""

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
from benchmarks.client import Line
from benchmarks.measure import Figure, Growth, Result, cpu_exact, quartiles

TIMES = 3
JUDGED = 200
PATIENCE = 60.0
IMPORT = [sys.executable, "-c", "import agent_orchestrator.daemon.__main__"]


class Restarts:
    """A start with each number of sessions."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.took: dict[int, list[float]] = {}
        self.computed: dict[int, float] = {}
        self.imports: list[float] = []

    def look(self, size: int) -> None:
        """Kill, start, ask; and the import alone in turns with that."""
        self.took[size] = []
        for _ in range(TIMES):
            before = _children()
            subprocess.run(IMPORT, env=self.box.env, check=True)
            self.imports.append(_children() - before)
            self.took[size].append(self._adopted(size))

    def told(self) -> Iterator[Result]:
        """All of it."""
        took = self.took[JUDGED]
        imports = statistics.median(self.imports)
        note = (
            f"from the start of the program to an answer that shows all of them alive; {self.computed[JUDGED]:.2f} s of CPU, "
            f"{imports:.2f} s of these for Python and the imports alone"
        )
        yield Figure(
            f"adoption of {JUDGED} sessions at start",
            statistics.median(took),
            2,
            "s",
            note=note,
            stretch=0.5,
            spread=quartiles(took),
        )
        points = [(float(size), statistics.median(times)) for size, times in self.took.items()]
        yield Growth("adoption at start", "sessions", points, "s", "linear")

    def _adopted(self, size: int) -> float:
        box = self.box
        alive = _alive(box)
        box.stop(signal.SIGKILL)
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(box.start)
            found: dict[str, int] | None = None
            while (found is None or len(found) < size) and time.monotonic() < begun + PATIENCE:
                with contextlib.suppress(OSError):  # nobody listens yet
                    found = _alive(box)
                time.sleep(0.001)
            took = time.monotonic() - begun
            self.computed[size] = cpu_exact(started.result())
        if found != alive:
            raise RuntimeError(
                f"{len(alive)} agents ran before the daemon was killed, and {len(found or {})} were adopted"
            )
        return took


def _children() -> float:
    """CPU time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _alive(box: Sandbox) -> dict[str, int]:
    """The agents that the daemon says run, and really do."""
    with Line.unix(box) as line:
        sessions = json.loads(line.get("/api/sessions?all=1")[1])["sessions"]
    found = {str(one["id"]): int(one["pid"]) for one in sessions if one["pid"] and one["status"] != "crashed"}
    for pid in found.values():
        os.kill(pid, 0)
    return found
