"""Growth of costs: least-squares fits, and whether a growth is within its limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

# A tenfold number may cost a quarter more, and the last of a linear cost is not all by its bend: less is noise.
MAX_CONSTANT_EXPONENT = 0.1
MAX_LINEAR_EXPONENT = 1.15
MAX_LINEAR_BEND = 0.5
MIN_POINTS = 4  # with three points, or where a cost is not even doubled, a bend and a bad measurement look alike


@dataclass(frozen=True, slots=True)
class GrowthFit:
    """The fit of a cost over a number: `base + each · n`, the exponent of `n` for a power law, and the bend."""

    base: float
    each: float
    exponent: float
    bend: float

    def is_at_most(self, growth: str) -> bool:
        """Return whether the growth is at most `constant` or `linear`."""
        if growth == "constant":
            return self.exponent <= MAX_CONSTANT_EXPONENT
        if growth == "linear":
            return self.exponent <= MAX_LINEAR_EXPONENT and self.bend <= MAX_LINEAR_BEND
        raise ValueError(f"growth {growth!r} is not known; use constant or linear")


def fit_growth(points: Points, floor: float = 0.0) -> GrowthFit:
    """Return the fit of measured points; costs below `floor` count as `floor`, the meter's precision."""
    if len({number for number, _ in points}) < 2:
        raise ValueError(f"a growth needs two different numbers, and has {list(points)}")
    base, each = fit_line(points)
    return GrowthFit(base, each, fit_exponent(points, floor), fit_bend(points, floor))


def fit_line(points: Points) -> tuple[float, float]:
    """Return `a` and `b` of the fitted line `a + b · n`."""
    mean_number = sum(number for number, _ in points) / len(points)
    mean_cost = sum(cost for _, cost in points) / len(points)
    each = sum((number - mean_number) * (cost - mean_cost) for number, cost in points)
    each /= sum((number - mean_number) ** 2 for number, _ in points)
    return mean_cost - each * mean_number, each


def fit_exponent(points: Points, floor: float = 0.0) -> float:
    """Return the fitted `p` of `n ** p`, over the points where `n` is not zero."""
    costs = [cost for _, cost in points if cost > 0]
    if not costs:
        return 0.0
    least = max(floor, min(costs) / 10)  # a cost of zero has no logarithm
    logs = [(math.log(number), math.log(max(cost, least))) for number, cost in points if number > 0]
    return fit_line(logs)[1] if len({number for number, _ in logs}) > 1 else 0.0


def fit_bend(points: Points, floor: float = 0.0) -> float:
    """Return the share of the highest cost that comes from the square of its number; 0 if that may be noise."""
    sorted_points = sorted((number, max(cost, floor)) for number, cost in points)
    greatest, highest_cost = sorted_points[-1]
    if (
        len({number for number, _ in sorted_points}) < MIN_POINTS
        or highest_cost < 2 * sorted_points[0][1]
        or highest_cost <= 0
    ):
        return 0.0
    return max(0.0, _fit_square([(number / greatest, cost / highest_cost) for number, cost in sorted_points]))


def _fit_square(points: Points) -> float:
    """Return the fitted `c` of `a + b · n + c · n²`: the regression of the residuals of the cost on those of n²."""
    square_residuals = _without_line([(number, number**2) for number, _ in points])
    cost_residuals = _without_line(points)
    return sum(square * cost for square, cost in zip(square_residuals, cost_residuals, strict=True)) / sum(
        square**2 for square in square_residuals
    )


def _without_line(points: Points) -> list[float]:
    base, each = fit_line(points)
    return [cost - base - each * number for number, cost in points]
