"""How a repository is set up, tested and linted, by its files: `detect_commands(root)`. Nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Commands:
    """One way to set a repository up and to test it."""

    ecosystem: str
    """`npm`, `uv`, `tox`, `make` …"""
    set_up: tuple[str, ...] = ()
    """Shell commands for `postCreate`."""
    test: str | None = None
    """The test command."""
    lint: str | None = None
    """The project's own lint command, with its own scope."""
    evidence: tuple[str, ...] = ()
    """The files that say so."""


def detect_commands(root: Path) -> list[Commands]:
    """Return the ways to set a repository up and test it, the most likely first; an empty list if there is none."""
    return []
