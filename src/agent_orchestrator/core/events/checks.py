"""Events of checks and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class ChecksRequested(Body):
    """A person or a rule wants the checks to run again at this commit."""

    head: str


@record
class CheckStarted(Body):
    """A check waits for its place or, once there is a log, runs."""

    name: str
    head: str
    log: str = ""
    url: str = ""
    """Where people see it."""
    running: bool = False
    """It runs, somewhere else."""


@record
class CheckFinished(Body):
    """A check has a result at this commit."""

    name: str
    head: str
    state: str
    summary: str = ""
    log: str = ""
    tree: str = ""
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    on_base: bool = False
    """Everything that fails also fails on the base branch, or at the commit where the branch left it."""
    compared: bool = False
    """The result was compared with the base branch, test by test."""
    new: Mapping[str, str] = field(default_factory=dict)
    """The failures that the base branch does not have: name and message."""
    known: tuple[str, ...] = ()
    """The failures that the base branch has too."""
    owned: tuple[str, ...] = ()
    """Those of them that the session's task is about."""
    vanished: tuple[str, ...] = ()
    """Tests that pass on the base branch and do not exist any more."""
    newly_skipped: tuple[str, ...] = ()
    """Tests that pass on the base branch and are skipped."""
    fewer: int = 0
    """How many tests fewer are run than on the base branch, where they cannot be named."""
    fixed_since: bool = False
    """The known failures are those of the commit where the branch left the base branch, which does not have them any more."""
    forbidden: bool = False
    """Known failures hold a merge as well (`redBase: forbid`)."""
    reason: str = ""
    """What the environment lacks, for a check that is `not_set_up`."""
    remedy: str = ""
    """How to set the environment up."""
    command: str = ""
    """The command that runs the check by hand."""
    url: str = ""


@record
class CheckGone(Body):
    """A check that was reported is not a check of this commit any more."""

    name: str
    head: str


@record
class ChecksSettled(Body):
    """Every check that is to run at this commit has a result; `none`: no check is configured."""

    head: str
    none: bool = False


@record
class ChecksByHand(Body):
    """No check runs at this commit until it is requested."""

    head: str
