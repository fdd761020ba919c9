"""The models of answers about notifications and notifiers."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class Answered(Answer):
    """An answer that was given by a notification's link."""

    session: str
    verb: Literal["allow", "deny"]
    by: str


class Notification(Answer):
    """A notification of a person."""

    id: int
    session: str | None
    project: str | None
    title: str
    message: str
    level: Literal["urgent", "action", "warning", "info"]
    trigger: str
    at: str


class Notifications(Answer):
    """The notifications of people, newest first."""

    notifications: list[Notification]


class TriedNotifier(Answer):
    """What came of a test by one notifier."""

    name: str
    plugin: str
    project: str | None
    levels: list[Literal["urgent", "action", "warning", "info"]]
    """Of which notifications go to it."""
    sent: bool
    problem: str | None
    remedy: str | None


class TriedNotifiers(Answer):
    """What came of a test by each notifier."""

    notifiers: list[TriedNotifier]
