"""Pictures of a run: growth of costs, figures relative to their bounds, and the peers' costs relative to ours."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Duel, Figure, Growth

if TYPE_CHECKING:
    from benchmarks.report import BenchmarkRun

OWN_COLOUR, PEER_COLOUR, BOUND_COLOUR, TEXT_COLOUR = "#2563a8", "#c2703d", "#b3261e", "#333333"
COLUMNS = 3
EDGE = 2.0  # what is missed by more than twice ends at the picture's edge


def missing_requirement() -> str:
    """Return what is missing on this machine to draw plots, or an empty string."""
    return "" if importlib.util.find_spec("matplotlib") else "there is no matplotlib; `make bench` brings it"


def draw(run: BenchmarkRun, folder: Path) -> list[Path]:
    """Write the pictures for which the run has figures as PNG files; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    results = run.results
    growths = [result for result in results if isinstance(result, Growth)]
    figures = [result for result in results if isinstance(result, Figure) and result.bound > 0 and result.value >= 0]
    duels = [result for result in results if isinstance(result, Duel)]
    pictures = {
        "bench-figures.png": _figures(figures) if figures else None,
        "bench-growth.png": _growths(growths) if growths else None,
        "bench-peers.png": _duels(duels) if duels else None,
    }
    paths = {folder / name: picture for name, picture in pictures.items() if picture is not None}
    for path, picture in paths.items():
        picture.savefig(path, dpi=110, metadata={"Software": None})
        _pyplot().close(picture)
    return list(paths)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "text.color": TEXT_COLOUR}
    )
    return pyplot


def _figures(figures: list[Figure]) -> Any:
    """Draw each figure as a share of its bound: bars left of the line are within the bound."""
    picture, axis = _pyplot().subplots(figsize=(9, 0.6 + 0.28 * len(figures)), layout="constrained")
    for position, figure in enumerate(reversed(figures)):
        share = figure.bound / max(figure.value, 1e-9) if figure.at_least else figure.value / figure.bound
        axis.barh(position, min(share, EDGE), color=OWN_COLOUR if figure.holds else BOUND_COLOUR, height=0.6)
        if figure.stretch and figure.stretch > 0:
            stretch_share = figure.bound / figure.stretch if figure.at_least else figure.stretch / figure.bound
            axis.plot(
                [stretch_share, stretch_share], [position - 0.4, position + 0.4], color=TEXT_COLOUR, linewidth=1.5
            )
    axis.axvline(1, color=BOUND_COLOUR, linewidth=1)
    axis.set_yticks(range(len(figures)), [_plain(figure.name) for figure in reversed(figures)])
    axis.margins(y=0.01)
    axis.set_xlabel("share of what it may be (red line: must; short line: stretch)")
    return picture


def _growths(growths: list[Growth]) -> Any:
    """Draw each cost at its sizes, with the fitted line."""
    rows = math.ceil(len(growths) / COLUMNS)
    picture, axes = _pyplot().subplots(rows, COLUMNS, figsize=(9, 2.3 * rows), squeeze=False, layout="constrained")
    flat = [axis for row in axes for axis in row]
    for axis in flat[len(growths) :]:
        axis.set_visible(False)
    for axis, growth in zip(flat, growths, strict=False):
        law = growth.law
        numbers = [many for many, _ in growth.points]
        ends = [min(numbers), max(numbers)]
        axis.plot(ends, [law.base + law.each * end for end in ends], color=PEER_COLOUR, linewidth=1)
        axis.plot(numbers, [cost for _, cost in growth.points], "o", color=OWN_COLOUR, markersize=4)
        axis.set_ylim(bottom=0, top=1.15 * max(max(cost for _, cost in growth.points), growth.floor) or 1)
        axis.set_title(f"{_plain(growth.name)}\n{growth.at_most}; n^{law.exponent:.2f}", fontsize=7)
        axis.set_xlabel(growth.against)
        axis.set_ylabel(growth.unit)
    return picture


def _duels(duels: list[Duel]) -> Any:
    """Draw the peer's cost over ours; an open bar is infinite: the peer never finished, or ours costs nothing."""
    picture, axis = _pyplot().subplots(figsize=(9, 0.6 + 0.28 * len(duels)), layout="constrained")
    highest_ratio = max([duel.ratio for duel in duels if math.isfinite(duel.ratio)] or [10.0])
    for position, duel in enumerate(reversed(duels)):
        endless = math.isinf(duel.ratio)
        width = 2 * max(highest_ratio, 10.0) if endless else duel.ratio
        axis.barh(position, width, color="none" if endless else OWN_COLOUR, edgecolor=OWN_COLOUR, height=0.6)
        label = "never" if duel.theirs is None else f"{duel.ratio:.1f} ×" if not endless else f"{duel.theirs:.0f} ÷ 0"
        axis.text(width, position, f" {label}", va="center", fontsize=7)
    axis.axvline(1, color=BOUND_COLOUR, linewidth=1)
    axis.set_yticks(range(len(duels)), [_plain(f"{duel.case} ({duel.peer})") for duel in reversed(duels)])
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.margins(x=0.1, y=0.01)
    axis.set_xlabel("peer ÷ ours")
    return picture


def _plain(name: str) -> str:
    return textwrap.fill(name.replace("`", "").replace("$", r"\$"), 52, break_on_hyphens=False)
