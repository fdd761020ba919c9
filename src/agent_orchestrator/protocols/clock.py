"""`Clock`: the only way in which code that a test may want to control asks for the time.

Parts of the daemon have it as `self.clock`. What only needs the time has a parameter `clock: Callable[[], float]`, for which a clock
may be passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Sleep = Callable[[float], Awaitable[None]]


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Prevent the scheduled call."""
        ...


class Clock(Protocol):
    """Provides the time and schedules calls; a test supplies one that it moves by hand, so that it needs no sleeping."""

    def __call__(self) -> float:
        """Return the time in seconds since 1970; it never goes backwards."""
        ...

    def monotonic(self) -> float:
        """Return seconds that stand still while the machine sleeps and do not change when its clock is set."""
        ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call something after some seconds; return the timer that can cancel it."""
        ...
