"""The slot Notifier: how people are notified."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from agent_orchestrator.protocols.records import record


@record
class NotificationAction:
    """What a person may do about it, at an address that changes nothing by being opened."""

    name: str
    """`open`, `allow`, `deny` or `merge`."""
    label: str
    url: str
    token: str = ""
    """What the action is known by, for receivers that answer themselves; nothing: the address alone."""


@record
class Notification:
    """Something a person should know. Its text is plain: whoever sends it writes it as the receiver's markup wants it."""

    title: str
    message: str
    level: str = "info"
    """`urgent`, `action`, `warning` or `info`."""
    session_id: str | None = None
    project: str | None = None
    trigger: str = ""
    """What it is about: `agent-needs-input`, `ci-failed` …"""
    id: str = ""
    """The same however often it is sent."""
    time: float = 0.0
    """When it happened."""
    url: str = ""
    """Where it is seen in the dashboard."""
    actions: tuple[NotificationAction, ...] = ()


@runtime_checkable
class Notifier(Protocol):
    """Tells people. One whose receiver knows an id that it has seen before says `keyed = True`: it may be repeated at will."""

    async def notify(self, notification: Notification) -> None:
        """Send it; raises `Temporary` when it may be tried again, `Doubtful` when it may have arrived, `Missing` when this machine has
        nothing to send it by.
        """
        ...
