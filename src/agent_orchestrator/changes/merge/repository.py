"""A repository as landings see it: where it is, and its branches as plain refs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, valid_branch
from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.host import Host


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository: Git in it, and the folder that all its worktrees share."""

    git: Git
    common: Path

    async def head(self, branch: str) -> str | None:
        """The commit a local branch is at; none if there is no such branch."""
        return await self.git.resolve(f"refs/heads/{branch}")

    async def base(self, branch: str) -> str:
        """The commit the base branch is at. Raises `NotFound`, or `UsageError` for a mere alias of another branch."""
        done = await self.git.run("symbolic-ref", "--quiet", f"refs/heads/{branch}", ok=(0, 1, 128))
        if not done.code:
            target = done.text.strip().removeprefix("refs/heads/")
            raise UsageError(f"the base branch {branch} is an alias of {target}", f"name {target} as the base")
        found = await self.head(branch)
        if found is None:
            raise NotFound(f"there is no local branch {branch} in {self.git.repo}", "name a branch that exists as base")
        return found

    async def commit(self, name: str) -> str:
        """The full id of a commit. Raises `NotFound`."""
        found = await self.git.resolve(name)
        if found is None:
            raise NotFound(f"there is no commit {name} in {self.git.repo}")
        return found

    async def tree(self, commit: str) -> str:
        """A commit's tree. Raises `NotFound`."""
        found = await self.git.resolve(commit, "tree")
        if found is None:
            raise NotFound(f"there is no commit {commit} in {self.git.repo}")
        return found


async def open_repository(host: Host, path: Path, *branches: str) -> Repository:
    """The repository at a path; the branches to be used must have names that are names."""
    for branch in branches:
        if not valid_branch(branch):
            raise UsageError(f"{branch!r} cannot be a branch's name")
    git = Git(host, path)
    layout = await git.layout()
    if layout is None:
        raise NotFound(f"{path} is not a Git repository")
    return Repository(git, layout.common.resolve())
