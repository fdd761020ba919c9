"""The storage of a forge that is no service (`SCM.hosted`, `Tracker.hosted` is False): the daemon's log.

The daemon implements both over its facts, and passes them to the plugin as `records` of its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agent_orchestrator.protocols.forge import (
    IssueChange,
    PullRequestComment,
    PullRequestReview,
    PullRequestSpec,
    TrackerIssue,
)
from agent_orchestrator.protocols.records import record


@record
class PullRequestRecord:
    """A pull request as the log has it; where its branches are is for Git to say."""

    number: int
    title: str
    branch: str
    base: str
    state: str
    """`open`, `merged` or `closed`."""
    draft: bool
    reviews: tuple[PullRequestReview, ...] = ()
    comments: tuple[PullRequestComment, ...] = ()
    merged_as: str | None = None


@runtime_checkable
class PullRequestStorage(Protocol):
    """The pull requests of one project."""

    def get(self, number: int) -> PullRequestRecord | None:
        """Return a pull request, or None if there is none with this number."""
        ...

    def find(self, branch: str) -> PullRequestRecord | None:
        """Return the open pull request of a branch, else its newest one, or None."""
        ...

    async def open(self, spec: PullRequestSpec) -> PullRequestRecord:
        """Open a pull request, or return the one that the work has already. Raises `NotFound` if no session works on the branch."""
        ...

    async def ready(self, number: int) -> None:
        """Mark a draft as ready for review."""
        ...

    async def close(self, number: int) -> None:
        """Close an open pull request without merging it."""
        ...

    async def comment(self, number: int, text: str, key: str, thread: str | None = None) -> str:
        """Comment on the whole or in a discussion, once per key; returns the comment's id."""
        ...

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        ...


@runtime_checkable
class IssueStorage(Protocol):
    """The issues of one project."""

    def get(self, number: int) -> TrackerIssue | None:
        """Return an issue with its comments, or None if there is none with this number."""
        ...

    def all(self) -> Sequence[TrackerIssue]:
        """Return all issues, oldest first."""
        ...

    async def create(self, title: str, body: str, labels: Sequence[str]) -> int:
        """Create an issue and return its number."""
        ...

    async def change(self, number: int, change: IssueChange) -> None:
        """Record what differs from what the issue has already."""
        ...

    async def comment(self, number: int, text: str, key: str) -> str:
        """Comment on an issue, once per key; returns the comment's id."""
        ...
