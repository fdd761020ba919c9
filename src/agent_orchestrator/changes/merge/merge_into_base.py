"""Move the base branch to a built merge, exactly once.

First `refs/ao/landed/<session>/<head>` names the commit that is about to merge (step "recorded"), then the base moves
(`branch_move.py`). A crash may follow each step; the next call finds out how far the merge came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.branch_move import BranchMove, ignore_step
from agent_orchestrator.changes.merge.merge_records import find_recorded_merge, write_record
from agent_orchestrator.changes.merge.model import (
    Blocked,
    BuiltMerge,
    CompletedMerge,
    MergeSpec,
    MovedBase,
    MovedBranch,
)
from agent_orchestrator.changes.merge.recovery import repair_checkouts_locked
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.protocols.host import Host

MergeOutcome = CompletedMerge | MovedBase | MovedBranch | Blocked


async def merge(
    host: Host,
    spec: MergeSpec,
    built: BuiltMerge,
    after: Callable[[str], None] = ignore_step,
    workspaces: Collection[Path] = (),
) -> MergeOutcome:
    """Merge what was built. A repeated call, after a crash for example, finds the merge done and does not repeat it.

    `after` is called with the name of each completed step. `workspaces` are the agents' workspaces, none of which keeps
    the base from moving.
    """
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    async with repository_lock(repository.common):
        await repair_checkouts_locked(repository)
        base_head = await repository.head(spec.base)
        landing = base_head and await find_recorded_merge(repository, spec.session, spec.head, base_head)
        return (
            landing
            or await _find_movement(repository, spec, built)
            or await _move_base(repository, spec, built, after, workspaces)
        )


async def _move_base(
    repository: Repository,
    spec: MergeSpec,
    built: BuiltMerge,
    after: Callable[[str], None],
    workspaces: Collection[Path],
) -> MergeOutcome:
    """Record the merge and move the base branch."""
    base_before, commit = built.base_before, built.commit
    branch_condition = f"verify refs/heads/{spec.branch} {spec.head}"
    reason = f"ao: landed {spec.session}"
    move = BranchMove(
        repository, spec.base, base_before, commit, spec.work, reason, (branch_condition,), after, workspaces
    )
    followers = await move.find_checkouts()
    if isinstance(followers, Blocked):
        return followers
    await write_record(repository, spec.session, spec.head, CompletedMerge(base_before, commit))
    after("recorded")
    try:
        return await move.run(followers) or CompletedMerge(base_before, commit)
    except GitFailed:
        moved = await _find_movement(repository, spec, built)
        if moved is None:
            raise
        return moved


async def _find_movement(repository: Repository, spec: MergeSpec, built: BuiltMerge) -> MovedBase | MovedBranch | None:
    """Return where the branch or the base is if it is not where it was when the merge was built, otherwise None."""
    branch_head = await repository.head(spec.branch)
    if branch_head != spec.head:
        return MovedBranch(branch_head)
    base_head = await repository.head(spec.base)
    if base_head != built.base_before or await repository.git.resolve(built.commit) is None:
        return MovedBase(base_head)
    return None
