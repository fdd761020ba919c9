"""Move a branch together with the checkouts that are on it.

A crash may follow each step (`recovery.py` repairs what it leaves):

    locked      other Git commands cannot change a checkout of the branch   (only where there is one)
    files       the checkout's files are those of the new commit
    index       its index is that of the new commit
    ref         the branch is at the new commit; moved by a compare-and-swap
    unlocked    the checkout is unlocked
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.merge.model import Blocked
from agent_orchestrator.changes.merge.recovery import repair_checkouts_locked
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.changes.merge.user_checkout import BranchCheckout, find_checkouts, has_checked_out
from agent_orchestrator.errors import AoError


def ignore_step(_: str) -> None:
    """Do nothing after a step."""


@dataclass(frozen=True, slots=True)
class BranchMove:
    """A branch that moves from one commit to another; the caller holds the repository's lock."""

    repository: Repository
    branch: str
    old: str
    new: str
    work: Path
    reason: str
    """The text for the branch's reflog."""
    conditions: tuple[str, ...] = ()
    """Further conditions of the move, as lines of `git update-ref --stdin`."""
    on_step: Callable[[str], None] = ignore_step
    """Called with the name of each completed step."""
    workspaces: Collection[Path] = ()
    """Workspaces of agents that should not be on the branch; they never block the move."""

    async def find_checkouts(self) -> list[BranchCheckout] | Blocked:
        """Return the checkouts that move with the branch, or why one of them cannot."""
        if self.old == self.new:
            return []
        checkouts_found = await find_checkouts(self.repository, self.branch, self.workspaces)
        for checkout in checkouts_found if isinstance(checkouts_found, list) else []:
            obstacle = await checkout.obstacle(self.old, self.new, self.work)
            if obstacle is not None:
                return obstacle
        return checkouts_found

    async def run(self, followers: list[BranchCheckout]) -> Blocked | None:
        """Move the checkouts, then the ref; on failure both stay as they were. Return what blocks the move, or None."""
        moving = asyncio.ensure_future(self._move_all(followers))
        try:
            return await asyncio.shield(moving)
        except asyncio.CancelledError:
            # A cancelled Git command would leave locks and half-written files, so let it finish.
            await asyncio.wait([moving])
            raise

    async def _move_all(self, followers: list[BranchCheckout]) -> Blocked | None:
        """Move the checkouts, then the ref, without protection against cancellation; return what blocks the move, or None."""
        ref = f"refs/heads/{self.branch}"
        try:
            for checkout in followers:
                obstacle = await checkout.lock(ref, self.old, self.new)
                if obstacle is None:
                    self.on_step("locked")
                    obstacle = await self._move_checkout(checkout)
                if obstacle is not None:
                    await repair_checkouts_locked(self.repository)
                    return obstacle
            await self._detach_workspaces()
            swap = [f"update {ref} {self.new} {self.old}"] if self.old != self.new else []
            await self.repository.git.update_refs((*self.conditions, *swap), self.reason)
        except (Exception, asyncio.CancelledError):
            await repair_checkouts_locked(self.repository)
            raise
        self.on_step("ref")
        for checkout in followers:
            if await checkout.is_still_at(self.old):
                await checkout.move_back(self.old, self.new)
            checkout.unlock()
        self.on_step("unlocked")
        if self.old != self.new:
            await self._move_late_checkouts({checkout.top for checkout in followers})
        return None

    async def _move_checkout(self, checkout: BranchCheckout) -> Blocked | None:
        """Move one checkout's files and index; return what blocks it, or None."""
        if not await has_checked_out(checkout, self.branch):
            return Blocked(f"{checkout.top} was switched to another branch just now", checkout.top)
        return await checkout.advance(self.old, self.new, self.on_step)

    async def _detach_workspaces(self) -> None:
        """Detach agents' workspaces that have the branch checked out: they keep files, index and commit, and are then on no branch."""
        agents = {os.path.realpath(path) for path in self.workspaces}
        for entry in await self.repository.git.worktrees() if agents and self.old != self.new else ():
            if entry.branch == self.branch and os.path.realpath(entry.path) in agents:
                with suppress(AoError):  # the agent may hold a lock there
                    await Git(self.repository.git.host, entry.path).update_ref("HEAD", self.old, reason=self.reason)

    async def _move_late_checkouts(self, moved: set[Path]) -> None:
        """Move checkouts that were switched to the branch while it moved."""
        checkouts_found = await find_checkouts(self.repository, self.branch, self.workspaces)
        for checkout in [] if isinstance(checkouts_found, Blocked) else checkouts_found:
            if checkout.top in moved:
                continue
            if await checkout.lock(f"refs/heads/{self.branch}", self.old, self.new) is None:
                try:
                    await self._move_checkout(checkout)
                finally:
                    checkout.unlock()
