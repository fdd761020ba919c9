"""The slot Notifier: how people are notified."""

from __future__ import annotations

from abc import ABC, abstractmethod

from agent_orchestrator.protocols.records import record


@record
class NotificationAction:
    """What a person can do about a notification, at a URL that changes nothing merely by being opened."""

    name: str
    """`open`, `allow`, `deny` or `merge`."""
    label: str
    url: str
    token: str = ""
    """Identifies the action, for receivers that answer by themselves; empty: only the URL works."""


@record
class Notification:
    """Something a person should know. Its text is plain: each notifier converts it to its receiver's markup."""

    title: str
    message: str
    level: str = "info"
    """`urgent`, `action`, `warning` or `info`."""
    session_id: str | None = None
    project: str | None = None
    trigger: str = ""
    """What it is about: `agent-needs-input`, `ci-failed` …"""
    id: str = ""
    """The same each time that it is sent."""
    time: float = 0.0
    """When it happened."""
    url: str = ""
    """Its page in the dashboard."""
    actions: tuple[NotificationAction, ...] = ()


class Notifier(ABC):
    """Sends notifications to people."""

    keyed: bool = False
    """Whether the receiver ignores an id that it has seen before: a notification may then be repeated at will."""

    @abstractmethod
    async def notify(self, notification: Notification) -> None:
        """Send it; raises `Temporary` when a retry may succeed, `Doubtful` when it may have arrived, `Missing` when
        this machine has no means to send it.
        """

    async def check(self) -> None:
        """Check, without sending anything, whether this machine has what it needs. Raises `Missing` if it lacks
        something. By default nothing is checked.
        """
        return
