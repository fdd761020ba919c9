"""Set right what a crash in the middle of a landing left in somebody's checkout."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import repository_lock
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.changes.merge.user_checkout import Checkout, Marker, checkouts
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

log = structlog.get_logger()


async def settle(host: Host, repo: Path) -> tuple[Path, ...]:
    """Finish or take back half-made moves of checkouts; returns those that had one. For the daemon's start."""
    repository = await open_repository(host, repo)
    async with repository_lock(repository.common):
        return await settle_checkouts(repository)


async def settle_checkouts(repository: Repository) -> tuple[Path, ...]:
    """The same, for a caller that holds the repository's lock. One that cannot be set right keeps its lock: only who moves it waits."""
    found = []
    for checkout, _ in await checkouts(repository):
        marker = checkout.left_behind()
        if marker is None:
            continue
        try:
            await _set_right(repository, checkout, marker)
        except AoError as error:  # an agent in whose checkout it lies may have written it
            of_user = os.path.realpath(checkout.top) == os.path.realpath(repository.git.repo)
            if error.retryable and marker.pid == os.getpid() and of_user:
                raise  # our own landing's, in the user's checkout: it is set right as soon as it can be
            log.warning("a checkout could not be set right", checkout=str(checkout.top), error=str(error))
            continue
        checkout.unlock()
        found.append(checkout.top)
    return tuple(found)


async def _set_right(repository: Repository, checkout: Checkout, marker: Marker) -> None:
    now = await repository.git.resolve(marker.ref)
    # The ref moves last: where it has moved, files and index are as they should be, unless the checkout is not on it any more.
    moved = now is not None and await repository.git.is_ancestor(marker.new, now)
    if not moved or await checkout.stayed(marker.old):
        await checkout.retreat(marker.old, marker.new)
