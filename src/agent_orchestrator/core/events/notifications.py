"""Events of notifications to people."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class Notified(Body):
    """A person was notified."""

    trigger: str
    title: str
    message: str
    level: str = "info"


@record
class NotificationHeld(Body):
    """A person will be notified when the quiet hours are over."""

    trigger: str
    title: str
    message: str
    level: str
    until: float


@record
class QuietHoursEnded(Body):
    """The notifications held during the quiet hours are sent, together."""

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
    """A pseudonymous id of the receiver."""
    urgent: bool = False
    marks: tuple[str, ...] = ()
    """What they said, in a form that only serves to know it again."""
    reason: str = ""


@record
class NotifierFailing(Body):
    """A notifier does not work; its notifications wait, or are given up. Recorded once."""

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
    """A notification's link or button was used to answer; it cannot be used again."""

    verb: str
    by: str
    notice: str = ""
