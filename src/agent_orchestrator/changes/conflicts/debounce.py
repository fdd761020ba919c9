"""Decide when to predict again (`Pace`).

A prediction is due once changes have paused, at the latest `LONGEST` seconds after the first change, and never so often that predictions
take most of the time. Pure.
"""

from __future__ import annotations

QUIET = 0.7
"""Seconds without a change after which a prediction is due."""
LONGEST = 4.0
"""Seconds after the first change after which a prediction is due in any case."""
SHARE = 5.0
"""After a prediction, the next one waits at least this many times its duration."""


class Pace:
    """The time of the next prediction; its methods receive what happens and when."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._not_before = 0.0

    def changed(self, now: float) -> None:
        """Record that something changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def began(self) -> None:
        """Record that a prediction begins: it covers all changes so far."""
        self._first = None

    def ended(self, now: float, duration: float) -> None:
        """Record that a prediction is over, and how long it took."""
        self._not_before = now + SHARE * duration

    @property
    def due(self) -> float | None:
        """The time of the next prediction, or None if nothing changed."""
        if self._first is None:
            return None
        return max(min(self._last + QUIET, self._first + LONGEST), self._not_before)
