"""When to look: once changes have paused, soon enough even if they never do, and never so often that looking is all we do. Pure."""

from __future__ import annotations

QUIET = 0.7
"""Seconds without a change after which it is looked."""
LONGEST = 4.0
"""Seconds after the first change after which it is looked in any case."""
SHARE = 5.0
"""So many times as long as a look took, nothing is looked at again."""


class Pace:
    """The time of the next look; told what happens and when."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._not_before = 0.0

    def changed(self, now: float) -> None:
        """Something changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def began(self) -> None:
        """It is looked now: whatever changed so far is seen."""
        self._first = None

    def ended(self, now: float, took: float) -> None:
        """A look is over."""
        self._not_before = now + SHARE * took

    @property
    def due(self) -> float | None:
        """When to look; none: nothing changed."""
        if self._first is None:
            return None
        return max(min(self._last + QUIET, self._first + LONGEST), self._not_before)
