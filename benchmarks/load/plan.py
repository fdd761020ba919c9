"""What is played, and the numbers that come of it."""

from __future__ import annotations

from dataclasses import dataclass

REPOSITORIES = ("acme/one", "acme/two", "acme/three", "acme/four")
SECRET = "s3cret"
CHATTER = 1_000_000
"""Bytes that all agents together print in a second."""
COMMENTS = 60
"""Of the webhooks in a minute, those that tell of a comment on a watched pull request: each must be in the log once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    sessions: int = 200
    viewers: int = 50
    webhooks: int = 1000
    minutes: float = 10.0
    runtime: str = "process"
    stacks: bool = False
    """Write down where the daemon's event loop hangs."""

    @property
    def seconds(self) -> float:
        """How long the load lasts."""
        return self.minutes * 60

    @property
    def pulls(self) -> int:
        """Sessions with an open pull request at the forge; the others only work."""
        return max(1, self.sessions // 10)

    @property
    def comments(self) -> int:
        """Comments in a minute."""
        return min(COMMENTS, self.webhooks)

    @property
    def bytes_each(self) -> int:
        """Bytes that one agent prints in a second."""
        return CHATTER // self.sessions

    @property
    def live(self) -> int:
        """Viewers of the board."""
        return self.viewers - self.events - self.terminals - self.pollers

    @property
    def events(self) -> int:
        """Viewers of the event log."""
        return self.viewers // 5

    @property
    def terminals(self) -> int:
        """Viewers of a terminal each."""
        return min(self.viewers // 5, self.sessions)

    @property
    def pollers(self) -> int:
        """Programs that ask again and again."""
        return self.viewers // 5
