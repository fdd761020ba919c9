"""How a cost grows: fits by least squares, and whether that is no worse than it may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

# A tenfold number may cost a quarter more, and the last of a linear cost is not all by its bend: less is noise.
CONSTANT = 0.1
LINEAR = 1.15
BEND = 0.5
ENOUGH = 4  # with three points, or where a cost is not even doubled, a bend and a bad measurement look alike


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost over a number: `base + each · n`, and the exponent of `n` where it is taken for a power of it."""

    base: float
    each: float
    exponent: float
    bend: float

    def is_at_most(self, growth: str) -> bool:
        """Does it grow no worse than so: `constant` or `linear`?"""
        if growth == "constant":
            return self.exponent <= CONSTANT
        if growth == "linear":
            return self.exponent <= LINEAR and self.bend <= BEND
        raise ValueError(f"growth {growth!r} is not known; use constant or linear")


def fit(points: Points, floor: float = 0.0) -> Fit:
    """The fit of measured points; what is below `floor` is the meter's own grain, and counts as that much."""
    if len({number for number, _ in points}) < 2:
        raise ValueError(f"a growth needs two different numbers, and has {list(points)}")
    base, each = line(points)
    return Fit(base, each, exponent(points, floor), bend(points, floor))


def line(points: Points) -> tuple[float, float]:
    """`a` and `b` of `a + b · n`."""
    middle = sum(number for number, _ in points) / len(points)
    height = sum(cost for _, cost in points) / len(points)
    each = sum((number - middle) * (cost - height) for number, cost in points)
    each /= sum((number - middle) ** 2 for number, _ in points)
    return height - each * middle, each


def exponent(points: Points, floor: float = 0.0) -> float:
    """The `p` of `n ** p`, over the points where `n` is not zero."""
    costs = [cost for _, cost in points if cost > 0]
    if not costs:
        return 0.0
    least = max(floor, min(costs) / 10)  # a cost of zero has no logarithm
    logs = [(math.log(number), math.log(max(cost, least))) for number, cost in points if number > 0]
    return line(logs)[1] if len({number for number, _ in logs}) > 1 else 0.0


def bend(points: Points, floor: float = 0.0) -> float:
    """How much of the cost at the greatest number comes from a square of it; 0 where that cannot be told from noise."""
    row = sorted((number, max(cost, floor)) for number, cost in points)
    greatest, top = row[-1]
    if len({number for number, _ in row}) < ENOUGH or top < 2 * row[0][1] or top <= 0:
        return 0.0
    return max(0.0, _square([(number / greatest, cost / top) for number, cost in row]))


def _square(points: Points) -> float:
    """`c` of `a + b · n + c · n²`: what is left of n² and of the cost when each is freed of its line, one over the other."""
    bent = _without_line([(number, number**2) for number, _ in points])
    left = _without_line(points)
    return sum(one * other for one, other in zip(bent, left, strict=True)) / sum(one**2 for one in bent)


def _without_line(points: Points) -> list[float]:
    base, each = line(points)
    return [cost - base - each * number for number, cost in points]
