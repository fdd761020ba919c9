"""Notifications on their way to people: one intent per notifier that sends them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_orchestrator.core.events import Body, Event, Notified
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.model import PRIORITIES

NOTIFY = "notify"
"""Kind of the intents that send a notification."""

NoticeGate = Callable[[str, Notified], Body]
"""Returns the event to record for a project's notification: itself, or in quiet hours the one that holds it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that is to be sent."""

    id: str
    """The same for every attempt to send it."""
    title: str
    message: str
    level: str = "info"
    trigger: str = ""
    project: str = ""
    session: str = ""
    at: float = 0.0

    @property
    def urgent(self) -> bool:
        """Whether a person must act now."""
        return self.level == PRIORITIES[0]

    def content_hash(self, request: str = "") -> str:
        """Return a hash of the content; two notices with the same mark are the same news.

        `asked`: the question or permission request that waits there for an answer.
        """
        content = "\0".join((self.project, self.session, self.trigger, self.level, self.title, self.message, request))
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


def notify_intents(event: Event, notifiers: Sequence[str]) -> list[Intent]:
    """Return one intent per notifier for a notification event, or none for other events."""
    body = event.body
    if not isinstance(body, Notified):
        return []
    args = {
        "notice": f"n{event.seq}",
        "project": event.project or "",
        "session": event.session or "",
        "trigger": body.trigger,
        "title": body.title,
        "message": body.message,
        "level": body.level,
        "at": event.time,
    }
    return [
        Intent(NOTIFY, f"{NOTIFY}:{event.key}:{name}", "", args={**args, "notifier": name})
        for name in dict.fromkeys(notifiers)
    ]


def notice_from_intent(intent: Intent) -> Notice:
    """Return the notification that an intent is to send."""
    args = intent.args
    return Notice(
        id=str(args["notice"]),
        title=str(args["title"]),
        message=str(args["message"]),
        level=str(args["level"]),
        trigger=str(args["trigger"]),
        project=str(args["project"]),
        session=str(args["session"]),
        at=float(args["at"]),
    )
