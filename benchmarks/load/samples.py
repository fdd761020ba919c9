"""What a process has over time: memory, descriptors, threads, CPU time; and whether that grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import cpu_seconds, resident

EVERY = 2.0
WARM = 0.3
"""The part of the time that counts as warming up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at: float
    memory: float
    descriptors: int
    threads: int
    cpu: float


class Sampler:
    """Looks at a process as long as the block lasts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.samples: list[Sample] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            proc = Path(f"/proc/{self._pid}")
            files, threads = (len(list((proc / name).iterdir())) for name in ("fd", "task"))
            self.samples.append(Sample(time.time(), resident(self._pid), files, threads, cpu_seconds(self._pid)))
            if self._enough.wait(EVERY):
                return


def settled(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those after the warm-up."""
    if not points:
        return []
    begun, ended = points[0][0], points[-1][0]
    return [point for point in points if point[0] >= begun + WARM * (ended - begun)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Growth in a minute, fitted by least squares."""
    if len(points) < 2:
        return 0.0
    middle = sum(at for at, _ in points) / len(points)
    height = sum(value for _, value in points) / len(points)
    width = sum((at - middle) ** 2 for at, _ in points)
    return 60 * sum((at - middle) * (value - height) for at, value in points) / width if width else 0.0


def cpu_of_machine() -> tuple[float, float]:
    """Seconds that the cores worked, and that they had."""
    import os

    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / tick, sum(fields) / tick
