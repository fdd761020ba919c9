"""`NewSession`: what is asked for when a session is created, by a person, a rule, a plan or another part of the daemon."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, fields
from typing import Protocol

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import WORKER_KIND


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be created; what is not given is decided by the configuration."""

    project: str | None = None
    """The project; without it, the one of the caller's folder."""
    issue: str = ""
    """`123`, `#123`, `GH-123`, `LIN-3` or a URL."""
    title: str = ""
    prompt: str = ""
    """What the agent is to do."""
    agent: str | None = None
    """A profile, else an agent."""
    model: str | None = None
    branch: str = ""
    """An existing branch is continued."""
    base: str = ""
    name: str = ""
    after: tuple[str, ...] = ()
    """Sessions that must be done before."""
    stack: bool = False
    """Start on the branch of the session it comes after, and follow it when that is merged."""
    pr: str = ""
    """A pull request to take over: its number or address."""
    resume_id: str = ""
    """A conversation of the agent's, begun by hand, to continue."""
    labels: tuple[str, ...] = ()
    priority: int = 0
    runtime: str = ""
    workspace: str = ""
    node: str | None = None
    defer: bool = False
    """The agent starts at its first message."""
    files: tuple[str, ...] = ()
    """Files that it is expected to change; glob patterns too."""
    group: str = ""
    """Sessions of one group share `group_limit`."""
    group_limit: int = 0
    """How many of the group may work at once; 0: any number."""
    kind: str = WORKER_KIND
    """What the session is for: the default, a reviewer or a coordinator."""
    reviews: str | None = None
    """The session whose change a reviewer reviews."""
    spawned: tuple[str, ...] = ()
    """The rules that led to it, the first one first."""
    parent: str | None = None
    """The session that asked for it."""

    def changed_fields(self) -> set[str]:
        """Return the names of the fields that differ from their defaults."""
        return {field.name for field in fields(self) if getattr(self, field.name) != field.default}


@dataclass(frozen=True, slots=True)
class PullRequestClaim:
    """A pull request that a new session continues."""

    request: NewSession
    """The request, extended by the branch, base and task of the pull request."""
    events: tuple[e.Body, ...]
    """What is known of the pull request."""


@dataclass(frozen=True, slots=True)
class ForgeChoice:
    """The forge for the pull requests of a project's new sessions."""

    name: str
    hosted: bool
    """Whether it is a service, which merges them; if not, the daemon does."""


class Forges(Protocol):
    """What the creation of a session needs from the project's forge and tracker."""

    def choose(self, project: ProjectConfig) -> Awaitable[ForgeChoice]:
        """Return the forge for the pull requests of new sessions."""
        ...

    def claim(
        self, project: ProjectConfig, forge: ForgeChoice, request: NewSession
    ) -> Awaitable[PullRequestClaim | None]:
        """Return the pull request that a request names, or None if it is not at a service. Raises `Conflict`."""
        ...

    def read_issue(self, project: ProjectConfig, issue: str) -> Awaitable[None]:
        """Read an issue from the project's tracker into the facts, if it is kept elsewhere."""
        ...
