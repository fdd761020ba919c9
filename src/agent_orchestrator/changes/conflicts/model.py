"""What is compared, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Made by tools and made anew by them: a collision in one is nobody's disagreement."""


def is_lock_file(path: str) -> bool:
    """Is it one of the files that package managers write?"""
    return path.rpartition("/")[2].lower() in LOCK_FILES


@dataclass(frozen=True, slots=True)
class Branch:
    """One live branch: a session, its workspace if there is one, and the commit it is at as far as known."""

    session: str
    base: str
    """The branch that it is to land on."""
    head: str | None
    start: str | None = None
    """The commit that it began at."""
    workspace: Path | None = None
    since: float = 0.0
    """When the session was made."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A branch's content at one moment: a commit of its own where not everything is committed."""

    head: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sessions that collide: `text`, they cannot be merged; `overlap`, they can, and both change the same place."""

    a: str
    b: str
    files: tuple[str, ...]
    kind: Kind

    @property
    def sides(self) -> tuple[str, str]:
        """Both sessions."""
        return self.a, self.b

    def json(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return {"a": self.a, "b": self.b, "files": list(self.files), "kind": self.kind}
