"""Worktrees that an agent made itself of its workspace's repository: some live in the workspace, others live on its Git folder."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import Layout, read_head, read_symbolic_head, worktree_entries, worktree_place
from agent_orchestrator.plugins.workspaces.git_workspace import away
from agent_orchestrator.protocols.host import Host

_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_MANY = 100
"""Changed ones after which the others are saved unseen."""


@dataclass(slots=True)
class Linked:
    """What goes with a workspace, of worktrees beside it."""

    changed: list[str] = field(default_factory=list)
    """Those within the workspace that have work which is not committed."""
    heads: set[str] = field(default_factory=set)
    """Commits that they stand at."""
    unsafe: list[str] = field(default_factory=list)


def in_progress(git_dir: Path) -> list[str]:
    """What Git has begun there and not ended, in words."""
    return sorted({what for name, what in _IN_PROGRESS.items() if (git_dir / name).exists()})


def _places(common: Path) -> list[tuple[Path, str | None]]:
    return [(entry, worktree_place(entry)) for entry in worktree_entries(common)]


async def linked(git: Git, layout: Layout, *, own: bool) -> Linked:
    """Look at them; `own`: the workspace is a repository of its own, which those elsewhere would lose."""
    found, root = Linked(), os.path.realpath(git.repo)
    for entry, place in await asyncio.to_thread(_places, layout.common):
        inside = place is not None and place.startswith(f"{root}/")
        if entry == layout.git_dir or not (inside or own):
            continue
        found.heads.update([head] if (head := read_head(entry)) else [])
        if place is None or not (Path(place) / ".git").is_file():
            continue
        if not inside:
            found.unsafe.append(f"{place} is a worktree of this clone, and has its history here")
        elif len(found.changed) >= _MANY or await _is_changed(Git(git.host, Path(place))):
            found.changed.append(os.path.relpath(place, root))
    return found


async def _is_changed(git: Git) -> bool:
    """Has it anything uncommitted? What Git cannot tell counts as such."""
    try:
        return bool(await git.status())
    except GitFailed:
        return True


async def left_behind(host: Host, repo: Path, workspace: Path) -> tuple[str, ...]:
    """What only Git's own folder of a worktree has whose files are not there: its disk may not be mounted just now. Nothing, if it is
    our own removal that was cut short: then all was saved before.
    """
    if away(workspace).exists():
        return ()
    main = Git(host, repo)
    layout = await main.layout()
    for entry, place in await asyncio.to_thread(_places, layout.common) if layout else ():
        if place == os.path.realpath(workspace):
            index = {"GIT_DIR": str(entry), "GIT_WORK_TREE": str(repo)}
            staged = await main.run("diff-index", "--cached", "--quiet", "HEAD", "--", env=index, ok=(0, 1, 128))
            found = [
                "staged files" if staged.code else "",
                "" if read_symbolic_head(entry) else "detached HEAD",
                *(f"{what} in progress" for what in in_progress(entry)),
            ]
            return tuple(words for words in found if words)
    return ()
