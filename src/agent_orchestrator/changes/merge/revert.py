"""Revert a merge by a new change: the inverse of what it did to the base, on top of the present base."""

from __future__ import annotations

from shlex import quote

from agent_orchestrator.base.git.commands import REF_ABSENT
from agent_orchestrator.base.git.refs import escape_for_ref
from agent_orchestrator.changes.merge.commits import CommitWriter, read_commits
from agent_orchestrator.changes.merge.merge_tree import open_merger
from agent_orchestrator.changes.merge.model import Conflicted, Reverted, RevertSpec
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols.host import Host


async def revert(host: Host, spec: RevertSpec) -> Reverted | Conflicted:
    """Make the branch `revert/<session>` with one commit that reverts the merge; a repeated call returns the same branch.

    Raises `Conflict` if the merge changed nothing, is not on the base, or is reverted already.
    """
    repository = await open_repository(host, spec.repo, spec.base)
    base = await repository.base_head(spec.base)
    landed, base_before = (
        await repository.resolve_commit(spec.merged_commit),
        await repository.resolve_commit(spec.base_before),
    )
    if landed == base_before:
        raise Conflict(f"the landing of {spec.session} changed nothing", "there is nothing to undo")
    if not await repository.git.is_ancestor(landed, base):
        raise Conflict(f"{landed[:12]}, the landing of {spec.session}, is not on {spec.base} any more")
    marker = _revert_marker(landed, base_before, is_single=await repository.git.resolve(f"{landed}^") == base_before)
    branch, earlier = await _find_branch(repository, spec.session, marker, base)
    if earlier is not None:
        return Reverted(branch, earlier, await repository.tree(earlier), await repository.resolve_commit(f"{earlier}^"))
    async with open_merger(repository, spec.work, base) as merger:
        merge = await merger.apply(landed, base_before, base)
    if merge.conflicts:
        return Conflicted(merge.conflicts, base)
    if merge.tree == await repository.tree(base):
        raise Conflict(f"the landing of {spec.session} is undone already", f"see `git log {quote(spec.base)}`")
    writer = CommitWriter(repository.git, await repository.git.config(), spec.work)
    subject = (await read_commits(repository.git, "-1", landed))[0].subject
    author = spec.author or writer.user or ("Agent Orchestrator", "ao@localhost")
    commit = await writer.write(merge.tree, (base,), f'Revert "{subject}"\n\n{marker}\n', author)
    await repository.git.update_ref(f"refs/heads/{branch}", commit, REF_ABSENT, f"ao: undo {spec.session}")
    return Reverted(branch, commit, merge.tree, base)


def _revert_marker(landed: str, base_before: str, *, is_single: bool) -> str:
    """Return the line of the commit message that names the reverted commits."""
    return f"This reverts commit {landed}." if is_single else f"This reverts commits {base_before}..{landed}."


async def _find_branch(repository: Repository, session: str, marker: str, base: str) -> tuple[str, str | None]:
    """Return the first free name `revert/<session>[-n]`, or an earlier unmerged revert of the same merge with its commit."""
    number = 1
    while True:
        branch = f"revert/{escape_for_ref(session)}" + (f"-{number}" if number > 1 else "")
        tip = await repository.head(branch)
        if tip is None:
            return branch, None
        if not await repository.git.is_ancestor(tip, base):
            commits = await read_commits(repository.git, f"{base}..{tip}")
            if marker in commits[-1].message:
                return branch, tip
        number += 1
