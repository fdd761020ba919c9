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
    """Its title changed, it became a draft again, or it was reopened; or the forge's requirements changed."""

    title: str
    draft: bool
    state: str = "open"
    blocked: str = ""
    """What the forge requires before it may be merged."""


@record
class PrClosed(Body):
    """It was closed without a merge."""

    reason: str = ""


@record
class PrMerged(Body):
    """It was merged: the base branch went from `base_before` to `commit`."""

    commit: str
    base_before: str
    head: str
    strategy: str = "squash"
    keep_branch: bool = False
    left: tuple[str, ...] = ()
    """Files in its workspace that were not committed, and so were not merged."""
    remove_there: bool = False
    """Its branch at the forge is to go too."""


@record
class BaseMoved(Body):
    """The branch that it is to be merged into is at another commit."""

    head: str


@record
class ConflictsSeen(Body):
    """Whether head and base go together, looked at these two commits; no files: they do."""

    head: str
    base_head: str
    files: tuple[str, ...] = ()


@record
class MergeRequested(Body):
    """It may be merged: by a person's or a rule's request."""

    strategy: str = "squash"
    force: bool = False
    delete_after: bool = True


@record
class LandingWaits(Body):
    """It cannot be merged now."""

    reason: str


@record
class LandingFailed(Body):
    """It was refused: a conflict, a failing check, a branch that moved."""

    reason: str
    cause: str = ""
    """`conflict`, `checks`, `moved`, `called-off` or `error`."""


@record
class ConflictPredicted(Body):
    """It will conflict with an `other`, elder session: `text`, they cannot be merged, or `overlap`, both change the same place."""

    other: str
    files: tuple[str, ...]
    kind: str


@record
class ConflictCleared(Body):
    """A predicted conflict is over, or less than it was: these files are left."""

    other: str
    files: tuple[str, ...] = ()
    kind: str = "text"
