"""Counts requests to the server by route: how many, with which status, and how long they took. Always active, so it must be cheap."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

DURATION_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds in seconds; longer requests are counted separately."""
UNMATCHED_ROUTE = "other"
"""Stands for all paths that match no route, so that clients cannot create labels."""


class Traffic:
    """Counts of requests by route. A stream counts as answered when it begins."""

    def __init__(self) -> None:
        self.request_counts: Counter[tuple[str, str, int]] = Counter()
        """Method, route and status → number of requests."""
        self.duration_counts: dict[tuple[str, str], list[int]] = {}
        """Method and route → for each bound the number of requests that lasted up to it but longer than the previous bound."""
        self.seconds: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.request_counts[method, route, status] += 1
        key = method, route
        if (counts := self.duration_counts.get(key)) is None:
            counts = self.duration_counts[key] = [0] * (len(DURATION_BOUNDS) + 1)
        counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self.seconds[key] += seconds  # type: ignore[assignment]
