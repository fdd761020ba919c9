"""What Git lists: the checkouts of a repository, and the entries of `git status`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.refs import Layout as Layout
from agent_orchestrator.base.git.refs import find_layout as find_layout
from agent_orchestrator.base.git.refs import is_valid_branch as is_valid_branch
from agent_orchestrator.base.git.refs import read_head as read_head


@dataclass(frozen=True, slots=True)
class WorktreeEntry:
    """One checkout of a repository."""

    path: Path
    head: str | None = None
    branch: str | None = None
    bare: bool = False
    locked: bool = False
    prunable: bool = False


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """One entry of `git status`: `xy` as Git prints it (`M.`, `.M`, `UU`, `??`), `sub` its submodule field."""

    xy: str
    path: str
    sub: str = "N..."
    blobs: tuple[str, ...] = ()
    """The blobs of the path in the index: one, or up to three if there is a conflict."""


def parse_status_entry(entry: str) -> StatusEntry | None:
    """Return the `Change` of one entry of `git status --porcelain=v2`, or None for other lines."""
    kind, _, rest = entry.partition(" ")
    if kind in "?!":
        return StatusEntry(kind * 2, rest)
    if kind not in "1u":
        return None
    fields = rest.split(" ", 7 if kind == "1" else 9)
    object_names = fields[6:7] if kind == "1" else fields[6:9]
    modes = fields[3:4] if kind == "1" else fields[2:5]
    blobs = tuple(sha for sha, mode in zip(object_names, modes, strict=True) if mode not in ("000000", "160000"))
    return StatusEntry(fields[0], fields[-1], fields[1], blobs)
