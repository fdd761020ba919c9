"""The daemon's time: that of the machine, except that it never goes back.

What is later has the later time, whatever somebody does to the machine's clock: a fact would otherwise outlive the word that ends it, and
what is due in a second would wait for an hour. Where the machine's clock is put back, this one goes on from where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Call it for the time, in seconds since 1970."""

    def __init__(self, wall: Callable[[], float] | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall or time.time
        self._steady = steady
        self._at = (float("-inf"), steady())

    def __call__(self) -> float:
        last, then = self._at
        steady = self._steady()
        now = max(self._wall(), last + max(0.0, steady - then))
        self._at = (now, steady)
        return now

    def not_before(self, known: float) -> None:
        """It was that late already."""
        self._at = (max(self(), known), self._steady())
