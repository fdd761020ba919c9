"""Worktrees that an agent made of its workspace's repository: inside the workspace, or elsewhere with their history in its Git folder."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import Layout, read_head, read_symbolic_head, worktree_entries, worktree_path
from agent_orchestrator.plugins.workspaces.git_workspace import removal_path
from agent_orchestrator.protocols.host import Host

_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_MAX_CHECKED = 100
"""Number of changed worktrees after which the others count as changed without a check."""


@dataclass(slots=True)
class LinkedWorktrees:
    """What other worktrees mean for a workspace."""

    changed: list[str] = field(default_factory=list)
    """Worktrees inside the workspace that have uncommitted work."""
    heads: set[str] = field(default_factory=set)
    """Commits at their HEADs."""
    unsafe: list[str] = field(default_factory=list)
    """Reasons why the workspace must stay."""


def operations_in_progress(git_dir: Path) -> list[str]:
    """Return the Git operations that were begun in a Git folder and have not ended."""
    return sorted({operation for name, operation in _IN_PROGRESS.items() if (git_dir / name).exists()})


def _worktree_folders(common: Path) -> list[tuple[Path, str | None]]:
    """Return the worktrees of a repository, each with its folder if that is known."""
    return [(entry, worktree_path(entry)) for entry in worktree_entries(common)]


async def survey_worktrees(git: Git, layout: Layout, *, own: bool) -> LinkedWorktrees:
    """Return what the other worktrees mean for a workspace.

    `own`: the workspace is a separate repository, so worktrees elsewhere would lose their history with it.
    """
    result, root = LinkedWorktrees(), os.path.realpath(git.repo)
    for entry, place in await asyncio.to_thread(_worktree_folders, layout.common):
        is_inside = place is not None and place.startswith(f"{root}/")
        if entry == layout.git_dir or not (is_inside or own):
            continue
        result.heads.update([head] if (head := read_head(entry)) else [])
        if place is None or not (Path(place) / ".git").is_file():
            continue
        if not is_inside:
            result.unsafe.append(f"{place} is a worktree of this clone, and has its history here")
        elif len(result.changed) >= _MAX_CHECKED or await _is_changed(Git(git.host, Path(place))):
            result.changed.append(os.path.relpath(place, root))
    return result


async def _is_changed(git: Git) -> bool:
    """Return whether a worktree has uncommitted changes; True if Git cannot determine it."""
    try:
        return bool(await git.status())
    except GitFailed:
        return True


async def unsaved_git_state(host: Host, repo: Path, workspace: Path) -> tuple[str, ...]:
    """Return the work that is only in Git's own folder of a worktree whose files are missing, perhaps because its disk is not mounted.

    The result is empty if our own removal was interrupted: then everything was saved before.
    """
    if removal_path(workspace).exists():
        return ()
    main = Git(host, repo)
    layout = await main.layout()
    for entry, place in await asyncio.to_thread(_worktree_folders, layout.common) if layout else ():
        if place == os.path.realpath(workspace):
            index = {"GIT_DIR": str(entry), "GIT_WORK_TREE": str(repo)}
            staged = await main.run("diff-index", "--cached", "--quiet", "HEAD", "--", env=index, ok=(0, 1, 128))
            items = [
                "staged files" if staged.code else "",
                "" if read_symbolic_head(entry) else "detached HEAD",
                *(f"{operation} in progress" for operation in operations_in_progress(entry)),
            ]
            return tuple(item for item in items if item)
    return ()
