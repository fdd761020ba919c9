"""What the daemon does while all sessions wait: CPU time, processes that it starts, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import Figure, Growth, Result, children_started, cpu_exact, resident

SECONDS = 20.0
SETTLING = 4.0
"""Seconds after the last change in which what it caused comes to its end."""
WARM = 32.0
"""Seconds after its start in which the daemon still puts itself in order, once."""
GRAIN = 0.05
"""Per cent of a core below which one is as good as another."""
MEMORY = {0: (100.0, 85.0), 200: (150.0, 110.0)}
BUSIEST = 200


class Idle:
    """The daemon at each size."""

    def __init__(self) -> None:
        self.pid = 0
        self._since = 0.0
        self.used: list[tuple[float, float]] = []
        self.held: list[tuple[float, float]] = []
        self.started: dict[int, int] = {}

    def started_as(self, pid: int) -> None:
        """It runs, since this moment, as this process."""
        self.pid, self._since = pid, time.monotonic()

    def look(self, size: int) -> None:
        """Leave it alone, and see what it did."""
        time.sleep(max(SETTLING, self._since + WARM - time.monotonic()))
        with children_started(self.pid) as children:
            used, begun = cpu_exact(self.pid), time.monotonic()
            time.sleep(SECONDS)
            used, took = cpu_exact(self.pid) - used, time.monotonic() - begun
            self.started[size] = children()
        self.used.append((size, 100 * used / took))
        self.held.append((size, resident(self.pid)))

    def told(self) -> Iterator[Result]:
        """All of it."""
        sizes = ", ".join(map(str, self.started))
        busy = sum(map(bool, self.started.values()))
        title = f"idle: looks of {SECONDS:g} s in which a subprocess was started"
        yield Figure(title, busy, 0, "looks", note=f"one look with {sizes} sessions each", stretch=0)
        used = dict(self.used)[BUSIEST]
        yield Figure(f"idle: CPU of the daemon, {BUSIEST} sessions", used, 1, "%", stretch=0.2)
        yield Growth("idle: CPU of the daemon", "sessions", self.used, "%", "constant", floor=GRAIN)
        for size, (must, stretch) in MEMORY.items():
            held = dict(self.held)[size]
            yield Figure(f"resident memory of the daemon, {size} sessions", held, must, "MB", stretch=stretch)
        yield Growth("resident memory of the daemon", "sessions", self.held, "MB", "linear")
