"""What a landing is asked with, and every way it can end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agent_orchestrator.protocols.records import record

Strategy = Literal["squash", "merge", "rebase"]
Person = tuple[str, str]
"""Name and address."""


@record
class LandingSpec:
    """What is to land, and how."""

    session: str
    repo: Path
    branch: str
    head: str
    """The exact commit that may land; the branch must still be there."""
    base: str
    """The branch that it lands on."""
    strategy: Strategy
    title: str
    body: str
    work: Path
    """A folder for scratch files, below `$AO_HOME`."""
    author: Person | None = None
    """Whose commit a squash or a merge is; none: who wrote the branch's last commit."""


@record
class Built:
    """What would land: `commit` on top of `base_before`."""

    commit: str
    tree: str
    base_before: str
    up_to_date: bool = False
    """The base has all of it already; `commit` is `base_before`."""
    notes: tuple[str, ...] = ()
    """What a person should know of how it was made."""


@record
class Conflicted:
    """It cannot be merged without somebody's decision on these files."""

    files: tuple[str, ...]
    base_before: str


@record
class Landed:
    """The base branch has it: it went from `base_before` to `commit`, now or in an earlier call."""

    base_before: str
    commit: str


@record
class Moved:
    """The base branch is not where it was when the landing was built; build again. None: the base branch is gone."""

    now: str | None


@record
class BranchMoved:
    """The branch is not at the commit that may land. None: it is gone."""

    now: str | None


@record
class Waits:
    """Somebody's checkout of the base branch cannot follow; try again once `reason` is over. Nothing was changed."""

    reason: str
    checkout: Path
    files: tuple[str, ...] = ()


@record
class RebaseSpec:
    """Which commits are to stand on another one."""

    repo: Path
    branch: str
    head: str
    """The exact commit that the branch is at."""
    below: tuple[str, ...]
    """Commits that are not its own, of which its own come after the latest."""
    base: str
    """How the new base is called."""
    onto: str
    """The new base's commit."""
    work: Path
    merge: bool = False
    """Its commits must not be rewritten: merge the base into it."""


@record
class Rebased:
    """The branch is at `head`, and stands on `onto`."""

    head: str
    onto: str


@record
class UndoSpec:
    """Which landing is to be taken back: what moved `base` from `base_before` to `landed`."""

    session: str
    repo: Path
    base: str
    landed: str
    base_before: str
    work: Path
    author: Person | None = None
    """Whose commit it is; none: the user that Git is configured for."""


@record
class Reverted:
    """A branch with one commit that takes a landing back; it lands like any other change."""

    branch: str
    commit: str
    tree: str
    base_before: str


@record
class LandedElsewhere:
    """A forge's word that a change has landed there."""

    head: str
    """The commit of its branch that has."""
    base: str | None
    """The base's commit, as it was last fetched; none: it was not."""


@record
class Cleaned:
    """What became of a landed branch."""

    deleted: bool
    reason: str
    """Why it was kept; empty when it was deleted."""
    kept: str = ""
    """The ref that still has its commits."""
