"""Chooses what a container sees of this machine: the workspace, the parts of its repository that Git needs, the private folder.

Everything is mounted at its own path. Whatever Git on this machine would later take a command or a path from is read-only, so that what
an agent writes in its container is never run outside of it: the repository's configuration and hooks, and the pointers between worktree
and repository. These paths are mounts themselves, so they cannot be moved away or replaced from inside.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.base.files.safe import touch
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.protocols import Mount

HOOKS = "hooks"
_READ_ONLY_PATHS = ("config", "config.worktree", "HEAD", "index", "info", HOOKS, "modules", "objects/info")
"""Read-only paths of the repository that a worktree belongs to; HEAD and index are those of the main checkout."""


def workspace_mounts(workspace: Path) -> list[Mount]:
    """Return the mounts of the workspace and of what Git needs to work in it."""
    layout = find_layout(workspace)
    mounts = [_writable(workspace)]
    if layout is None:
        return mounts
    if layout.git_dir == layout.common:
        mounts += _repository_mounts(layout.git_dir)
    else:
        mounts += _worktree_mounts(workspace, layout)
    for objects in _borrowed_objects(layout.common):
        mounts.append(_read_only(objects))
    return mounts


def _worktree_mounts(workspace: Path, layout: Layout) -> Iterator[Mount]:
    """Yield the mounts of a worktree's repository.

    Objects, refs and reflogs are shared with the main repository, and Git locks its packed refs whenever a ref is deleted.
    """
    common, worktree_git_dir = layout.common, layout.git_dir
    yield _read_only(workspace / ".git")
    yield _writable(common)
    (common / "modules").mkdir(exist_ok=True)
    if _has_worktree_config(common):
        touch(worktree_git_dir / "config.worktree")
    yield from (_read_only(common / name) for name in _READ_ONLY_PATHS if (common / name).exists())
    yield _read_only(worktree_git_dir.parent)
    yield _writable(worktree_git_dir)
    yield from (
        _read_only(worktree_git_dir / name)
        for name in ("commondir", "gitdir", "config.worktree")
        if (worktree_git_dir / name).exists()
    )


def _repository_mounts(git_dir: Path) -> Iterator[Mount]:
    """Yield the mounts of a repository that is inside the workspace; creates the files that must be read-only."""
    for folder in (HOOKS, "modules"):
        (git_dir / folder).mkdir(exist_ok=True)
    # Git reads its configuration from the folder named in this file: this one, so that an agent cannot name another.
    pointer = git_dir / "commondir"
    if not pointer.exists():
        pointer.write_text(".\n")
    yield _writable(git_dir)
    fixed = ("config", "commondir", HOOKS, "modules", "objects/info")
    yield from (_read_only(git_dir / name) for name in fixed if (git_dir / name).exists())


def _has_worktree_config(common: Path) -> bool:
    """Return whether a worktree of this repository may have its own configuration."""
    try:
        return "worktreeconfig" in (common / "config").read_text(errors="replace").lower()
    except OSError:
        return False


def _borrowed_objects(common: Path) -> list[Path]:
    """Return the object folders of other repositories that this one uses."""
    try:
        lines = (common / "objects" / "info" / "alternates").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    folders = [(common / "objects" / line).resolve() for line in lines if line and not line.startswith("#")]
    return [folder for folder in folders if folder.is_dir()]


def private_mounts(private: Path, spool: Path | None) -> list[Mount]:
    """Return the mounts of the session's private folder: read-only, because the daemon writes there, except for what the agent writes."""
    mounts = [_read_only(private)]
    for entry in sorted(private.iterdir()):
        if entry.is_symlink():
            continue
        if (entry.is_dir() and entry.name != HOOKS) or entry == spool or _is_hook_journal(entry):
            mounts.append(_writable(entry))
    return mounts


def _is_hook_journal(entry: Path) -> bool:
    """Return whether this is a file that an agent's hooks append to."""
    return entry.suffix == ".jsonl" and entry.is_file() and entry.name != "inbox.jsonl" and "spool" not in entry.name


def mount_option(mount: Mount) -> str:
    """Return the value of `--mount`: fields separated by commas, quoted if a path contains commas."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields if mount.writable else [*fields, "readonly"])
    return text.getvalue()


def _read_only(path: Path) -> Mount:
    """Return a read-only mount of the path."""
    return Mount(path, path)


def _writable(path: Path) -> Mount:
    """Return a writable mount of the path."""
    return Mount(path, path, writable=True)
