"""Move a branch together with the checkouts that are on it.

Steps, each of which may be the last before a crash (`recovery.py` sets right what it leaves):

    locked      a checkout of the branch is kept from other Git commands   (only where there is one)
    files       its files are those of the new commit
    index       its index is
    ref         the branch is; a compare-and-swap
    unlocked    the checkout is its user's again
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.merge.model import Waits
from agent_orchestrator.changes.merge.recovery import settle_checkouts
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.changes.merge.user_checkout import Checkout, checkouts_of, is_on
from agent_orchestrator.errors import AoError


def go_on(_: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Move:
    """A branch that goes from one commit to another; the caller holds the repository's lock."""

    repository: Repository
    branch: str
    old: str
    new: str
    work: Path
    reason: str
    """For the branch's reflog."""
    provided: tuple[str, ...] = ()
    """What else must hold when it moves, in words of `git update-ref --stdin`."""
    after: Callable[[str], None] = go_on
    """Told the name of each step that is done."""
    workspaces: Collection[Path] = ()
    """Of agents that have no business on the branch: whatever they leave there is waited for by nobody."""

    async def followers(self) -> list[Checkout] | Waits:
        """The checkouts that go with it, none of which has anything in the way."""
        if self.old == self.new:
            return []
        found = await checkouts_of(self.repository, self.branch, self.workspaces)
        for checkout in found if isinstance(found, list) else []:
            waits = await checkout.obstacle(self.old, self.new, self.work)
            if waits is not None:
                return waits
        return found

    async def run(self, followers: list[Checkout]) -> Waits | None:
        """Checkouts first, the ref after them; whatever fails leaves both as they were."""
        moving = asyncio.ensure_future(self._run(followers))
        try:
            return await asyncio.shield(moving)
        except asyncio.CancelledError:
            # A Git command that is ended half-way leaves locks and half-written files: let it come to its end.
            await asyncio.wait([moving])
            raise

    async def _run(self, followers: list[Checkout]) -> Waits | None:
        ref = f"refs/heads/{self.branch}"
        try:
            for checkout in followers:
                waits = await checkout.lock(ref, self.old, self.new)
                if waits is None:
                    self.after("locked")
                    waits = await self._follow(checkout)
                if waits is not None:
                    await settle_checkouts(self.repository)
                    return waits
            await self._leave_behind()
            swap = [f"update {ref} {self.new} {self.old}"] if self.old != self.new else []
            await self.repository.git.update_refs((*self.provided, *swap), self.reason)
        except (Exception, asyncio.CancelledError):
            await settle_checkouts(self.repository)
            raise
        self.after("ref")
        for checkout in followers:
            if await checkout.stayed(self.old):
                await checkout.retreat(self.old, self.new)
            checkout.unlock()
        self.after("unlocked")
        if self.old != self.new:
            await self._catch_up({checkout.top for checkout in followers})
        return None

    async def _follow(self, checkout: Checkout) -> Waits | None:
        if not await is_on(checkout, self.branch):
            return Waits(f"{checkout.top} was switched to another branch just now", checkout.top)
        return await checkout.advance(self.old, self.new, self.after)

    async def _leave_behind(self) -> None:
        """An agent that has checked the branch out keeps its files, its index and the commit, and is on no branch from then on."""
        agents = {os.path.realpath(path) for path in self.workspaces}
        for entry in await self.repository.git.worktrees() if agents and self.old != self.new else ():
            if entry.branch == self.branch and os.path.realpath(entry.path) in agents:
                with suppress(AoError):  # it may hold a lock there for ever
                    await Git(self.repository.git.host, entry.path).update_ref("HEAD", self.old, reason=self.reason)

    async def _catch_up(self, done: set[Path]) -> None:
        """Somebody may have checked the branch out between our looking and its moving."""
        found = await checkouts_of(self.repository, self.branch, self.workspaces)
        for checkout in [] if isinstance(found, Waits) else found:
            if checkout.top in done:
                continue
            if await checkout.lock(f"refs/heads/{self.branch}", self.old, self.new) is None:
                try:
                    await self._follow(checkout)
                finally:
                    checkout.unlock()
