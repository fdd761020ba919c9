"""Rebase a branch's own commits onto another commit, together with its checkout.

Commits that people have seen are not rewritten: such a branch gets one merge of the new base instead, whose tree is the
same.
"""

from __future__ import annotations

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.branch_move import BranchMove
from agent_orchestrator.changes.merge.build import replay
from agent_orchestrator.changes.merge.commits import CommitWriter, read_commits
from agent_orchestrator.changes.merge.merge_tree import open_merger
from agent_orchestrator.changes.merge.model import Blocked, Conflicted, MovedBranch, Rebased, RebaseSpec
from agent_orchestrator.changes.merge.recovery import repair_checkouts_locked
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.protocols.host import Host

RebaseOutcome = Rebased | Conflicted | MovedBranch | Blocked


async def rebase(host: Host, spec: RebaseSpec) -> RebaseOutcome:
    """Rebase a branch; a repeated call, after a crash for example, finds it done."""
    repository = await open_repository(host, spec.repo, spec.branch)
    async with repository_lock(repository.common):
        await repair_checkouts_locked(repository)
        head = await repository.head(spec.branch)
        if head != spec.head:
            return MovedBranch(head)
        git = repository.git
        if await git.is_ancestor(spec.onto, spec.head):
            return Rebased(spec.head, spec.onto)
        below = await _last_foreign_commit(repository, spec)
        if below is None:
            return Rebased(spec.head, await git.merge_base(spec.head, spec.onto) or spec.onto)
        new_head = (
            await _merge_base_into(repository, spec, below)
            if spec.preserves_commits
            else await _replay_onto(repository, spec, below)
        )
        return new_head if isinstance(new_head, Conflicted) else await _move_branch(repository, spec, new_head)


async def _last_foreign_commit(repository: Repository, spec: RebaseSpec) -> str | None:
    """Return the last commit that is not the branch's own, or None if the branch was rebased elsewhere already."""
    git = repository.git
    contained = [commit for commit in spec.foreign_commits if await git.is_ancestor(commit, spec.head)]
    if not contained:
        return None
    latest = contained[0]
    for commit in spec.foreign_commits:
        shared = await git.merge_base(spec.head, commit)
        if shared and await git.is_ancestor(latest, shared):
            latest = shared
    return latest


async def _replay_onto(repository: Repository, spec: RebaseSpec, below: str) -> str | Conflicted:
    """Return the head after replaying the branch's own commits onto the new base, or the conflicts."""
    own = await read_commits(repository.git, "--reverse", "--first-parent", f"{below}..{spec.head}")
    async with open_merger(repository, spec.work, spec.onto) as merger:
        writer = CommitWriter(repository.git, await repository.git.config(), spec.work)
        replayed = await replay(repository, merger, writer, spec.onto, own)
    return replayed if isinstance(replayed, Conflicted) else replayed[0]


async def _merge_base_into(repository: Repository, spec: RebaseSpec, below: str) -> str | Conflicted:
    """Return the head after merging the new base into the branch, or the conflicts."""
    last_commit = (await read_commits(repository.git, "-1", spec.head))[0]
    async with open_merger(repository, spec.work, spec.onto) as merger:
        merge = await merger.apply(below, spec.head, spec.onto)
        if merge.conflicts:
            return Conflicted(merge.conflicts, spec.onto)
        writer = CommitWriter(repository.git, await repository.git.config(), spec.work)
        text = f"Merge {spec.base} into {spec.branch}\n"
        return await writer.write(merge.tree, (spec.head, spec.onto), text, writer.user or last_commit.author)


async def _move_branch(repository: Repository, spec: RebaseSpec, new_head: str) -> RebaseOutcome:
    """Move the branch and its checkout to the new head."""
    move = BranchMove(repository, spec.branch, spec.head, new_head, spec.work, f"ao: rebased onto {spec.base}")
    followers = await move.find_checkouts()
    if isinstance(followers, Blocked):
        return followers
    try:
        return await move.run(followers) or Rebased(new_head, spec.onto)
    except GitFailed:
        head = await repository.head(spec.branch)
        if head == spec.head:
            raise
        return MovedBranch(head)
