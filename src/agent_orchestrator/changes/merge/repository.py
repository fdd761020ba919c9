"""A repository as merges use it: its path, and its branches as plain refs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, is_valid_branch
from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.host import Host


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository: Git in it, and the folder that all its worktrees share."""

    git: Git
    common: Path

    async def head(self, branch: str) -> str | None:
        """Return the commit of a local branch, or None if there is no such branch."""
        return await self.git.resolve(f"refs/heads/{branch}")

    async def base_head(self, branch: str) -> str:
        """Return the commit of the base branch.

        Raises `NotFound`, or `UsageError` for a mere alias of another branch.
        """
        result = await self.git.run("symbolic-ref", "--quiet", f"refs/heads/{branch}", ok=(0, 1, 128))
        if not result.code:
            target = result.text.strip().removeprefix("refs/heads/")
            raise UsageError(f"the base branch {branch} is an alias of {target}", f"name {target} as the base")
        commit = await self.head(branch)
        if commit is None:
            raise NotFound(f"there is no local branch {branch} in {self.git.repo}", "name a branch that exists as base")
        return commit

    async def resolve_commit(self, name: str) -> str:
        """Return the full id of a commit. Raises `NotFound`."""
        commit_id = await self.git.resolve(name)
        if commit_id is None:
            raise NotFound(f"there is no commit {name} in {self.git.repo}")
        return commit_id

    async def tree(self, commit: str) -> str:
        """Return a commit's tree. Raises `NotFound`."""
        tree_id = await self.git.resolve(commit, "tree")
        if tree_id is None:
            raise NotFound(f"there is no commit {commit} in {self.git.repo}")
        return tree_id


async def open_repository(host: Host, path: Path, *branches: str) -> Repository:
    """Return the repository at a path.

    Raises `UsageError` if one of the branches to be used has an invalid name, `NotFound` if there is no repository.
    """
    for branch in branches:
        if not is_valid_branch(branch):
            raise UsageError(f"{branch!r} cannot be a branch's name")
    git = Git(host, path)
    layout = await git.layout()
    if layout is None:
        raise NotFound(f"{path} is not a Git repository")
    return Repository(git, layout.common.resolve())
