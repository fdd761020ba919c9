"""The models of answers about projects, and about how they are set up and tested."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer, Problem


class Project(Answer):
    """A repository that we work in."""

    id: str
    name: str
    path: str
    repo: str | None
    default_branch: str | None
    config: str | None
    trusted: bool | None
    sessions: int


class Candidate(Answer):
    """One way to set a repository up and to test it, and the files that say so."""

    ecosystem: str
    set_up: list[str]
    test: str | None
    lint: str | None
    evidence: list[str]


class Proposal(Answer):
    """What was detected for a project: commands that do not run before a person confirms them."""

    keys: list[str]
    """What it would set: `postCreate`, `ci`."""
    commands: list[str]
    """What agents may run without asking once it is confirmed."""
    candidates: list[Candidate]
    """The most likely first; the others are tried where it does not work."""
    digest: str


class AddedProject(Project):
    """A repository that was just registered."""

    created: str | None
    """The configuration that was written."""
    agent: str
    proposal: Proposal | None


class ProvenSetUp(Answer):
    """The set-up commands, and how long they took."""

    commands: list[str]
    seconds: float


class ProvenFailure(Answer):
    """A test that fails on the base branch."""

    name: str
    message: str


class ProvenCheck(Answer):
    """A check's result on the base branch."""

    name: str
    command: str
    state: Literal["success", "failure", "flaky", "not_set_up", "unknown"]
    """`unknown`: it was not run."""
    seconds: float
    passed: int | None
    failed: int | None
    skipped: int | None
    failures: list[ProvenFailure]


class Tried(Answer):
    """One way to set up and test that was tried, and why it does not work, if it does not."""

    ecosystem: str
    set_up: list[str]
    test: str | None
    proven: bool
    reason: str


class Proof(Answer):
    """What came of running a project's set-up and checks in a clean checkout of its base branch."""

    project: str
    base: str
    commit: str
    proven: bool
    """Set-up and checks work; tests may fail all the same."""
    reason: str
    summary: str
    """The relevant lines of what does not work."""
    set_up: ProvenSetUp
    checks: list[ProvenCheck]
    tried: list[Tried]
    left_out: list[str]
    """What was detected and is not written, and why."""
    drift: list[str]
    """Where configuration and files differ."""
    written: str | None
    """The file that was written."""


class ProofRunning(Answer):
    """The command that is being run."""

    command: str
    seconds: float
    attempt: int
    of: int


class ProofLine(Answer):
    """A line of a proof: what is `running`, at last the `proof`, or the `problem` that ended it."""

    running: ProofRunning | None = None
    proof: Proof | None = None
    problem: Problem | None = None


class Projects(Answer):
    """All projects."""

    projects: list[Project]
    here: str | None
    """The one that the caller's folder belongs to."""
