"""Notifications on their way to people: one intent for each notifier that is to be told. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from agent_orchestrator.core.events import Event, Notified
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules import PRIORITIES

NOTIFY = "notify"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that is to be sent."""

    id: str
    """The same however often it is sent."""
    title: str
    message: str
    level: str = "info"
    trigger: str = ""
    project: str = ""
    session: str = ""
    at: float = 0.0

    @property
    def urgent(self) -> bool:
        """Somebody must act now."""
        return self.level == PRIORITIES[0]

    def mark(self, asked: str = "") -> str:
        """What it says, and about what: two with the same mark are the same news. `asked`: what waits for an answer there."""
        said = "\0".join((self.project, self.session, self.trigger, self.level, self.title, self.message, asked))
        return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]


def deliveries(event: Event, notifiers: Sequence[str]) -> list[Intent]:
    """What a notification calls for: it is to be sent by each of these."""
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


def notice_of(intent: Intent) -> Notice:
    """The notification that an intent is to send."""
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
