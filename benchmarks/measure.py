"""Kinds of results (figure, growth, duel) and the meters: wall time, processes started, CPU and memory."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import GrowthFit, fit_growth

Spread = tuple[float, float]
MIN_RATIO = 1.0
STRETCH_RATIO = 4.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with its bound and its stretch goal; `why` is the reason why the stretch goal is missed."""

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
        """Return whether the figure is within its bound."""
        return self._reaches(self.bound)

    @property
    def stretches(self) -> bool | None:
        """Return whether the figure reaches its stretch goal, or None without one."""
        return None if self.stretch is None else self._reaches(self.stretch)

    def row(self) -> str:
        """Return the row of the table."""
        sign = "≥" if self.at_least else "≤"
        spread = "" if self.spread is None else f"{format_number(self.spread[0])} – {format_number(self.spread[1])}"
        stretch = "" if self.stretch is None else f"{sign} {format_number(self.stretch)}"
        measured, bound = f"{format_number(self.value)} {self.unit}", f"{sign} {format_number(self.bound)} {self.unit}"
        return _row(self.name, measured, spread, bound, stretch, verdict(self), _note_with_reason(self))

    def _reaches(self, bound: float) -> bool:
        return self.value >= bound if self.at_least else self.value <= bound


@dataclass(frozen=True, slots=True)
class Growth:
    """A cost at several sizes, which may grow `constant` or `linear` at most."""

    name: str
    against: str
    points: Sequence[tuple[float, float]]
    unit: str
    at_most: str
    floor: float = 0.0
    note: str = ""

    @property
    def law(self) -> GrowthFit:
        """Return the fit of the points."""
        return fit_growth(self.points, self.floor)

    @property
    def holds(self) -> bool:
        """Return whether the growth is within its limit."""
        return self.law.is_at_most(self.at_most)

    stretches = None
    why = ""

    def row(self) -> str:
        """Return the row of the table."""
        law = self.law
        sign = "−" if law.each < 0 else "+"
        measured = f"{format_number(law.base)} {sign} {format_number(abs(law.each))} · n {self.unit}"
        point_list = ", ".join(f"{format_number(many)}: {format_number(cost)}" for many, cost in self.points)
        note = f"n {self.against}, as n^{law.exponent:.2f}; {point_list}" + (f"; {self.note}" if self.note else "")
        return _row(f"{self.name}, growth", measured, "", self.at_most, "", verdict(self), note)


@dataclass(frozen=True, slots=True)
class Duel:
    """The cost of the same action for us and for a peer, lower is better; None: never finished within the limit."""

    case: str
    ours: float | None
    peer: str
    theirs: float | None
    note: str = ""
    unit: str = "s"
    why: str = ""

    @property
    def name(self) -> str:
        """Return the case and the peer."""
        return f"{self.case}: {self.peer} ÷ ours"

    @property
    def ratio(self) -> float:
        """Return the peer's cost divided by ours."""
        if self.ours is None:
            return 0.0
        if self.theirs is None:
            return math.inf
        if self.ours == 0:
            return math.inf if self.theirs > 0 else MIN_RATIO
        return self.theirs / self.ours

    @property
    def holds(self) -> bool:
        """Return whether our cost is at most the peer's."""
        return self.ratio >= MIN_RATIO

    @property
    def stretches(self) -> bool:
        """Return whether we are far ahead, or our cost is zero."""
        return self.ratio >= STRETCH_RATIO or self.ours == 0

    def row(self) -> str:
        """Return the row of the table."""
        both = f"{self._amount(self.theirs)} ÷ {self._amount(self.ours)}"
        measured = "∞" if math.isinf(self.ratio) else format_number(self.ratio)
        note = both + (f"; {_note_with_reason(self)}" if _note_with_reason(self) else "")
        return _row(self.name, f"{measured} ×", "", "ahead", f"≥ {STRETCH_RATIO:g}", verdict(self), note)

    def _amount(self, value: float | None) -> str:
        return "never" if value is None else f"{format_number(value)} {self.unit}"


@dataclass(frozen=True, slots=True)
class SkippedResult:
    """A result that this machine cannot measure, and why."""

    name: str
    why: str

    holds = True
    stretches = None

    def row(self) -> str:
        """Return the row of the table."""
        return _row(self.name, "left out", "", "", "", "", self.why)


Result = Figure | Growth | Duel | SkippedResult
Case = Callable[[Path], Iterator[Result]]

TABLE_HEAD = "| figure | measured | spread | must | stretch | holds | note |\n|---|---|---|---|---|---|---|"


def format_number(value: float) -> str:
    """Return a number with about three significant digits, never in exponential notation."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 3 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def verdict(result: Figure | Growth | Duel) -> str:
    """Return the text of the column `holds`."""
    if not result.holds:
        return "**no**"
    return "yes, not stretch" if result.stretches is False else "yes"


def _note_with_reason(result: Figure | Duel) -> str:
    missed = result.stretches is False
    return "; ".join(part for part in (result.note, result.why if missed else "") if part)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at


def time_in_turns(count: int, *works: Callable[[], object]) -> list[list[float]]:
    """Return the times of calls made in turns, so that other load on the machine affects all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(count):
        for row, work in zip(times, works, strict=True):
            row.append(timed(work))
    return times


def median_times_in_turns(count: int, *works: Callable[[], object]) -> list[float]:
    """Return the median times of calls made in turns."""
    return [statistics.median(row) for row in time_in_turns(count, *works)]


def quartiles(values: Sequence[float]) -> Spread:
    """Return the lower and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def ratios(ours: Sequence[float], limit: Sequence[float]) -> tuple[float, Spread]:
    """Return the median and the quartiles of the ratios, turn by turn, of two rows measured in turns."""
    turns = [numerator / denominator for numerator, denominator in zip(ours, limit, strict=True)]
    return statistics.median(turns), quartiles(turns)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, to a tick of the kernel (mostly 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exact_cpu_seconds(pid: int) -> float:
    """Return the CPU time of the current threads of a process, to the nanosecond."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
    return spent / 1e9


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """Return the quantile: the value that this part of the values does not exceed."""
    return sorted(values)[max(0, round(part * len(values)) - 1)]


@contextmanager
def children_started(pid: int) -> Iterator[Callable[[], int]]:
    """Count the processes that a process starts, by the page faults of the children it waited for."""

    def faults() -> Sequence[int]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[8]), int(fields[10])  # page faults of children that were waited for: none, no child

    before = faults()
    yield lambda: sum(faults()) - sum(before)
