"""The models of answers about sessions: what they are, where they work, and how to reach them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.pull_requests import PullRequest
from agent_orchestrator.server.schema.models.usage import Usage


class Evidence(Answer):
    """What a status rests on."""

    source: str | None
    at: str | None


class Progress(Answer):
    """How far the agent is."""

    done: int | None
    total: int | None
    step: str | None
    tests_passed: int | None


class Session(Answer):
    """One agent working on one task in one workspace on one branch."""

    id: str
    name: str
    project: str
    task: str
    kind: str
    title: str
    status: str
    activity: str
    evidence: Evidence
    column: str
    branch: str
    base: str
    head: str | None
    workspace_path: str | None
    agent: str
    profile: str | None
    runtime: str
    node: str | None
    pid: int | None
    exit_code: int | None
    issue: str | None
    pr: PullRequest | None
    progress: Progress
    usage: Usage
    attempts: dict[str, int]
    waiting_for: str | None
    created_at: str
    updated_at: str


class SessionStatus(Answer):
    """A session in short."""

    state: Literal["idle", "working", "waiting", "error"]
    status: str
    activity: str
    current_task: str | None
    last_activity: str | None
    branch: str
    workspace_path: str | None
    agent: str
    progress: Progress


class UnreadPlace(Answer):
    """A forge or tracker that cannot be read, since when and why: its pull requests and issues may be out of date."""

    project: str
    name: str
    why: str
    since: str


class UntoldBy(Answer):
    """A notifier that does not work, since when and why: what it was to send waits, or was given up."""

    notifier: str
    project: str | None
    since: str
    why: str


class Sessions(Answer):
    """Sessions, merged and stopped ones included; `unread` only where something cannot be read, `untold` only where a notifier fails."""

    sessions: list[Session]
    unread: list[UnreadPlace] = Field(default=[])
    untold: list[UntoldBy] = Field(default=[])


class Stopped(Answer):
    """A stopped session: where everything went, and how to undo it."""

    session: Session
    saved: list[str]
    undo: str


class AllStopped(Answer):
    """All that were stopped."""

    stopped: list[Stopped]


class Diff(Answer):
    """A session's change."""

    diff: str
    stat: str
    base: str
    head: str
    files: list[Any]
    omitted: list[str]
    uncommitted: list[str]


class Why(Answer):
    """The facts, evidence and rules behind a status."""

    session: str
    status: str
    column: str
    evidence: Evidence
    lines: list[str]
    facts: dict[str, Any]
    effects: list[Any]
    reactions: list[Any]


class Environment(Answer):
    """Where a session works, and with which variables."""

    cwd: str
    env: dict[str, str]
    node: str | None
    """The machine of the cluster that it is on; none: this one."""


class Attach(Answer):
    """The command that shows a session's terminal."""

    argv: list[str]
    env: dict[str, str]


class PluginFile(Answer):
    """A file of code that may be run, with this content."""

    path: str
    sha256: str


class WindowTerminal(Answer):
    """The terminal plugin that a project's configuration names."""

    plugin: str
    options: dict[str, Any]
    files: list[PluginFile]


class Window(Answer):
    """What a session is shown by on a person's screen."""

    session: str
    live: bool
    workspace_path: str | None
    node: str | None
    cwd: str
    url: str
    terminal: WindowTerminal
