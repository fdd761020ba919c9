"""What a container shows of this machine: the workspace, what Git must reach of its repository, the session's private folder.

Everything is at its own path. Whatever Git on this machine would later take a command or a path from is read-only, so that what an
agent writes in its container is never run outside of it: the repository's configuration and hooks, the pointers between worktree and
repository. The places themselves are mounts, and so cannot be moved away or replaced from inside.
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
_ONLY_READ = ("config", "config.worktree", "HEAD", "index", "info", HOOKS, "modules", "objects/info")
"""Of the repository that a worktree belongs to; HEAD and index are those of the main checkout."""


def workspace_mounts(workspace: Path) -> list[Mount]:
    """The workspace and what Git needs to work in it."""
    layout = find_layout(workspace)
    found = [_rw(workspace)]
    if layout is None:
        return found
    if layout.git_dir == layout.common:
        found += _own_repository(layout.git_dir)
    else:
        found += _worktree(workspace, layout)
    for objects in _borrowed(layout.common):
        found.append(_ro(objects))
    return found


def _worktree(workspace: Path, layout: Layout) -> Iterator[Mount]:
    """Objects, refs and reflogs are shared with the main repository, and it locks its packed refs whenever a ref is deleted."""
    common, own = layout.common, layout.git_dir
    yield _ro(workspace / ".git")
    yield _rw(common)
    (common / "modules").mkdir(exist_ok=True)
    if _own_configurations(common):
        touch(own / "config.worktree")
    yield from (_ro(common / name) for name in _ONLY_READ if (common / name).exists())
    yield _ro(own.parent)
    yield _rw(own)
    yield from (_ro(own / name) for name in ("commondir", "gitdir", "config.worktree") if (own / name).exists())


def _own_repository(git_dir: Path) -> Iterator[Mount]:
    for folder in (HOOKS, "modules"):
        (git_dir / folder).mkdir(exist_ok=True)
    pointer = git_dir / "commondir"  # Git takes its configuration from where this file says: from here
    if not pointer.exists():
        pointer.write_text(".\n")
    yield _rw(git_dir)
    fixed = ("config", "commondir", HOOKS, "modules", "objects/info")
    yield from (_ro(git_dir / name) for name in fixed if (git_dir / name).exists())


def _own_configurations(common: Path) -> bool:
    """May a worktree of it have a configuration of its own?"""
    try:
        return "worktreeconfig" in (common / "config").read_text(errors="replace").lower()
    except OSError:
        return False


def _borrowed(common: Path) -> list[Path]:
    """Object folders of other repositories that this one uses."""
    try:
        lines = (common / "objects" / "info" / "alternates").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    places = [(common / "objects" / line).resolve() for line in lines if line and not line.startswith("#")]
    return [place for place in places if place.is_dir()]


def private_mounts(private: Path, spool: Path | None) -> list[Mount]:
    """The session's private folder: read-only, for we ourselves write there; but for what the agent is to write."""
    found = [_ro(private)]
    for entry in sorted(private.iterdir()):
        if entry.is_symlink():
            continue
        if (entry.is_dir() and entry.name != HOOKS) or entry == spool or _journal(entry):
            found.append(_rw(entry))
    return found


def _journal(entry: Path) -> bool:
    """A file that an agent's hooks append to."""
    return entry.suffix == ".jsonl" and entry.is_file() and entry.name != "inbox.jsonl" and "spool" not in entry.name


def option(mount: Mount) -> str:
    """As `--mount` takes it: fields separated by commas, in quotes where a path has such."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields if mount.writable else [*fields, "readonly"])
    return text.getvalue()


def _ro(path: Path) -> Mount:
    return Mount(path, path)


def _rw(path: Path) -> Mount:
    return Mount(path, path, writable=True)
