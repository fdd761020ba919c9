"""Delete a merged branch: only if all of its content is on the base, and never while it is checked out."""

from __future__ import annotations

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.merge_records import find_recorded_merge, record_ref, write_record
from agent_orchestrator.changes.merge.merge_tree import open_merger
from agent_orchestrator.changes.merge.model import CleanupResult, CompletedMerge, MergedAtForge, MergeSpec
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.changes.merge.user_checkout import folders_on_branch
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols.host import Host


async def delete_branch(host: Host, spec: MergeSpec, there: MergedAtForge | None = None) -> CleanupResult:
    """Delete a session's merged branch, and return what became of it.

    Its commits stay under `refs/ao/landed/<session>/`. `there` is given for a change that merged at a forge.
    """
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    async with repository_lock(repository.common):
        tip = await repository.head(spec.branch)
        if tip is None:
            return CleanupResult(True, "")
        if spec.branch == spec.base:
            return CleanupResult(False, f"{spec.branch} is the base branch")
        users = await folders_on_branch(repository, spec.branch)
        if users:
            return CleanupResult(False, f"{spec.branch} is checked out in {users[0]}")
        base = (there.base if there else None) or await repository.base_head(spec.base)
        has_merged = there is not None and await _is_part_of(repository, tip, there.head)
        if not has_merged and not await _is_on_base(repository, spec, tip, base):
            return CleanupResult(False, f"{spec.branch} has commits that are not on {spec.base}")
        record = record_ref(spec.session, tip)
        if await find_recorded_merge(repository, spec.session, tip, base) is None:
            record = await write_record(repository, spec.session, tip, CompletedMerge(base, base))
        try:
            await repository.git.delete_ref(f"refs/heads/{spec.branch}", tip)
        except GitFailed:
            return CleanupResult(False, f"{spec.branch} moved just now")
        await repository.git.run("config", "--local", "--remove-section", f"branch.{spec.branch}", ok=(0, 1, 5, 128))
        return CleanupResult(True, "", record)


async def _is_part_of(repository: Repository, tip: str, head: str) -> bool:
    """Return whether all commits of a branch are in the merged head."""
    if tip == head:
        return True
    return await repository.git.resolve(head) is not None and await repository.git.is_ancestor(tip, head)


async def _is_on_base(repository: Repository, spec: MergeSpec, tip: str, base: str) -> bool:
    """Return whether a branch's content is on the base: as commits, as a recorded merge, or because merging it changes nothing."""
    if await repository.git.is_ancestor(tip, base):
        return True
    if await find_recorded_merge(repository, spec.session, tip, base) is not None:
        return True
    try:
        async with open_merger(repository, spec.work, base) as merger:
            merge = await merger.merge(base, tip)
    except Conflict:
        return False
    return not merge.conflicts and merge.tree == await repository.tree(base)
