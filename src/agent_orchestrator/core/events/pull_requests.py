"""Events of pull requests, their conflicts and their merge."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class PrOpened(Body):
    """The session's branch has a pull request."""

    number: int
    title: str
    base: str
    draft: bool = True
    url: str | None = None
    node: str = ""
    """Its name at the forge for good."""


@record
class PrReady(Body):
    """It is no draft any more: the agent is done, or a person said so."""


@record
class PrChanged(Body):
    """Somebody changed what it is called, made it a draft again, or opened it again; or the forge demands something else."""

    title: str
    draft: bool
    state: str = "open"
    blocked: str = ""
    """What the forge demands before it may land."""


@record
class PrClosed(Body):
    """It was closed without landing."""

    reason: str = ""


@record
class PrMerged(Body):
    """It landed: the base branch went from `base_before` to `commit`."""

    commit: str
    base_before: str
    head: str
    strategy: str = "squash"
    keep_branch: bool = False
    left: tuple[str, ...] = ()
    """Files in its workspace that were not committed, and so did not land."""
    remove_there: bool = False
    """Its branch at the forge is to go too."""


@record
class BaseMoved(Body):
    """The branch that it is to land on is at another commit."""

    head: str


@record
class ConflictsSeen(Body):
    """Whether head and base go together, looked at these two commits; no files: they do."""

    head: str
    base_head: str
    files: tuple[str, ...] = ()


@record
class MergeRequested(Body):
    """It may land: a person's word, or a rule's."""

    strategy: str = "squash"
    force: bool = False
    delete_after: bool = True


@record
class LandingWaits(Body):
    """It cannot land just now."""

    reason: str


@record
class LandingFailed(Body):
    """It was refused: a conflict, a failing check, a branch that moved."""

    reason: str
    cause: str = ""
    """`conflict`, `checks`, `moved`, `called-off` or `error`."""


@record
class ConflictPredicted(Body):
    """Its branch and that of an `other`, elder session will collide: `text`, they cannot be merged, or `overlap`, both change one place."""

    other: str
    files: tuple[str, ...]
    kind: str


@record
class ConflictCleared(Body):
    """A predicted conflict is over, or less than it was: these files are left."""

    other: str
    files: tuple[str, ...] = ()
    kind: str = "text"
