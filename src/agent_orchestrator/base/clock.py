"""The daemon's time: that of the machine, except that it never goes back.

What is later has the later time, whatever somebody does to the machine's clock: a fact would otherwise outlive the word that ends it, and
what is due in a second would wait for an hour. Where the machine's clock is put back, this one goes on from where it was, a little more
slowly, until the machine's has caught up. A daemon that starts more than `FAR` before the last event (the clock was wrong then) goes by
the machine, and moves what was dated and due by that clock back with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FAR = 3600.0
"""Seconds that a new daemon may be ahead of the machine's clock."""
PACE = 0.9
"""How fast it goes while it is ahead."""


class Clock:
    """Call it for the time, in seconds since 1970."""

    def __init__(self, wall: Callable[[], float] | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall or time.time
        self._steady = steady
        self._at = (float("-inf"), steady())

    def __call__(self) -> float:
        last, then = self._at
        steady = self._steady()
        now = max(self._wall(), last + max(0.0, steady - then) * PACE)
        self._at = (now, steady)
        return now

    def resume(self, known: float) -> float:
        """It was that late already when somebody last looked; returns by how many seconds that was too far ahead to be true."""
        now = self()
        if known - now > FAR:
            return known - now
        self._at = (max(now, known), self._steady())
        return 0.0
