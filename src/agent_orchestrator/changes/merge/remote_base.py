"""Follow a base branch that moved elsewhere: the local one goes with it if it can, and nothing of its user's is touched."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.move import Move
from agent_orchestrator.changes.merge.recovery import settle_checkouts
from agent_orchestrator.changes.merge.repository import open_repository
from agent_orchestrator.protocols.host import Host


async def follow(host: Host, repo: Path, base: str, to: str, work: Path) -> str:
    """Bring the local base to a commit that is here already; returns why it stays where it is, or nothing.

    Unlike a landing it does not wait: who has something in the way takes it in by `git pull` when he likes.
    """
    repository = await open_repository(host, repo, base)
    async with repository_lock(repository.common):
        await settle_checkouts(repository)
        now = await repository.head(base)
        if now is None or now == to or await repository.git.is_ancestor(to, now):
            return ""
        if not await repository.git.is_ancestor(now, to):
            return f"{base} has commits of its own"
        move = Move(repository, base, now, to, work, "ao: landed at the forge")
        followers = await move.followers()
        try:
            waits = await move.run(followers) if isinstance(followers, list) else followers
        except GitFailed as error:
            return f"{base} moved just now: {error.text}"
        return waits.reason if waits is not None else ""
