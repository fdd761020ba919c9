"""Events of a session's workspace and branch: where they are, their commits, their base branch, and rescued work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class WorkspaceCreated(Body):
    """The session's folder is there."""

    path: str
    branch: str
    base: str
    base_commit: str
    head: str
    git_dir: str
    notes: tuple[str, ...] = ()
    git_env: Mapping[str, str] = field(default_factory=dict)
    shared: bool = True
    forgot: bool = False
    """The agent's conversation could not be moved along: a new one begins."""
    copied: tuple[str, ...] = ()
    """What the project's `copy` named, by which it is saved with the workspace, whatever is named later."""


@record
class WorkPublished(Body):
    """The workspace's commits up to this one are in the main repository."""

    head: str


@record
class WorkPushed(Body):
    """The branch is at this commit at the forge, by our doing."""

    head: str


@record
class HeadMoved(Body):
    """The workspace's HEAD is at another commit."""

    head: str


@record
class BaseChanged(Body):
    """The change is for another branch, or its base was rewritten: the base was merged, rebased or given up."""

    base: str
    reason: str
    below: str = ""
    """Its own commits are those after this one, and are to be put onto the base; empty: they stay where they are."""


@record
class BranchRebased(Body):
    """Its own commits stand on this commit of its base now."""

    onto: str


@record
class RebaseRefused(Body):
    """Its own commits, up to this one, cannot be put onto its base by themselves."""

    head: str
    reason: str


@record
class WorkRescued(Body):
    """What was unsaved in the workspace is under a rescue ref."""

    ref: str
    commit: str
    what: tuple[str, ...] = ()
