"""`worktree`: a Git worktree of the user's repository. Objects, branches and stash are shared with it; files are not."""

from __future__ import annotations

import os
import re
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed, repository_lock
from agent_orchestrator.base.git.refs import Layout, find_layout, worktree_entries, worktree_path
from agent_orchestrator.errors import Conflict
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace, remove_tree
from agent_orchestrator.plugins.workspaces.start_point import SourceRepository, StartPoint
from agent_orchestrator.protocols import WorkspaceSpec


class WorktreeWorkspace(GitWorkspace):
    """Makes each session a worktree."""

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Do nothing: a worktree's commits are already in the main repository."""

    async def _create_folder(self, spec: WorkspaceSpec, source: SourceRepository, start: StartPoint) -> Path:
        """Make the worktree with its files; return its Git folder. Raises `Conflict` if the branch is checked out elsewhere."""
        # Only the registration changes data shared by worktrees; files are written outside the lock, so many can be made at once.
        async with repository_lock(source.layout.common):
            try:
                if start.new_branch:
                    await source.git.worktree_add(spec.path, start.commit, new_branch=spec.branch)
                else:
                    await source.git.worktree_add(spec.path, spec.branch)
            except GitFailed as error:
                raise await _checkout_error(source.git, spec, error) from None
        await self._fill(spec, start.notes)
        layout = find_layout(spec.path)
        if layout is None:
            raise Conflict(f"{spec.path} vanished while it was being made", "find out what removes it, and try again")
        return layout.git_dir

    def _check_registration(self, spec: WorkspaceSpec, layout: Layout) -> None:
        """Raise `Conflict` if the path is registered for a worktree whose folder is missing."""
        for entry in _entries_named(layout.common, spec.path.name):
            if worktree_path(entry) == os.path.realpath(spec.path):
                raise Conflict(
                    f"{spec.path} is the place of a worktree whose folder is not there just now",
                    "bring it back, or let Git forget it: git worktree prune",
                )

    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:  # noqa: ARG002
        """Remove exactly this worktree's registration.

        `git worktree prune` would also remove the user's own worktrees on disks that are not mounted now.
        """
        async with repository_lock(layout.common):
            for entry in worktree_entries(layout.common):
                path = worktree_path(entry)
                if path == os.path.realpath(spec.path) or (path is None and entry.name == spec.path.name):
                    remove_tree(entry)


def _entries_named(common: Path, name: str) -> list[Path]:
    """Return the entries of worktrees whose folder may have this name: Git uses it for the entry, with a number after the first."""
    is_unchanged = re.fullmatch(r"[\w-]+", name, re.ASCII)  # Git replaces other characters
    return worktree_entries(common, re.escape(name) + r"\d*") if is_unchanged else worktree_entries(common)


async def _checkout_error(git: Git, spec: WorkspaceSpec, error: GitFailed) -> Exception:
    """Return a `Conflict` that says where the branch is checked out, if that is the reason of the error; otherwise the error."""
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
