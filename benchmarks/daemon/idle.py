"""The daemon while all sessions wait: CPU time, started processes, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import Figure, Growth, Result, children_started, exact_cpu_seconds, resident_megabytes

SAMPLE_SECONDS = 20.0
SETTLE_SECONDS = 4.0
"""Seconds after the last change until its effects have ended."""
WARM_UP_SECONDS = 32.0
"""Seconds after its start in which the daemon still does its initial work."""
PRECISION_PERCENT = 0.05
"""Percent of a core below which differences do not count."""
MEMORY_BOUNDS_MB = {0: (100.0, 85.0), 200: (150.0, 110.0)}
FIGURE_SIZE = 200


class IdleCost:
    """The idle daemon's costs at each number of sessions."""

    def __init__(self) -> None:
        self.pid = 0
        self._started_at = 0.0
        self.cpu: list[tuple[float, float]] = []
        self.memory: list[tuple[float, float]] = []
        self.started_processes: dict[int, int] = {}

    def set_process(self, pid: int) -> None:
        """Set the daemon's process, which has just started."""
        self.pid, self._started_at = pid, time.monotonic()

    def measure(self, size: int) -> None:
        """Wait without requests; record CPU time, started processes and memory."""
        time.sleep(max(SETTLE_SECONDS, self._started_at + WARM_UP_SECONDS - time.monotonic()))
        with children_started(self.pid) as children:
            used, begun = exact_cpu_seconds(self.pid), time.monotonic()
            time.sleep(SAMPLE_SECONDS)
            used, seconds = exact_cpu_seconds(self.pid) - used, time.monotonic() - begun
            self.started_processes[size] = children()
        self.cpu.append((size, 100 * used / seconds))
        self.memory.append((size, resident_megabytes(self.pid)))

    def results(self) -> Iterator[Result]:
        """Yield all figures."""
        sizes = ", ".join(map(str, self.started_processes))
        busy_count = sum(map(bool, self.started_processes.values()))
        title = f"idle: looks of {SAMPLE_SECONDS:g} s in which a subprocess was started"
        yield Figure(title, busy_count, 0, "looks", note=f"one look with {sizes} sessions each", stretch=0)
        cpu = dict(self.cpu)[FIGURE_SIZE]
        yield Figure(f"idle: CPU of the daemon, {FIGURE_SIZE} sessions", cpu, 1, "%", stretch=0.2)
        yield Growth("idle: CPU of the daemon", "sessions", self.cpu, "%", "constant", floor=PRECISION_PERCENT)
        for size, (must, stretch) in MEMORY_BOUNDS_MB.items():
            memory = dict(self.memory)[size]
            yield Figure(f"resident memory of the daemon, {size} sessions", memory, must, "MB", stretch=stretch)
        yield Growth("resident memory of the daemon", "sessions", self.memory, "MB", "linear")
