"""Samples of a process over time (memory, descriptors, threads, CPU time), and their growth."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import cpu_seconds, resident_megabytes

SAMPLE_INTERVAL = 2.0
WARM_UP_SHARE = 0.3
"""The share of the time that counts as warm-up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The values at one moment."""

    at: float
    memory: float
    descriptors: int
    threads: int
    cpu: float


class ProcessSampler:
    """Samples a process during the block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> ProcessSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            proc = Path(f"/proc/{self._pid}")
            files, threads = (len(list((proc / name).iterdir())) for name in ("fd", "task"))
            self.samples.append(
                Sample(time.time(), resident_megabytes(self._pid), files, threads, cpu_seconds(self._pid))
            )
            if self._stop.wait(SAMPLE_INTERVAL):
                return


def after_warm_up(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points after the warm-up."""
    if not points:
        return []
    begun, ended = points[0][0], points[-1][0]
    return [point for point in points if point[0] >= begun + WARM_UP_SHARE * (ended - begun)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth per minute, fitted by least squares."""
    if len(points) < 2:
        return 0.0
    mean_time = sum(at for at, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    width = sum((at - mean_time) ** 2 for at, _ in points)
    return 60 * sum((at - mean_time) * (value - mean_value) for at, value in points) / width if width else 0.0


def cpu_of_machine() -> tuple[float, float]:
    """Return the seconds that the cores were busy, and their total seconds."""
    import os

    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / tick, sum(fields) / tick
