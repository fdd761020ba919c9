"""The models of answers about the merge queue, predicted conflicts and reverts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.pull_requests import Check
from agent_orchestrator.server.schema.models.sessions import Session


class Undone(Answer):
    """The change that reverts a merged one; it is merged like any other."""

    session: str
    branch: str
    commit: str
    change: Session


class QueueEntry(Answer):
    """A change in the merge queue."""

    session: str
    position: int
    """In the queue of its base branch, from 1."""
    state: Literal["queued", "checking", "green", "landing", "waiting"]
    reason: str | None
    """What it waits for."""
    base: str
    ahead: list[str]
    """The sessions that it is built on top of."""
    tree: str | None
    """What is checked, and what the base will be."""
    checks: list[Check]
    passed_by: list[str]
    """The sessions that go before it although they asked later: they conflict with fewer others, or were under way already."""
    conflicts: list[str] = Field(alias="collides")
    """The sessions in its queue that it is predicted to conflict with."""


class Queue(Answer):
    """The merge queue in order."""

    entries: list[QueueEntry]


class Pair(Answer):
    """Two sessions that will conflict; `a` is the elder."""

    a: str
    b: str
    files: list[str]
    kind: Literal["text", "overlap"]


class Pairs(Answer):
    """Which sessions will conflict, and in which files."""

    pairs: list[Pair]
