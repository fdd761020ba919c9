"""How things are measured: medians of wall time, processes started, CPU and memory of a process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure beside what it must be."""

    name: str
    value: float
    bound: float
    unit: str = "×"
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        """Is it as it must be?"""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> str:
        """As a row of the table."""
        sign = "≥" if self.at_least else "≤"
        mark = "yes" if self.holds else "**no**"
        return (
            f"| {self.name} | {self.value:.4g} {self.unit} | {sign} {self.bound:g} {self.unit} | {mark} | {self.note} |"
        )


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def interleaved(count: int, *works: Callable[[], object]) -> list[float]:
    """Medians of calls made in turns, so that whatever else the machine does strikes them alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(count):
        for row, work in zip(times, works, strict=True):
            row.append(timed(work))
    return [statistics.median(row) for row in times]


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Resident memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def share(values: Sequence[float], part: float) -> float:
    """The value within which such a part of them is."""
    return sorted(values)[max(0, round(part * len(values)) - 1)]


@contextmanager
def children_started(pid: int) -> Iterator[Callable[[], int]]:
    """Counts the processes that a process starts, by the kernel's own account of what it waited for."""

    def faults() -> Sequence[int]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[8]), int(fields[10])  # page faults of children that were waited for: none, no child

    before = faults()
    yield lambda: sum(faults()) - sum(before)
