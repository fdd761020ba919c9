"""The models of answers about the merge queue, predicted conflicts and reverts."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Shown
from agent_orchestrator.server.schema.models.pull_requests import Check
from agent_orchestrator.server.schema.models.sessions import Session


class Undone(Shown):
    """The change that takes a landing back; it lands like any other."""

    session: str
    branch: str
    commit: str
    change: Session


class QueueEntry(Shown):
    """A change that is to land."""

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
    """The sessions that go before it although they asked later: they collide with fewer others, or were under way already."""
    collides: list[str]
    """The sessions in its queue that it is predicted to conflict with."""


class Queue(Shown):
    """What is to land, in order."""

    entries: list[QueueEntry]


class Pair(Shown):
    """Two sessions that will collide; `a` is the elder."""

    a: str
    b: str
    files: list[str]
    kind: Literal["text", "overlap"]


class Pairs(Shown):
    """Which sessions will collide, and on what."""

    pairs: list[Pair]
