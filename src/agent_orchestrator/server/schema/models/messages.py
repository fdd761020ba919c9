"""The models of answers about messages, questions and permission requests, and about coordinating agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.sessions import Session


class MessageState(Answer):
    """A message was accepted."""

    message_id: str | None
    state: str


class Message(Answer):
    """A message and what became of it."""

    message_id: str
    state: Literal["queued", "held", "delivered", "acknowledged", "failed"]
    content: str
    sender: str
    created_at: str
    delivered_at: str | None
    acknowledged_at: str | None
    reason: str | None


class Messages(Answer):
    """A session's messages in order."""

    messages: list[Message]


class DigestState(Answer):
    """How far a coordinating agent was informed of what happened."""

    last_at: str | None
    pending: bool
    """Whether the next digest may have something to report."""


class CoordinatorState(Answer):
    """A project's coordinating agent."""

    project: str
    session: Session | None
    """Null: there was none yet."""
    goal: str | None
    """The last message that was no digest."""
    last_output: str | None = Field(alias="said")
    """The end of its last turn."""
    digest: DigestState
    message: MessageState | None
    """The state of the goal that this request sent."""


class Prompt(Answer):
    """The system prompt and the task of an agent."""

    system: str
    prompt: str


class Permission(Answer):
    """What an agent asks to do, or may do without asking."""

    tool: str
    command: str | None
    reason: str | None


class AllowedForGood(Answer):
    """What a person allowed for good in a project."""

    project: str
    tool: str
    command: str


class Permissions(Answer):
    """What was allowed for good."""

    permissions: list[AllowedForGood]


class Question(Answer):
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


class Questions(Answer):
    """What waits for a person, oldest first."""

    questions: list[Question]
