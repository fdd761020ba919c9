"""Events of notifications to people."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class Notified(Body):
    """A person was told."""

    trigger: str
    title: str
    message: str
    level: str = "info"


@record
class NotificationHeld(Body):
    """A person will be told when the quiet hours are over."""

    trigger: str
    title: str
    message: str
    level: str
    until: float


@record
class QuietHoursEnded(Body):
    """What was held until then is told, together."""

    until: float


@record
class NotificationSettled(Body):
    """What became of notifications that were to be sent by a notifier, as one message."""

    notifier: str
    notices: tuple[str, ...]
    """Their ids."""
    outcome: str
    """`sent`, `repeated` (the same was said a moment ago), `doubtful` (it may have arrived), `late` or `failed`."""
    receiver: str = ""
    """Names whoever got it, and tells nothing of him."""
    urgent: bool = False
    marks: tuple[str, ...] = ()
    """What they said, in a form that only serves to know it again."""
    reason: str = ""


@record
class NotifierFailing(Body):
    """A notifier does not work; what it is to send waits, or is given up. Told once."""

    notifier: str
    receiver: str
    error: str
    remedy: str = ""


@record
class NotifierRecovered(Body):
    """A notifier works again."""

    notifier: str
    receiver: str


@record
class AnswerLinkUsed(Body):
    """Somebody answered by a notification's link or button; it is good for nothing more."""

    verb: str
    by: str
    notice: str = ""
