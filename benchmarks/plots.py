"""Pictures of a run: how costs grow, how far figures are from what they must be, and the peers beside us."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Duel, Figure, Growth

if TYPE_CHECKING:
    from benchmarks.report import Run

OURS, THEIRS, MUST, INK = "#2563a8", "#c2703d", "#b3261e", "#333333"
COLUMNS = 3
OFF = 2.0  # what is missed by more than twice ends at the picture's edge


def lacking() -> str:
    """What drawing needs and this machine does not have; empty: nothing."""
    return "" if importlib.util.find_spec("matplotlib") else "there is no matplotlib; `make bench` brings it"


def draw(run: Run, folder: Path) -> list[Path]:
    """The pictures for which the run has figures, as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    results = run.results
    growths = [one for one in results if isinstance(one, Growth)]
    figures = [one for one in results if isinstance(one, Figure) and one.bound > 0 and one.value >= 0]
    duels = [one for one in results if isinstance(one, Duel)]
    pictures = {
        "bench-figures.png": _figures(figures) if figures else None,
        "bench-growth.png": _growths(growths) if growths else None,
        "bench-peers.png": _duels(duels) if duels else None,
    }
    drawn = {folder / name: picture for name, picture in pictures.items() if picture is not None}
    for path, picture in drawn.items():
        picture.savefig(path, dpi=110, metadata={"Software": None})
        _pyplot().close(picture)
    return list(drawn)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "text.color": INK})
    return pyplot


def _figures(figures: list[Figure]) -> Any:
    """How much of its bound each figure takes: left of the line is as it must be."""
    picture, axis = _pyplot().subplots(figsize=(9, 0.6 + 0.28 * len(figures)), layout="constrained")
    for place, one in enumerate(reversed(figures)):
        taken = one.bound / max(one.value, 1e-9) if one.at_least else one.value / one.bound
        axis.barh(place, min(taken, OFF), color=OURS if one.holds else MUST, height=0.6)
        if one.stretch and one.stretch > 0:
            hoped = one.bound / one.stretch if one.at_least else one.stretch / one.bound
            axis.plot([hoped, hoped], [place - 0.4, place + 0.4], color=INK, linewidth=1.5)
    axis.axvline(1, color=MUST, linewidth=1)
    axis.set_yticks(range(len(figures)), [_plain(one.name) for one in reversed(figures)])
    axis.margins(y=0.01)
    axis.set_xlabel("share of what it may be (red line: must; short line: stretch)")
    return picture


def _growths(growths: list[Growth]) -> Any:
    """Each cost at its numbers, with the line that fits it."""
    rows = math.ceil(len(growths) / COLUMNS)
    picture, axes = _pyplot().subplots(rows, COLUMNS, figsize=(9, 2.3 * rows), squeeze=False, layout="constrained")
    flat = [axis for row in axes for axis in row]
    for axis in flat[len(growths) :]:
        axis.set_visible(False)
    for axis, one in zip(flat, growths, strict=False):
        law = one.law
        numbers = [many for many, _ in one.points]
        ends = [min(numbers), max(numbers)]
        axis.plot(ends, [law.base + law.each * end for end in ends], color=THEIRS, linewidth=1)
        axis.plot(numbers, [cost for _, cost in one.points], "o", color=OURS, markersize=4)
        axis.set_ylim(bottom=0, top=1.15 * max(max(cost for _, cost in one.points), one.floor) or 1)
        axis.set_title(f"{_plain(one.name)}\n{one.at_most}; n^{law.exponent:.2f}", fontsize=7)
        axis.set_xlabel(one.against)
        axis.set_ylabel(one.unit)
    return picture


def _duels(duels: list[Duel]) -> Any:
    """The peer's cost over ours; an open bar has no end: the peer never did it, or it costs us nothing."""
    picture, axis = _pyplot().subplots(figsize=(9, 0.6 + 0.28 * len(duels)), layout="constrained")
    most = max([one.ratio for one in duels if math.isfinite(one.ratio)] or [10.0])
    for place, one in enumerate(reversed(duels)):
        endless = math.isinf(one.ratio)
        width = 2 * max(most, 10.0) if endless else one.ratio
        axis.barh(place, width, color="none" if endless else OURS, edgecolor=OURS, height=0.6)
        said = "never" if one.theirs is None else f"{one.ratio:.1f} ×" if not endless else f"{one.theirs:.0f} ÷ 0"
        axis.text(width, place, f" {said}", va="center", fontsize=7)
    axis.axvline(1, color=MUST, linewidth=1)
    axis.set_yticks(range(len(duels)), [_plain(f"{one.case} ({one.peer})") for one in reversed(duels)])
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.margins(x=0.1, y=0.01)
    axis.set_xlabel("peer ÷ ours")
    return picture


def _plain(name: str) -> str:
    return textwrap.fill(name.replace("`", "").replace("$", r"\$"), 52, break_on_hyphens=False)
