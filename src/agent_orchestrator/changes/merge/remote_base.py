"""Move a local base branch after it moved at the remote; nothing of its user's is touched."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.base.git.commands import GitFailed, repository_lock
from agent_orchestrator.changes.merge.branch_move import BranchMove
from agent_orchestrator.changes.merge.recovery import repair_checkouts_locked
from agent_orchestrator.changes.merge.repository import open_repository
from agent_orchestrator.protocols.host import Host


async def follow_remote_base(host: Host, repo: Path, base: str, to: str, work: Path) -> str:
    """Move the local base to a commit that is in the repository; return why it stays where it is, or "".

    Unlike a merge it does not wait: a user with changes in the way gets the commits by `git pull` later.
    """
    repository = await open_repository(host, repo, base)
    async with repository_lock(repository.common):
        await repair_checkouts_locked(repository)
        head = await repository.head(base)
        if head is None or head == to or await repository.git.is_ancestor(to, head):
            return ""
        if not await repository.git.is_ancestor(head, to):
            return f"{base} has commits of its own"
        move = BranchMove(repository, base, head, to, work, "ao: landed at the forge")
        followers = await move.find_checkouts()
        try:
            obstacle = await move.run(followers) if isinstance(followers, list) else followers
        except GitFailed as error:
            return f"{base} moved just now: {error.text}"
        return obstacle.reason if obstacle is not None else ""
