"""Put a branch's own commits onto another commit, with its checkout following.

Commits that people have seen are not rewritten: such a branch gets one merge of the new base instead, whose tree is the same.
"""

from __future__ import annotations

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.build import replay
from agent_orchestrator.changes.merge.commits import Writer, read_commits
from agent_orchestrator.changes.merge.merge_tree import merging
from agent_orchestrator.changes.merge.model import BranchMoved, Conflicted, Rebased, RebaseSpec, Waits
from agent_orchestrator.changes.merge.move import Move
from agent_orchestrator.changes.merge.recovery import settle_checkouts
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.protocols.host import Host

Outcome = Rebased | Conflicted | BranchMoved | Waits


async def rebase(host: Host, spec: RebaseSpec) -> Outcome:
    """Rebase; called again after a crash, a branch that stands on the commit already is found to."""
    repository = await open_repository(host, spec.repo, spec.branch)
    async with repository_lock(repository.common):
        await settle_checkouts(repository)
        now = await repository.head(spec.branch)
        if now != spec.head:
            return BranchMoved(now)
        git = repository.git
        if await git.is_ancestor(spec.onto, spec.head):
            return Rebased(spec.head, spec.onto)
        below = await _below(repository, spec)
        if below is None:
            return Rebased(spec.head, await git.merge_base(spec.head, spec.onto) or spec.onto)
        new = await _merged(repository, spec, below) if spec.merge else await _replayed(repository, spec, below)
        return new if isinstance(new, Conflicted) else await _move(repository, spec, new)


async def _below(repository: Repository, spec: RebaseSpec) -> str | None:
    """The last commit that is not its own; none: somebody has put it elsewhere already."""
    git = repository.git
    stood_on = [commit for commit in spec.below if await git.is_ancestor(commit, spec.head)]
    if not stood_on:
        return None
    latest = stood_on[0]
    for commit in spec.below:
        shared = await git.merge_base(spec.head, commit)
        if shared and await git.is_ancestor(latest, shared):
            latest = shared
    return latest


async def _replayed(repository: Repository, spec: RebaseSpec, below: str) -> str | Conflicted:
    own = await read_commits(repository.git, "--reverse", "--first-parent", f"{below}..{spec.head}")
    async with merging(repository, spec.work, spec.onto) as merger:
        writer = Writer(repository.git, await repository.git.config(), spec.work)
        done = await replay(repository, merger, writer, spec.onto, own)
    return done if isinstance(done, Conflicted) else done[0]


async def _merged(repository: Repository, spec: RebaseSpec, below: str) -> str | Conflicted:
    last = (await read_commits(repository.git, "-1", spec.head))[0]
    async with merging(repository, spec.work, spec.onto) as merger:
        merge = await merger.apply(below, spec.head, spec.onto)
        if merge.conflicts:
            return Conflicted(merge.conflicts, spec.onto)
        writer = Writer(repository.git, await repository.git.config(), spec.work)
        text = f"Merge {spec.base} into {spec.branch}\n"
        return await writer.write(merge.tree, (spec.head, spec.onto), text, writer.user or last.author)


async def _move(repository: Repository, spec: RebaseSpec, new: str) -> Outcome:
    move = Move(repository, spec.branch, spec.head, new, spec.work, f"ao: rebased onto {spec.base}")
    followers = await move.followers()
    if isinstance(followers, Waits):
        return followers
    try:
        return await move.run(followers) or Rebased(new, spec.onto)
    except GitFailed:
        now = await repository.head(spec.branch)
        if now == spec.head:
            raise
        return BranchMoved(now)
