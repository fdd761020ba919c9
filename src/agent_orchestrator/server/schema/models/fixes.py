"""The models of answers about fixing runs."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class FixTool(Answer):
    """Something that finds failures, and how many it finds."""

    name: str
    command: str
    folder: str | None
    before: int | None
    after: int | None
    problem: str | None
    """Why it could not be run."""


class FixGroup(Answer):
    """Failures that likely have one cause."""

    number: int
    title: str
    count: int
    tools: dict[str, int]
    files: list[str]
    session: str | None
    status: str | None
    """The session's."""
    why: str | None
    outcome: Literal["landed", "ready", "failed", "stopped", "later"] | None
    commit: str | None
    reason: str | None


class FixRound(Answer):
    """What was measured at one commit of the base, and what was done about it."""

    number: int
    commit: str
    at: str
    total: int
    counts: dict[str, int]
    problems: dict[str, str]
    groups: list[FixGroup]


class Fix(Answer):
    """A fixing run."""

    id: str
    project: str
    state: Literal["measuring", "working", "green", "left", "review", "measured", "not_set_up", "stopped", "failed"]
    ended: bool
    reason: str | None
    base: str
    commands: list[str]
    """What is run beside the configured checks, instead of tools that are found."""
    agent: str | None
    """Absent: the project's."""
    model: str | None
    max_rounds: int
    max_agents: int | None
    merge: bool
    dry_run: bool
    progress: str | None
    before: int | None
    after: int | None
    tools: list[FixTool]
    rounds: list[FixRound]
    created_at: str
    updated_at: str


class Fixes(Answer):
    """Fixing runs."""

    fixes: list[Fix]


class Failing(Answer):
    """One thing that is wrong."""

    tool: str
    id: str
    file: str
    line: int
    message: str
    detail: str


class Cause(Answer):
    """Failures that likely have one cause."""

    key: str
    title: str
    failures: list[Failing]


class FixFailures(Answer):
    """What one measurement found."""

    id: str
    round: int
    groups: list[Cause]
