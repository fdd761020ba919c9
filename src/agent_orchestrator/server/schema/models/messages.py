"""The models of answers about messages, questions and permission requests, and about coordinating agents."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Shown
from agent_orchestrator.server.schema.models.sessions import Session


class MessageState(Shown):
    """A message was accepted."""

    message_id: str | None
    state: str


class Message(Shown):
    """A message and what became of it."""

    message_id: str
    state: Literal["queued", "held", "delivered", "acknowledged", "failed"]
    content: str
    sender: str
    created_at: str
    delivered_at: str | None
    acknowledged_at: str | None
    reason: str | None


class Messages(Shown):
    """A session's messages in order."""

    messages: list[Message]


class DigestState(Shown):
    """How far a coordinating agent was told what happens."""

    last_at: str | None
    pending: bool
    """There is something that it may have to be told of."""


class CoordinatorState(Shown):
    """A project's coordinating agent."""

    project: str
    session: Session | None
    """Null: there was none yet."""
    goal: str | None
    """The last message that was no digest."""
    said: str | None
    """The end of its last turn."""
    digest: DigestState
    message: MessageState | None
    """What became of the goal that was given just now."""


class Prompt(Shown):
    """What an agent is told."""

    system: str
    prompt: str


class Permission(Shown):
    """What an agent asks to do, or may do without asking."""

    tool: str
    command: str | None
    reason: str | None


class AllowedForGood(Shown):
    """What a person allowed for good in a project."""

    project: str
    tool: str
    command: str


class Permissions(Shown):
    """What was allowed for good."""

    permissions: list[AllowedForGood]


class Question(Shown):
    """Something that waits for a person."""

    session: str
    kind: Literal["question", "permission", "message", "offer"]
    text: str
    request: str | None
    permission: Permission | None
    message: str | None
    offer: str | None
    since: str
    context: list[str]


class Questions(Shown):
    """What waits for a person, oldest first."""

    questions: list[Question]
