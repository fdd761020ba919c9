"""The input of merges, reverts and rebases, and all their outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agent_orchestrator.protocols.records import record

Strategy = Literal["squash", "merge", "rebase"]
Person = tuple[str, str]
"""Name and address."""


@record
class MergeSpec:
    """What is to merge, and how."""

    session: str
    repo: Path
    branch: str
    head: str
    """The exact commit that may merge; the branch must still be at it."""
    base: str
    """The branch that it merges into."""
    strategy: Strategy
    title: str
    body: str
    work: Path
    """A folder for scratch files, below `$AO_HOME`."""
    author: Person | None = None
    """The author of a squash or merge commit; None for the author of the branch's last commit."""


@record
class BuiltMerge:
    """A built merge: `commit` on top of `base_before`."""

    commit: str
    tree: str
    base_before: str
    up_to_date: bool = False
    """The base has all of it already; `commit` is `base_before`."""
    notes: tuple[str, ...] = ()
    """What a person should know about how it was built."""


@record
class Conflicted:
    """These files conflict, so it cannot be merged."""

    files: tuple[str, ...]
    base_before: str


@record
class CompletedMerge:
    """The change has merged: the base branch moved from `base_before` to `commit`, in this call or an earlier one."""

    base_before: str
    commit: str


@record
class MovedBase:
    """The base branch moved since the merge was built, so it must be built again.

    `now` is None if the base branch is gone.
    """

    head: str | None


@record
class MovedBranch:
    """The branch is not at the commit that may merge. `now` is None if the branch is gone."""

    head: str | None


@record
class Blocked:
    """A user's checkout of the base branch cannot follow; try again once `reason` is over. Nothing was changed."""

    reason: str
    checkout: Path
    files: tuple[str, ...] = ()


@record
class RebaseSpec:
    """Which commits are to be moved onto another one."""

    repo: Path
    branch: str
    head: str
    """The exact commit that the branch is at."""
    foreign_commits: tuple[str, ...]
    """Commits that are not the branch's own; its own come after the latest of them."""
    base: str
    """The name of the new base."""
    onto: str
    """The new base's commit."""
    work: Path
    preserves_commits: bool = False
    """Its commits must not be rewritten: merge the base into it instead."""


@record
class Rebased:
    """The branch is at `head`, which contains `onto`."""

    head: str
    onto: str


@record
class RevertSpec:
    """Which merge is to be reverted: the one that moved `base` from `base_before` to `landed`."""

    session: str
    repo: Path
    base: str
    merged_commit: str
    base_before: str
    work: Path
    author: Person | None = None
    """The author of the revert; None for the user that Git is configured for."""


@record
class Reverted:
    """A branch with one commit that reverts a merge; it merges like any other change."""

    branch: str
    commit: str
    tree: str
    base_before: str


@record
class MergedAtForge:
    """A forge's report that a change has merged there."""

    head: str
    """The branch's commit that has merged."""
    base: str | None
    """The base's commit as last fetched; None if it was not fetched."""


@record
class CleanupResult:
    """What became of a merged branch."""

    deleted: bool
    reason: str
    """Why it was kept; "" if it was deleted."""
    record_ref: str = ""
    """The ref that still has its commits."""
