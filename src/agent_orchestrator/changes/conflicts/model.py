"""Data types of conflict prediction: what is compared (`Branch`, `BranchSnapshot`) and the result (`ConflictingPair`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["text", "overlap"]

LOCK_FILES = frozenset(
    {
        "bun.lock",
        "bun.lockb",
        "cargo.lock",
        "composer.lock",
        "conan.lock",
        "deno.lock",
        "flake.lock",
        "gemfile.lock",
        "go.sum",
        "go.work.sum",
        "gradle.lockfile",
        "mix.lock",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "package.resolved",
        "packages.lock.json",
        "pdm.lock",
        "pipfile.lock",
        "pixi.lock",
        "pnpm-lock.yaml",
        "podfile.lock",
        "poetry.lock",
        "pubspec.lock",
        "uv.lock",
        "yarn.lock",
    }
)
"""Lock files; tools can write them again, so a conflict in one does not count."""


def is_lock_file(path: str) -> bool:
    """Return whether the path is a lock file written by a package manager."""
    return path.rpartition("/")[2].lower() in LOCK_FILES


@dataclass(frozen=True, slots=True)
class Branch:
    """One live branch: a session, its workspace if there is one, and its last known commit."""

    session: str
    base: str
    """The branch that it is to be merged into."""
    head: str | None
    start_commit: str | None = None
    """The commit that it began at."""
    workspace: Path | None = None
    created_at: float = 0.0
    """When the session was created, as a Unix timestamp."""


@dataclass(frozen=True, slots=True)
class BranchSnapshot:
    """A branch's content at one moment; `commit` is our own if not everything is committed."""

    head: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class ConflictingPair:
    """Two sessions in conflict: `text` means they cannot be merged, `overlap` that they can but change the same place."""

    a: str
    b: str
    files: tuple[str, ...]
    kind: Kind

    @property
    def sides(self) -> tuple[str, str]:
        """Both sessions."""
        return self.a, self.b

    def json(self) -> Mapping[str, Any]:
        """Return the pair as the API shows it."""
        return {"a": self.a, "b": self.b, "files": list(self.files), "kind": self.kind}


def text_conflicts(pairs: Iterable[ConflictingPair]) -> dict[str, frozenset[str]]:
    """Return for each session those that cannot be merged after it without changes."""
    conflicts: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.kind == "text":
            conflicts.setdefault(pair.a, set()).add(pair.b)
            conflicts.setdefault(pair.b, set()).add(pair.a)
    return {session: frozenset(others) for session, others in conflicts.items()}
