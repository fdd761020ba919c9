"""The daemon's clock: the machine's time, except that it never goes backwards.

Later events always have later times, even if the machine's clock is set back: otherwise a fact would outlive the
event that ends it, and what is due in a second would wait for an hour. After the machine's clock was set back, this
one continues from its last value, a little slower, until the machine's has caught up. If a daemon starts more than
`MAX_AHEAD_SECONDS` before the last event, the clock was wrong at that event: the daemon then follows the machine and moves back
everything that was dated or due by the wrong clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MAX_AHEAD_SECONDS = 3600.0
"""Maximum seconds that a new daemon's clock may be ahead of the machine's."""
CATCH_UP_RATE = 0.9
"""Speed relative to real time while this clock is ahead."""


class SystemClock:
    """A clock that never goes backwards: calling it returns the time, in seconds since 1970."""

    def __init__(self, wall: Callable[[], float] | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall or time.time
        self._steady = steady
        self._last = (float("-inf"), steady())

    def __call__(self) -> float:
        last, last_steady = self._last
        steady = self._steady()
        now = max(self._wall(), last + max(0.0, steady - last_steady) * CATCH_UP_RATE)
        self._last = (now, steady)
        return now

    def monotonic(self) -> float:
        """Return seconds that stand still while the machine sleeps and do not change when its clock is set."""
        return self._steady()

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call something after some seconds in the event loop; return the timer that can cancel it."""
        return asyncio.get_running_loop().call_later(seconds, call)

    def resume(self, last_event_time: float) -> float:
        """Continue from the time of the last event. Return 0, or by how many seconds that time is too far ahead to be true."""
        now = self()
        if last_event_time - now > MAX_AHEAD_SECONDS:
            return last_event_time - now
        self._last = (max(now, last_event_time), self._steady())
        return 0.0
