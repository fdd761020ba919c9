"""Detect how a repository is set up, tested and linted, from its files: `detect_commands(root)`. Nothing is run.

`python/`, `node`, `compiled` and `tasks` each handle one kind of project. `ci_files` reads what the project's CI runs, `repository`
collects what `ao init` shows, `proposal` what it writes. All read through `files`, which limits sizes and counts, because the
repository is not trusted.
"""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.config.detection.commands import DetectedCommands

__all__ = ["DetectedCommands", "detect_commands"]

MAX_CANDIDATES = 8
"""The most ways returned: a person will not read more."""


def detect_commands(root: Path) -> list[DetectedCommands]:
    """Return the ways to set a repository up and to test it, the most likely first; an empty list if there is none."""
    from agent_orchestrator.config.detection.ranking import rank_candidates

    return rank_candidates(root)[:MAX_CANDIDATES]
