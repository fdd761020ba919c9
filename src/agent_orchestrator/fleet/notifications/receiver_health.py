"""Records which receivers fail, since when, and when they are tried again.

An event reports once that a notifier fails and once that it works again; a new daemon starts from the last of these
events in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.outbox import retry_pause
from agent_orchestrator.errors import AoError

MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 10.0, 900.0
"""Seconds between two attempts at a receiver that fails: at first, and at most."""
REPORT_AFTER_FAILURES = 2
"""Failures in a row, of the kind that mostly passes without action, before a person is notified."""


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
    """The time before which it is not tried again."""
    is_reported: bool = False


class Health:
    """The state of all receivers."""

    def __init__(self, jitter: Callable[[], float] | None = None) -> None:
        self._troubles: dict[str, Trouble] = {}
        self._jitter = jitter

    def recall(self, events: Sequence[Event]) -> None:
        """Restore the state from these events, oldest first."""
        for event in events:
            body = event.body
            if isinstance(body, e.NotifierFailing):
                trouble = Trouble(
                    body.notifier, event.project or "", event.time, body.error, body.remedy, is_reported=True
                )
                self._troubles[body.receiver] = trouble
            elif isinstance(body, e.NotifierRecovered):
                self._troubles.pop(body.receiver, None)

    def retry_time(self, receiver: str, now: float) -> float:
        """Return until when a receiver is not to be tried, or 0 if it may be tried."""
        trouble = self._troubles.get(receiver)
        return trouble.until if trouble and now < trouble.until <= now + MAX_RETRY_SECONDS * 4 else 0.0

    def record_failure(
        self, notifier: str, receiver: str, project: str, error: AoError, now: float
    ) -> e.NotifierFailing | None:
        """Record that a receiver failed; return the event that reports it, or None if it is not to be reported now."""
        trouble = self._troubles.setdefault(receiver, Trouble(notifier, project, now))
        trouble.failures += 1
        trouble.error, trouble.remedy = error.text, error.remedy
        delay = retry_pause(
            trouble.failures - 1, MIN_RETRY_SECONDS, MAX_RETRY_SECONDS, *([self._jitter] if self._jitter else [])
        )
        trouble.until = max(now + delay, getattr(error, "until", None) or 0.0) if error.retryable else 0.0
        if trouble.is_reported or (error.retryable and trouble.failures < REPORT_AFTER_FAILURES):
            return None
        trouble.is_reported = True
        return e.NotifierFailing(notifier, receiver, error.text, error.remedy)

    def record_success(self, notifier: str, receiver: str) -> e.NotifierRecovered | None:
        """Record that a receiver works; return the event that reports it if its failure was reported, else None."""
        trouble = self._troubles.pop(receiver, None)
        return e.NotifierRecovered(notifier, receiver) if trouble and trouble.is_reported else None

    def reset(self, receivers: Sequence[str]) -> None:
        """Try the receivers of the changed configuration again at once, and forget the failures of all others."""
        self._troubles = {name: failure for name, failure in self._troubles.items() if name in receivers}
        for trouble in self._troubles.values():
            trouble.until = 0.0

    def troubles(self, project: str | None = None) -> list[dict[str, Any]]:
        """Return the reported failures as JSON."""
        return [
            {
                "notifier": trouble.notifier,
                "project": trouble.project or None,
                "since": rfc3339(trouble.since),
                "why": f"{trouble.error}: {trouble.remedy}" if trouble.remedy else trouble.error,
            }
            for trouble in self._troubles.values()
            if trouble.is_reported and (project is None or trouble.project in ("", project))
        ]

    def failure_of(self, receiver: str) -> Trouble | None:
        """Return a receiver's failure, or None."""
        return self._troubles.get(receiver)
