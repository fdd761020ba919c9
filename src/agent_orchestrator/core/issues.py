"""Issues of trackers, and what a plan says of them: facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent_orchestrator.core.authors import HAS_WRITE_ACCESS
from agent_orchestrator.core.pull_request import Comment

_MAX_NUMBER_DIGITS = 18
"""Largest number of digits that an issue number may have."""


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """What a plan specifies for an issue that is one of its tasks."""

    plan: str
    task: str
    profile: str | None = None
    priority: int = 0
    files: tuple[str, ...] = ()
    start: bool = True


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue of the local tracker, or read from another tracker."""

    number: int
    project: str
    title: str
    created_at: float
    updated_at: float
    body: str = ""
    state: str = "open"
    labels: tuple[str, ...] = ()
    author: str = "person"
    assignee: str | None = None
    after: tuple[int, ...] = ()
    comments: tuple[Comment, ...] = ()
    write_access: str = HAS_WRITE_ACCESS
    key: str = ""
    """The tracker's name for it, if that is not its number."""
    url: str | None = None
    tracker: str = "local"
    branch: str | None = None
    """The branch name that the tracker suggests."""
    plan_entry: PlanEntry | None = None
    hosted: bool = False
    """Whether it is at a service, and not only in the facts."""

    @property
    def name(self) -> str:
        """The name that people use for it."""
        return self.key or str(self.number)


def issue_number(name: str) -> int | None:
    """Return the number in an issue's name (3 for `LIN-3`), or None."""
    digits = name.rpartition("-")[2].lstrip("#")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_NUMBER_DIGITS else None
