"""The models of answers about pull requests, their checks and reviews."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer


class Check(Answer):
    """One check."""

    name: str
    state: Literal[
        "queued", "running", "success", "failure", "flaky", "cancelled", "timed_out", "skipped", "not_set_up"
    ]
    url: str | None


class ChangeCheck(Check):
    """One check of a pull request."""

    on_base: bool
    """Everything that fails also fails on the base branch, or at the commit where the branch left it."""
    passed: int | None
    failed: int | None
    skipped: int | None
    new: int
    """How many failures the base branch does not have."""
    on_base_failures: int = Field(alias="known")
    """How many failures the base branch has too."""
    reason: str | None
    """What the environment lacks, or which tests are not run any more."""


class PullRequest(Answer):
    """A session's pull request."""

    number: int
    url: str | None
    state: Literal["draft", "open", "merged", "closed"]
    head: str | None
    checks: list[ChangeCheck]
    review: Literal["none", "pending", "approved", "changes_requested"]
    mergeable: Literal["yes", "no", "unknown"]


class NamedFailure(Answer):
    """One failing test, or one error."""

    name: str
    message: str


class FailingCheck(ChangeCheck):
    """A check that is not simply green, with what explains it."""

    summary: str
    """The relevant part of its output."""
    log: str
    new_failures: list[NamedFailure]
    """Those that the base branch does not have."""
    known_failures: list[str]
    """Those that the base branch has too."""
    owned_failures: list[str]
    """Those of them that the session's task is to fix."""
    vanished: list[str]
    """Tests that pass on the base branch and are gone."""
    newly_skipped: list[str]
    """Tests that pass on the base branch and are skipped."""
    fewer: int
    """How many tests fewer are run than on the base branch, where they cannot be named."""
    remedy: str | None
    """How to set the environment up."""
    command: str | None
    """The command that runs it by hand, in the workspace."""


class Review(Answer):
    """A review by a person or an agent."""

    id: str
    verdict: Literal["approved", "changes_requested", "commented"]
    author: str
    write_access: Literal["yes", "no", "unknown"]
    kind: Literal["person", "bot", "agent"]
    reviewer: str | None
    counts: bool
    body: str
    head: str
    at: str


class ThreadComment(Answer):
    """One comment of a thread."""

    id: str
    author: str
    write_access: Literal["yes", "no", "unknown"]
    body: str
    by_agent: bool
    kind: Literal["person", "bot", "agent"]
    at: str


class Thread(Answer):
    """A comment and the answers to it."""

    id: str
    path: str | None
    line: int | None
    resolved: bool
    comments: list[ThreadComment]


class PullRequestView(PullRequest):
    """A pull request with what was said about it."""

    session: str
    title: str
    base: str
    refused: str | None
    conflicts: list[str]
    failing: list[FailingCheck]
    reviews: list[Review]
    requested: list[str]
    threads: list[Thread]
