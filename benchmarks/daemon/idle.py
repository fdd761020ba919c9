"""The daemon while all sessions wait: CPU time, started processes, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import Figure, Growth, Result, children_started, cpu_exact, resident

SECONDS = 20.0
SETTLING = 4.0
"""Seconds after the last change until its effects have ended."""
WARM = 32.0
"""Seconds after its start in which the daemon still does its initial work."""
PRECISION = 0.05
"""Percent of a core below which differences do not count."""
MEMORY = {0: (100.0, 85.0), 200: (150.0, 110.0)}
BUSIEST = 200


class IdleCost:
    """The idle daemon's costs at each number of sessions."""

    def __init__(self) -> None:
        self.pid = 0
        self._since = 0.0
        self.cpu: list[tuple[float, float]] = []
        self.memory: list[tuple[float, float]] = []
        self.started: dict[int, int] = {}

    def set_process(self, pid: int) -> None:
        """Set the daemon's process, which has just started."""
        self.pid, self._since = pid, time.monotonic()

    def measure(self, size: int) -> None:
        """Wait without requests; record CPU time, started processes and memory."""
        time.sleep(max(SETTLING, self._since + WARM - time.monotonic()))
        with children_started(self.pid) as children:
            used, begun = cpu_exact(self.pid), time.monotonic()
            time.sleep(SECONDS)
            used, seconds = cpu_exact(self.pid) - used, time.monotonic() - begun
            self.started[size] = children()
        self.cpu.append((size, 100 * used / seconds))
        self.memory.append((size, resident(self.pid)))

    def results(self) -> Iterator[Result]:
        """Yield all figures."""
        sizes = ", ".join(map(str, self.started))
        busy_count = sum(map(bool, self.started.values()))
        title = f"idle: looks of {SECONDS:g} s in which a subprocess was started"
        yield Figure(title, busy_count, 0, "looks", note=f"one look with {sizes} sessions each", stretch=0)
        cpu = dict(self.cpu)[BUSIEST]
        yield Figure(f"idle: CPU of the daemon, {BUSIEST} sessions", cpu, 1, "%", stretch=0.2)
        yield Growth("idle: CPU of the daemon", "sessions", self.cpu, "%", "constant", floor=PRECISION)
        for size, (must, stretch) in MEMORY.items():
            memory = dict(self.memory)[size]
            yield Figure(f"resident memory of the daemon, {size} sessions", memory, must, "MB", stretch=stretch)
        yield Growth("resident memory of the daemon", "sessions", self.memory, "MB", "linear")
