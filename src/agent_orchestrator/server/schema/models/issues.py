"""The models of answers about tasks, issues and the backlog."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class IssueComment(Answer):
    """Something said about an issue."""

    id: str
    author: str
    write_access: Literal["yes", "no", "unknown"]
    body: str
    at: str


class Issue(Answer):
    """Something that is wanted."""

    number: int
    key: str
    id: str
    project: str
    title: str
    body: str
    state: Literal["open", "closed"]
    labels: list[str]
    author: str
    write_access: Literal["yes", "no", "unknown"]
    assignee: str | None
    after: list[int]
    comments: list[IssueComment]
    sessions: list[str]
    waiting_for: str | None
    created_at: str
    updated_at: str
    url: str | None


class Unread(Answer):
    """A project whose tracker could not be read: its issues may be out of date."""

    project: str
    why: str


class Issues(Answer):
    """Issues of the tracker."""

    issues: list[Issue]
    unread: list[Unread]


class BacklogEntry(Answer):
    """An open issue, who would take it, and why that has not come yet."""

    position: int
    issue: int
    key: str
    id: str
    project: str
    title: str
    labels: list[str]
    profile: str | None
    agent: str | None
    matched_by: str | None
    priority: int
    plan: str | None
    session: str | None
    """Who is at it."""
    auto: bool
    """It is started automatically, once nothing prevents it."""
    needs_you: bool
    """Something stands in its way that only a person can clear."""
    ready: bool
    reasons: list[str]


class Backlog(Answer):
    """Open issues in the order that they would be taken."""

    entries: list[BacklogEntry]
    unread: list[Unread]


class Task(Answer):
    """Something that is wanted, and the sessions that attempt it."""

    id: str
    project: str
    title: str
    description: str
    issue: str | None
    labels: list[str]
    priority: int
    after: list[str]
    sessions: list[str]
    created_at: str


class Tasks(Answer):
    """What is wanted."""

    tasks: list[Task]
