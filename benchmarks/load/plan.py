"""The size of the load, and the numbers derived from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

REPOSITORIES = ("acme/one", "acme/two", "acme/three", "acme/four")
SECRET = "s3cret"
CHATTER_BYTES_PER_SECOND = 1_000_000
"""Bytes per second that all agents print together."""
COMMENTS_PER_MINUTE = 60
"""Webhooks per minute about comments on watched pull requests: each comment must be in the log once."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The size of each part of the load."""

    sessions: int = 200
    viewers: int = 50
    webhooks: int = 1000
    minutes: float = 10.0
    runtime: str = "process"
    stacks: bool = False
    """Record the stacks of the daemon's event loop when it is late."""

    @property
    def seconds(self) -> float:
        """Return the duration of the load."""
        return self.minutes * 60

    @property
    def pulls(self) -> int:
        """Return the number of sessions with an open pull request at the forge."""
        return max(1, self.sessions // 10)

    @property
    def comments(self) -> int:
        """Return the comments per minute."""
        return min(COMMENTS_PER_MINUTE, self.webhooks)

    @property
    def bytes_each(self) -> int:
        """Return the bytes per second that one agent prints."""
        return CHATTER_BYTES_PER_SECOND // self.sessions

    @property
    def live(self) -> int:
        """Return the number of viewers of the board."""
        return self.viewers - self.events - self.terminals - self.pollers

    @property
    def events(self) -> int:
        """Return the number of viewers of the event log."""
        return self.viewers // 5

    @property
    def terminals(self) -> int:
        """Return the number of viewers of terminals."""
        return min(self.viewers // 5, self.sessions)

    @property
    def pollers(self) -> int:
        """Return the number of polling programs."""
        return self.viewers // 5


def random_times(random: Random, per_minute: float, seconds: float) -> Iterator[float]:
    """Yield the seconds after the start at which something happens at random intervals; none if it happens 0 times a minute."""
    due = 0.0
    while per_minute > 0 and due < seconds:
        yield due
        due += random.expovariate(per_minute / 60)
