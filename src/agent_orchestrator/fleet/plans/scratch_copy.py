"""A copy of the base for an agent that is to look and touch nothing: made for one planning, not writable, always removed.

It is a checkout as checks have it (`changes/checks/checkout.py`), a repository of its own that borrows the user's objects; whatever
became of it would reach nobody.
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
from agent_orchestrator.changes.checks.checkout import Checkouts, find, made_at
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols.host import Host


@dataclass(frozen=True, slots=True)
class Scratch:
    """The copy, and a folder beside it for our own files."""

    tree: Path
    private: Path
    branch: str
    commit: str
    git: Git
    found: tuple[str, ...]
    """What differed from the commit when it was made."""

    async def changed(self) -> list[str]:
        """What somebody changed in it all the same."""
        return sorted(set(await _state(self.git)) - set(self.found))


class Scratches:
    """The copies of a home."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.host = host
        self._checkouts = Checkouts(folder, host, Limits())

    async def recover(self) -> None:
        """Remove what a daemon that is no more left."""
        await self._checkouts.recover()

    @asynccontextmanager
    async def of(self, project: ProjectConfig) -> AsyncIterator[Scratch]:
        """A copy of the project's base as it is now."""
        branch, commit = await self._base(project)
        spec = CheckSpec(project.id, project.path, commit, "plan", "", base=branch)
        asked = await find(self.host, spec)
        checkout = await self._checkouts.take(spec, asked, await made_at(spec, asked), _nothing, lambda _line: None)
        try:
            git = Git(self.host, checkout.tree)
            private = checkout.beside / "private"
            private.mkdir(mode=0o700)
            found = tuple(await _state(git))
            await asyncio.to_thread(_lock, checkout.tree)
            yield Scratch(checkout.tree, private, branch, commit, git, found)
        finally:
            await asyncio.shield(self._checkouts.discard(checkout))

    async def _base(self, project: ProjectConfig) -> tuple[str, str]:
        git = Git(self.host, project.path)
        branch = project.default_branch or default_branch(project.path) or "HEAD"
        for ref in (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}", "HEAD"):
            if commit := await git.resolve(ref):
                return branch, commit
        raise Conflict(f"{project.path} has no commit yet", "make a first one: git commit --allow-empty -m start")


async def _nothing(_beside: Path) -> None:
    """There is no set-up: nothing is run in it."""


async def _state(git: Git) -> list[str]:
    changes = [f"{change.xy} {change.path}" for change in await git.status(ignored=True)]
    return [*changes, f"HEAD {await git.resolve('HEAD')}"]


def _lock(tree: Path) -> None:
    """Take the right to write from everybody; what a symlink leads to is not ours."""
    for folder, names, files in os.walk(tree, topdown=False):
        for name in (*files, *names):
            child = Path(folder, name)
            if not child.is_symlink():
                child.chmod(stat.S_IMODE(child.stat().st_mode) & ~0o222)
    tree.chmod(0o500)
