"""A read-only copy of the base branch for an agent that plans: made for one planning, and always removed.

It is a checkout like that of a check (`changes/checks/checkout.py`): a separate repository that shares the user's objects. Nothing that
happens in it affects the user's repository.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.checks.checkout import Checkouts, choose_set_up_commit, resolve_commit
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols.host import Host


@dataclass(frozen=True, slots=True)
class ScratchCopy:
    """The copy, and a folder next to it for our own files."""

    tree: Path
    private: Path
    branch: str
    commit: str
    git: Git
    initial_state: tuple[str, ...]
    """What differed from the commit when the copy was made."""

    async def find_changes(self) -> list[str]:
        """Return what has been changed in the copy although it is read-only."""
        return sorted(set(await _repository_state(self.git)) - set(self.initial_state))


class ScratchCopies:
    """The copies of a home."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.host = host
        self._checkouts = Checkouts(folder, host, Limits())

    async def remove_leftovers(self) -> None:
        """Remove copies that an earlier daemon left."""
        await self._checkouts.recover()

    @asynccontextmanager
    async def open(self, project: ProjectConfig) -> AsyncIterator[ScratchCopy]:
        """Yield a copy of the project's base branch as it is now."""
        branch, commit = await self._base_commit(project)
        spec = CheckSpec(project.id, project.path, commit, "plan", "", base=branch)
        resolved = await resolve_commit(self.host, spec)
        checkout = await self._checkouts.acquire(
            spec, resolved, await choose_set_up_commit(spec, resolved), _skip_setup, lambda _line: None
        )
        try:
            git = Git(self.host, checkout.tree)
            private = checkout.folder / "private"
            private.mkdir(mode=0o700)
            initial_state = tuple(await _repository_state(git))
            await asyncio.to_thread(_make_read_only, checkout.tree)
            yield ScratchCopy(checkout.tree, private, branch, commit, git, initial_state)
        finally:
            await asyncio.shield(self._checkouts.discard(checkout))

    async def _base_commit(self, project: ProjectConfig) -> tuple[str, str]:
        """Return the base branch and its commit, local if possible; raise `Conflict` if there is no commit."""
        git = Git(self.host, project.path)
        branch = project.default_branch or default_branch(project.path) or "HEAD"
        for ref in (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}", "HEAD"):
            if commit := await git.resolve(ref):
                return branch, commit
        raise Conflict(f"{project.path} has no commit yet", "make a first one: git commit --allow-empty -m start")


async def _skip_setup(_beside: Path) -> None:
    """Set up nothing, because nothing is run in the copy."""


async def _repository_state(git: Git) -> list[str]:
    """Return the changed, untracked and ignored files of a copy, and its HEAD."""
    changes = [f"{change.xy} {change.path}" for change in await git.status(ignored=True)]
    return [*changes, f"HEAD {await git.resolve('HEAD')}"]


def _make_read_only(tree: Path) -> None:
    """Remove the write permission from all files and folders; symlinks are left alone, because their targets may be elsewhere."""
    for folder, names, files in os.walk(tree, topdown=False):
        for name in (*files, *names):
            child = Path(folder, name)
            if not child.is_symlink():
                child.chmod(stat.S_IMODE(child.stat().st_mode) & ~0o222)
    tree.chmod(0o500)
