"""The models of answers about plans."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.usage import Usage


class PlannedTask(Answer):
    """One task of a plan; `sessions` and `status` are known once it is applied."""

    id: str
    title: str
    description: str
    acceptance: list[str]
    dependencies: list[str]
    effort: Literal["small", "medium", "large"]
    labels: list[str]
    files: list[str]
    profile: str | None
    priority: int
    issue: int | None
    issue_key: str | None
    sessions: list[str]
    status: str | None


class Plan(Answer):
    """A goal made into tasks."""

    id: str
    project: str
    goal: str
    state: Literal["planning", "draft", "failed", "applying", "applied", "discarded"]
    tasks: list[PlannedTask]
    notes: list[str]
    error: str | None
    progress: str | None
    agent: str | None
    usage: Usage
    created_at: str
    updated_at: str


class Plans(Answer):
    """Plans, the newest first."""

    plans: list[Plan]
