"""Repair checkouts that a crash during a merge left half-moved."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import repository_lock
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.changes.merge.user_checkout import BranchCheckout, LockContent, list_checkouts
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

log = structlog.get_logger()


async def repair_checkouts(host: Host, repo: Path) -> tuple[Path, ...]:
    """Finish or revert half-made moves of checkouts, at the daemon's start; return the checkouts that had one."""
    repository = await open_repository(host, repo)
    async with repository_lock(repository.common):
        return await repair_checkouts_locked(repository)


async def repair_checkouts_locked(repository: Repository) -> tuple[Path, ...]:
    """Finish or revert half-made moves of checkouts, for a caller that holds the repository's lock.

    A checkout that cannot be repaired keeps its lock, so only moves of that checkout wait.
    """
    repaired = []
    for checkout, _ in await list_checkouts(repository):
        marker = checkout.read_stale_lock()
        if marker is None:
            continue
        try:
            await _repair(repository, checkout, marker)
        except AoError as error:  # an agent may have written the marker in its checkout
            is_users_checkout = os.path.realpath(checkout.top) == os.path.realpath(repository.git.repo)
            if error.retryable and marker.pid == os.getpid() and is_users_checkout:
                raise  # left by this process in the user's checkout: the caller tries again
            log.warning("a checkout could not be set right", checkout=str(checkout.top), error=str(error))
            continue
        checkout.unlock()
        repaired.append(checkout.top)
    return tuple(repaired)


async def _repair(repository: Repository, checkout: BranchCheckout, marker: LockContent) -> None:
    """Move a half-moved checkout back to the old commit, unless the branch has moved and the checkout is still on it."""
    branch_head = await repository.git.resolve(marker.ref)
    # The ref moves last: if it has moved, files and index are right, unless the checkout left the branch meanwhile.
    has_moved = branch_head is not None and await repository.git.is_ancestor(marker.new, branch_head)
    if not has_moved or await checkout.is_still_at(marker.old):
        await checkout.move_back(marker.old, marker.new)
