"""What the server was asked, by route: how often, with which answer, and how long that took. Always counted, so it must cost nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds; what took longer than the last is counted beside."""
UNKNOWN = "other"
"""Stands for every path that no route answers, so that nobody can make up routes."""


class Traffic:
    """Requests by route. A stream counts as answered when it begins."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        """Method, route and status → how many."""
        self.took: dict[tuple[str, str], list[int]] = {}
        """Method and route → how many took up to each of the bounds and no less."""
        self.seconds: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One more was answered."""
        self.answers[method, route, status] += 1
        key = method, route
        if (counts := self.took.get(key)) is None:
            counts = self.took[key] = [0] * (len(BOUNDS) + 1)
        counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds[key] += seconds  # type: ignore[assignment]
