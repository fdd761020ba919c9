"""Move the base branch to what was built, exactly once.

Steps, each of which may be the last before a crash; the next call finds out how far it came:

    recorded    `refs/ao/landed/<session>/<head>` names what is about to land
    locked      a checkout of the base is kept from other Git commands   (only where there is one)
    files       its files are those of the new commit
    index       its index is
    ref         the base branch is; the compare-and-swap that makes it a landing
    unlocked    the checkout is its user's again
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agent_orchestrator.git import GitFailed, repository_lock
from agent_orchestrator.host import Host
from agent_orchestrator.services.landing.checkout import Checkout, checkouts_of, is_on
from agent_orchestrator.services.landing.model import BranchMoved, Built, Landed, LandingSpec, Moved, Waits
from agent_orchestrator.services.landing.record import landing_done, write_record
from agent_orchestrator.services.landing.repository import Repository, open_repository
from agent_orchestrator.services.landing.settle import settle_checkouts

Outcome = Landed | Moved | BranchMoved | Waits


def _go_on(_: str) -> None:
    """Nobody wants to know."""


async def land(host: Host, spec: LandingSpec, built: Built, after: Callable[[str], None] = _go_on) -> Outcome:
    """Land what was built; called again after a crash or by mistake, the same landing is found done, not done again.

    `after` is told the name of each step that is done.
    """
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    async with repository_lock(repository.common):
        await settle_checkouts(repository)
        return await _Landing(repository, spec, built, after).run()


class _Landing:
    def __init__(self, repository: Repository, spec: LandingSpec, built: Built, after: Callable[[str], None]) -> None:
        self._repository = repository
        self._git = repository.git
        self._spec = spec
        self._built = built
        self._after = after
        self._ref = f"refs/heads/{spec.base}"

    async def run(self) -> Outcome:
        done = await self._done()
        if done is not None:
            return done
        moved = await self._moved()
        if moved is not None:
            return moved
        old, new = self._built.base_before, self._built.commit
        followers: list[Checkout] = []
        if old != new:
            found = await checkouts_of(self._repository, self._spec.base)
            if isinstance(found, Waits):
                return found
            followers = found
        for checkout in followers:
            waits = await checkout.obstacle(old, new, self._spec.work)
            if waits is not None:
                return waits
        await write_record(self._repository, self._spec.session, self._spec.head, Landed(old, new))
        self._after("recorded")
        moving = asyncio.ensure_future(self._move(followers))
        try:
            return await asyncio.shield(moving)
        except asyncio.CancelledError:
            # A Git command that is ended half-way leaves locks and half-written files: let it come to its end.
            await asyncio.wait([moving])
            raise

    async def _done(self) -> Landed | None:
        now = await self._repository.head(self._spec.base)
        return (now and await landing_done(self._repository, self._spec.session, self._spec.head, now)) or None

    async def _moved(self) -> Moved | BranchMoved | None:
        now = await self._repository.head(self._spec.branch)
        if now != self._spec.head:
            return BranchMoved(now)
        base = await self._repository.head(self._spec.base)
        if base != self._built.base_before or await self._git.resolve(self._built.commit) is None:
            return Moved(base)
        return None

    async def _move(self, followers: list[Checkout]) -> Outcome:
        """Checkouts first, the ref after them; whatever fails leaves both as they were."""
        old, new = self._built.base_before, self._built.commit
        try:
            for checkout in followers:
                waits = await checkout.lock(self._ref, old, new)
                if waits is None:
                    self._after("locked")
                    waits = await self._follow(checkout)
                if waits is not None:
                    await settle_checkouts(self._repository)
                    return waits
            swap = (f"verify refs/heads/{self._spec.branch} {self._spec.head}", f"update {self._ref} {new} {old}")
            await self._git.update_refs(swap if old != new else swap[:1], f"ao: landed {self._spec.session}")
        except (Exception, asyncio.CancelledError) as error:
            await settle_checkouts(self._repository)
            moved = await self._moved() if isinstance(error, GitFailed) else None
            if moved is None:
                raise
            return moved
        self._after("ref")
        for checkout in followers:
            checkout.unlock()
        self._after("unlocked")
        if old != new:
            await self._catch_up({checkout.top for checkout in followers})
        return Landed(old, new)

    async def _follow(self, checkout: Checkout) -> Waits | None:
        if not await is_on(checkout, self._spec.base):
            return Waits(f"{checkout.top} was switched to another branch just now", checkout.top)
        return await checkout.advance(self._built.base_before, self._built.commit, self._after)

    async def _catch_up(self, done: set[Path]) -> None:
        """Somebody may have checked the base out between our looking and its moving."""
        found = await checkouts_of(self._repository, self._spec.base)
        for checkout in [] if isinstance(found, Waits) else found:
            if checkout.top in done:
                continue
            if await checkout.lock(self._ref, self._built.base_before, self._built.commit) is None:
                try:
                    await self._follow(checkout)
                finally:
                    checkout.unlock()
