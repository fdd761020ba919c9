"""The models of answers about events."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.server.schema.models.answer import Answer


class Event(Answer):
    """One thing that happened."""

    seq: int
    type: str
    session: str | None
    project: str | None
    source: str
    time: str
    data: dict[str, Any]


class Events(Answer):
    """Events in order."""

    events: list[Event]


class Step(Answer):
    """What an event of a recorded log would lead to today."""

    seq: int
    type: str
    session: str | None
    status: str | None
    intents: list[dict[str, Any]]


class Steps(Answer):
    """A recorded log, run through today's rules."""

    steps: list[Step]
