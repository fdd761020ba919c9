"""Move the base branch to what was built, exactly once.

First `refs/ao/landed/<session>/<head>` names what is about to land ("recorded"), then the base moves (`move.py`). Each step may be
the last before a crash; the next call finds out how far it came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.model import BranchMoved, Built, Landed, LandingSpec, Moved, Waits
from agent_orchestrator.changes.merge.move import Move, go_on
from agent_orchestrator.changes.merge.records import landing_done, write_record
from agent_orchestrator.changes.merge.recovery import settle_checkouts
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.protocols.host import Host

Outcome = Landed | Moved | BranchMoved | Waits


async def land(
    host: Host,
    spec: LandingSpec,
    built: Built,
    after: Callable[[str], None] = go_on,
    workspaces: Collection[Path] = (),
) -> Outcome:
    """Land what was built; called again after a crash or by mistake, the same landing is found done, not done again.

    `after` is told the name of each step that is done. `workspaces` are those of agents: none of them keeps the base from moving.
    """
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    async with repository_lock(repository.common):
        await settle_checkouts(repository)
        now = await repository.head(spec.base)
        done = now and await landing_done(repository, spec.session, spec.head, now)
        return done or await _moved(repository, spec, built) or await _land(repository, spec, built, after, workspaces)


async def _land(
    repository: Repository, spec: LandingSpec, built: Built, after: Callable[[str], None], workspaces: Collection[Path]
) -> Outcome:
    old, new = built.base_before, built.commit
    unmoved = f"verify refs/heads/{spec.branch} {spec.head}"
    reason = f"ao: landed {spec.session}"
    move = Move(repository, spec.base, old, new, spec.work, reason, (unmoved,), after, workspaces)
    followers = await move.followers()
    if isinstance(followers, Waits):
        return followers
    await write_record(repository, spec.session, spec.head, Landed(old, new))
    after("recorded")
    try:
        return await move.run(followers) or Landed(old, new)
    except GitFailed:
        moved = await _moved(repository, spec, built)
        if moved is None:
            raise
        return moved


async def _moved(repository: Repository, spec: LandingSpec, built: Built) -> Moved | BranchMoved | None:
    now = await repository.head(spec.branch)
    if now != spec.head:
        return BranchMoved(now)
    base = await repository.head(spec.base)
    if base != built.base_before or await repository.git.resolve(built.commit) is None:
        return Moved(base)
    return None
