"""What is measured (a figure, a growth, a duel) and how: medians of wall time, processes started, CPU and memory."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import Fit, fit

Spread = tuple[float, float]
AHEAD = 1.0
FAR_AHEAD = 4.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure beside what it must be and what it is hoped to be; `why` tells what keeps it from the latter."""

    name: str
    value: float
    bound: float
    unit: str = "×"
    at_least: bool = False
    note: str = ""
    stretch: float | None = None
    spread: Spread | None = None
    why: str = ""

    @property
    def holds(self) -> bool:
        """Is it as it must be?"""
        return self._reaches(self.bound)

    @property
    def stretches(self) -> bool | None:
        """Is it as it is hoped to be? None where nothing is hoped for."""
        return None if self.stretch is None else self._reaches(self.stretch)

    def row(self) -> str:
        """As a row of the table."""
        sign = "≥" if self.at_least else "≤"
        spread = "" if self.spread is None else f"{number(self.spread[0])} – {number(self.spread[1])}"
        stretch = "" if self.stretch is None else f"{sign} {number(self.stretch)}"
        measured, bound = f"{number(self.value)} {self.unit}", f"{sign} {number(self.bound)} {self.unit}"
        return _row(self.name, measured, spread, bound, stretch, verdict(self), _noted(self))

    def _reaches(self, bound: float) -> bool:
        return self.value >= bound if self.at_least else self.value <= bound


@dataclass(frozen=True, slots=True)
class Growth:
    """A cost at several numbers of something, which must be `constant` or `linear` at most."""

    name: str
    against: str
    points: Sequence[tuple[float, float]]
    unit: str
    at_most: str
    floor: float = 0.0
    note: str = ""

    @property
    def law(self) -> Fit:
        """What it follows."""
        return fit(self.points, self.floor)

    @property
    def holds(self) -> bool:
        """Does it grow no worse than it may?"""
        return self.law.is_at_most(self.at_most)

    stretches = None
    why = ""

    def row(self) -> str:
        """As a row of the table."""
        law = self.law
        sign = "−" if law.each < 0 else "+"
        measured = f"{number(law.base)} {sign} {number(abs(law.each))} · n {self.unit}"
        seen = ", ".join(f"{number(many)}: {number(cost)}" for many, cost in self.points)
        note = f"n {self.against}, as n^{law.exponent:.2f}; {seen}" + (f"; {self.note}" if self.note else "")
        return _row(f"{self.name}, growth", measured, "", self.at_most, "", verdict(self), note)


@dataclass(frozen=True, slots=True)
class Duel:
    """The same thing done by us and by a peer, less being better; None: it was not done within the limit, ever."""

    case: str
    ours: float | None
    peer: str
    theirs: float | None
    note: str = ""
    unit: str = "s"
    why: str = ""

    @property
    def name(self) -> str:
        """What is compared with whom."""
        return f"{self.case}: {self.peer} ÷ ours"

    @property
    def ratio(self) -> float:
        """How many times the peer's cost is ours."""
        if self.ours is None:
            return 0.0
        if self.theirs is None:
            return math.inf
        if self.ours == 0:
            return math.inf if self.theirs > 0 else AHEAD
        return self.theirs / self.ours

    @property
    def holds(self) -> bool:
        """Are we ahead, or level?"""
        return self.ratio >= AHEAD

    @property
    def stretches(self) -> bool:
        """Are we far ahead, or is there nothing left to be saved?"""
        return self.ratio >= FAR_AHEAD or self.ours == 0

    def row(self) -> str:
        """As a row of the table."""
        both = f"{self._amount(self.theirs)} ÷ {self._amount(self.ours)}"
        measured = "∞" if math.isinf(self.ratio) else number(self.ratio)
        note = both + (f"; {_noted(self)}" if _noted(self) else "")
        return _row(self.name, f"{measured} ×", "", "ahead", f"≥ {FAR_AHEAD:g}", verdict(self), note)

    def _amount(self, value: float | None) -> str:
        return "never" if value is None else f"{number(value)} {self.unit}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that this machine cannot measure, and why."""

    name: str
    why: str

    holds = True
    stretches = None

    def row(self) -> str:
        """As a row of the table."""
        return _row(self.name, "left out", "", "", "", "", self.why)


Result = Figure | Growth | Duel | LeftOut
Case = Callable[[Path], Iterator[Result]]

HEAD = "| figure | measured | spread | must | stretch | holds | note |\n|---|---|---|---|---|---|---|"


def number(value: float) -> str:
    """With four digits at most, and never as a power of ten."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 3 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def verdict(result: Figure | Growth | Duel) -> str:
    """The word in the column `holds`."""
    if not result.holds:
        return "**no**"
    return "yes, not stretch" if result.stretches is False else "yes"


def _noted(result: Figure | Duel) -> str:
    missed = result.stretches is False
    return "; ".join(part for part in (result.note, result.why if missed else "") if part)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turns(count: int, *works: Callable[[], object]) -> list[list[float]]:
    """The times of calls made in turns, so that whatever else the machine does strikes them alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(count):
        for row, work in zip(times, works, strict=True):
            row.append(timed(work))
    return times


def interleaved(count: int, *works: Callable[[], object]) -> list[float]:
    """Medians of calls made in turns."""
    return [statistics.median(row) for row in in_turns(count, *works)]


def quartiles(values: Sequence[float]) -> Spread:
    """The values between which the middle half of them is."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def ratios(ours: Sequence[float], limit: Sequence[float]) -> tuple[float, Spread]:
    """Of two rows measured in turns, so that both meet the same machine: the median of the ratios turn by turn, and their quartiles."""
    turns = [one / other for one, other in zip(ours, limit, strict=True)]
    return statistics.median(turns), quartiles(turns)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, in ticks of the kernel (mostly 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_exact(pid: int) -> float:
    """CPU time of all threads that a process has now, to the nanosecond."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
    return spent / 1e9


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
