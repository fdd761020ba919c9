"""Decide when to predict again (`PredictionSchedule`).

A prediction is due once changes have paused, at the latest `MAX_DELAY_SECONDS` after the first change, and never so often that predictions
take most of the time. Pure.
"""

from __future__ import annotations

QUIET_SECONDS = 0.7
"""Seconds without a change after which a prediction is due."""
MAX_DELAY_SECONDS = 4.0
"""Seconds after the first change after which a prediction is due in any case."""
PAUSE_FACTOR = 5.0
"""After a prediction, the next one waits at least this many times its duration."""


class PredictionSchedule:
    """The time of the next prediction; its methods receive what happens and when."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._not_before = 0.0

    def record_change(self, now: float) -> None:
        """Record that something changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def record_start(self) -> None:
        """Record that a prediction begins: it covers all changes so far."""
        self._first = None

    def record_end(self, now: float, duration: float) -> None:
        """Record that a prediction is over, and how long it took."""
        self._not_before = now + PAUSE_FACTOR * duration

    @property
    def due_at(self) -> float | None:
        """The time of the next prediction, or None if nothing changed."""
        if self._first is None:
            return None
        return max(min(self._last + QUIET_SECONDS, self._first + MAX_DELAY_SECONDS), self._not_before)
