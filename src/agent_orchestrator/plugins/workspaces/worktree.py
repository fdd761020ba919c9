"""`worktree`: a Git worktree of the user's repository. Objects, branches and stash are shared with it; files are not."""

from __future__ import annotations

import os
import re
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed, repository_lock
from agent_orchestrator.base.git.refs import Layout, find_layout, worktree_entries, worktree_place
from agent_orchestrator.errors import Conflict
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace, Source, remove_tree
from agent_orchestrator.plugins.workspaces.start_point import Start
from agent_orchestrator.protocols import WorkspaceSpec


class Worktree(GitWorkspace):
    """Makes each session a worktree."""

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Nothing to do: a worktree's commits are the main repository's."""

    async def _make(self, spec: WorkspaceSpec, source: Source, start: Start) -> Path:
        # Only registering touches what worktrees share; files are written outside the lock, so many can be made at once.
        async with repository_lock(source.layout.common):
            try:
                if start.new_branch:
                    await source.git.worktree_add(spec.path, start.commit, new_branch=spec.branch)
                else:
                    await source.git.worktree_add(spec.path, spec.branch)
            except GitFailed as error:
                raise await _elsewhere(source.git, spec, error) from None
        await self._fill(spec, start.notes)
        layout = find_layout(spec.path)
        if layout is None:
            raise Conflict(f"{spec.path} vanished while it was being made", "find out what removes it, and try again")
        return layout.git_dir

    def _check_place(self, spec: WorkspaceSpec, layout: Layout) -> None:
        for entry in _called(layout.common, spec.path.name):
            if worktree_place(entry) == os.path.realpath(spec.path):
                raise Conflict(
                    f"{spec.path} is the place of a worktree whose folder is not there just now",
                    "bring it back, or let Git forget it: git worktree prune",
                )

    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:  # noqa: ARG002
        """Forget exactly this worktree. `git worktree prune` would also forget the user's own on disks not mounted just now."""
        async with repository_lock(layout.common):
            for entry in worktree_entries(layout.common):
                place = worktree_place(entry)
                if place == os.path.realpath(spec.path) or (place is None and entry.name == spec.path.name):
                    remove_tree(entry)


def _called(common: Path, name: str) -> list[Path]:
    """The worktrees that may have been made in a folder of this name: Git calls them so, with a number after the first."""
    plain = re.fullmatch(r"[\w-]+", name, re.ASCII)  # of other names it makes its own
    return worktree_entries(common, re.escape(name) + r"\d*") if plain else worktree_entries(common)


async def _elsewhere(git: Git, spec: WorkspaceSpec, error: GitFailed) -> Exception:
    """Say where the branch is checked out, if that is why it cannot be here too."""
    if not re.search(r"already (checked out|used by worktree)|missing but already registered", error.stderr):
        return error
    for entry in await git.worktrees():
        if entry.branch == spec.branch:
            remedy = (
                "git worktree prune forgets it"
                if entry.prunable
                else f"switch {entry.path} to another branch, or end its session"
            )
            return Conflict(f"branch {spec.branch} is checked out in {entry.path}", remedy)
    return Conflict(
        f"branch {spec.branch} is in use by another worktree: {error.text}", "finish what goes on there first"
    )
