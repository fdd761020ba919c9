"""Which receivers do not take what they are sent, since when, and when they are tried again.

It is told once, by an event, that a notifier fails, and once that it works again: what the log says last is where a new daemon begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.outbox import pause
from agent_orchestrator.errors import AoError

FIRST, MOST = 10.0, 900.0
"""Seconds between two attempts at a receiver that fails: at first, and at most."""
TOLD_AFTER = 2
"""Failures in a row of the kind that mostly passes by itself before somebody is told."""


@dataclass(slots=True)
class Trouble:
    """A receiver that fails."""

    notifier: str
    project: str
    since: float
    error: str = ""
    remedy: str = ""
    failures: int = 0
    until: float = 0.0
    """It is left alone before."""
    told: bool = False


class Health:
    """How receivers are."""

    def __init__(self, jitter: Callable[[], float] | None = None) -> None:
        self._troubles: dict[str, Trouble] = {}
        self._jitter = jitter

    def recall(self, events: Sequence[Event]) -> None:
        """Go on from what the log says, oldest first."""
        for event in events:
            body = event.body
            if isinstance(body, e.NotifierFailing):
                trouble = Trouble(body.notifier, event.project or "", event.time, body.error, body.remedy, told=True)
                self._troubles[body.receiver] = trouble
            elif isinstance(body, e.NotifierRecovered):
                self._troubles.pop(body.receiver, None)

    def left_alone(self, receiver: str, now: float) -> float:
        """Until when a receiver is not to be tried; 0: it may be."""
        trouble = self._troubles.get(receiver)
        return trouble.until if trouble and now < trouble.until <= now + MOST * 4 else 0.0

    def failed(
        self, notifier: str, receiver: str, project: str, error: AoError, now: float
    ) -> e.NotifierFailing | None:
        """A receiver did not take something; returns what is to be told, once."""
        trouble = self._troubles.setdefault(receiver, Trouble(notifier, project, now))
        trouble.failures += 1
        trouble.error, trouble.remedy = error.text, error.remedy
        later = pause(trouble.failures - 1, FIRST, MOST, *([self._jitter] if self._jitter else []))
        trouble.until = max(now + later, getattr(error, "until", None) or 0.0) if error.retryable else 0.0
        if trouble.told or (error.retryable and trouble.failures < TOLD_AFTER):
            return None
        trouble.told = True
        return e.NotifierFailing(notifier, receiver, error.text, error.remedy)

    def works(self, notifier: str, receiver: str) -> e.NotifierRecovered | None:
        """A receiver took something; returns what is to be told if it did not before."""
        trouble = self._troubles.pop(receiver, None)
        return e.NotifierRecovered(notifier, receiver) if trouble and trouble.told else None

    def forgive(self, receivers: Sequence[str]) -> None:
        """The configuration changed: those in it are tried at once, and nobody fails who is not in it any more."""
        self._troubles = {name: one for name, one in self._troubles.items() if name in receivers}
        for trouble in self._troubles.values():
            trouble.until = 0.0

    def troubles(self, project: str | None = None) -> list[dict[str, Any]]:
        """Those that somebody was told of, for people."""
        return [
            {
                "notifier": one.notifier,
                "project": one.project or None,
                "since": rfc3339(one.since),
                "why": f"{one.error}: {one.remedy}" if one.remedy else one.error,
            }
            for one in self._troubles.values()
            if one.told and (project is None or one.project in ("", project))
        ]

    def of(self, receiver: str) -> Trouble | None:
        """What is wrong with one."""
        return self._troubles.get(receiver)
