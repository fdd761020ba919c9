"""Remove a landed branch: only one whose content is provably on the base, and never one that somebody is on."""

from __future__ import annotations

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.merge_tree import merging
from agent_orchestrator.changes.merge.model import Cleaned, Landed, LandedElsewhere, LandingSpec
from agent_orchestrator.changes.merge.records import landing_done, record_ref, write_record
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.changes.merge.user_checkout import users_of_branch
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols.host import Host


async def cleanup(host: Host, spec: LandingSpec, there: LandedElsewhere | None = None) -> Cleaned:
    """Delete a session's landed branch; its commits stay under `refs/ao/landed/<session>/`. `there`: it landed at a forge."""
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    async with repository_lock(repository.common):
        tip = await repository.head(spec.branch)
        if tip is None:
            return Cleaned(True, "")
        if spec.branch == spec.base:
            return Cleaned(False, f"{spec.branch} is the base branch")
        users = await users_of_branch(repository, spec.branch)
        if users:
            return Cleaned(False, f"{spec.branch} is checked out in {users[0]}")
        base = (there.base if there else None) or await repository.base(spec.base)
        landed = there is not None and await _is_part_of(repository, tip, there.head)
        if not landed and not await _is_on_base(repository, spec, tip, base):
            return Cleaned(False, f"{spec.branch} has commits that are not on {spec.base}")
        kept = record_ref(spec.session, tip)
        if await landing_done(repository, spec.session, tip, base) is None:
            kept = await write_record(repository, spec.session, tip, Landed(base, base))
        try:
            await repository.git.delete_ref(f"refs/heads/{spec.branch}", tip)
        except GitFailed:
            return Cleaned(False, f"{spec.branch} moved just now")
        await repository.git.run("config", "--local", "--remove-section", f"branch.{spec.branch}", ok=(0, 1, 5, 128))
        return Cleaned(True, "", kept)


async def _is_part_of(repository: Repository, tip: str, head: str) -> bool:
    """Is all of a branch in the head that landed?"""
    if tip == head:
        return True
    return await repository.git.resolve(head) is not None and await repository.git.is_ancestor(tip, head)


async def _is_on_base(repository: Repository, spec: LandingSpec, tip: str, base: str) -> bool:
    if await repository.git.is_ancestor(tip, base):
        return True
    if await landing_done(repository, spec.session, tip, base) is not None:
        return True
    try:
        async with merging(repository, spec.work, base) as merger:
            merge = await merger.merge(base, tip)
    except Conflict:
        return False
    return not merge.conflicts and merge.tree == await repository.tree(base)
