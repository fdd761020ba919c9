"""Compare detected, configured and proposed commands: candidates to show, the digest of a proposal, and drift.

A proposal is what `ao init` wrote into a new file and a person has not confirmed yet. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.config import trust
from agent_orchestrator.config.detection import DetectedCommands
from agent_orchestrator.config.effective import ProjectConfig

PROPOSED_KEYS = ("ci", "commands", "postCreate")
"""The keys of a project that a proposal sets."""
_FAMILIES = (
    frozenset({"npm", "pnpm", "yarn", "bun"}),
    frozenset({"uv", "poetry", "pdm", "pip", "pipenv", "hatch"}),
)
"""Package managers that can replace one another."""
_REQUIRED_FILES = {
    "npm ci": ("package-lock.json", "npm-shrinkwrap.json"),
    "pnpm install --frozen-lockfile": ("pnpm-lock.yaml",),
    "yarn install --immutable": ("yarn.lock",),
    "yarn install --frozen-lockfile": ("yarn.lock",),
    "uv sync": ("uv.lock", "pyproject.toml"),
    "poetry install": ("pyproject.toml",),
    "pdm install": ("pyproject.toml",),
}
"""Set-up commands, and the files of which they need one."""
_SET_UP_FOLDERS = ("node_modules", ".venv", "venv", "vendor")
"""Folders that a set-up creates: a project that copies or links one of these needs no set-up."""


def proposal_digest(powers: Mapping[str, Any], file: Path) -> str:
    """Return the digest of a file's commands while they are a proposal, or "" if it has none."""
    sections = {**powers.get("projects", {}), "": powers.get("project", {})}
    commands = {
        name: {key: section[key] for key in PROPOSED_KEYS if key in section} for name, section in sections.items()
    }
    filled = {name: section for name, section in commands.items() if section}
    return trust.digest({"proposal": filled}, file) if filled else ""


def candidate_json(candidate: DetectedCommands) -> dict[str, Any]:
    """Return one way to set up and test a project as JSON data, as a person is shown it."""
    return {
        "ecosystem": candidate.ecosystem,
        "setUp": list(candidate.set_up),
        "test": candidate.test,
        "lint": candidate.lint,
        "evidence": list(candidate.evidence),
    }


def candidates_digest(candidates: Sequence[DetectedCommands], root: Path) -> str:
    """Return the digest of these candidates, which makes sure that what was shown is what is run."""
    return trust.digest({"candidates": [candidate_json(candidate) for candidate in candidates]}, root)


def missing_keys(project: ProjectConfig) -> tuple[str, ...]:
    """Return which of `postCreate` and `ci` a project does not set."""
    return (
        *(() if project.post_create or _has_set_up_folder(project) else ("postCreate",)),
        *(() if project.ci else ("ci",)),
    )


def describe_drift(project: ProjectConfig, candidates: Sequence[DetectedCommands], root: Path) -> list[str]:
    """Return the differences between a project's configuration and its files, one sentence each."""
    first = candidates[0] if candidates else None
    differences = _set_up_drift(project, first, candidates, root)
    if first and first.test and not project.ci:
        differences.append(f"no check is configured; {_source_of(first)}: {first.test}")
    return differences


def _set_up_drift(
    project: ProjectConfig, first: DetectedCommands | None, candidates: Sequence[DetectedCommands], root: Path
) -> list[str]:
    """Return how the configured set-up differs from the detected one, in at most one sentence."""
    configured = project.post_create
    if not configured:
        checks = {check.command for check in project.ci.values()}
        needs_none = any(candidate.test in checks and not candidate.set_up for candidate in candidates)
        is_missing = first is not None and bool(first.set_up) and not needs_none and not _has_set_up_folder(project)
        return [f"postCreate is empty; {_source_of(first)}: {_join(first.set_up)}"] if first and is_missing else []
    for command, files in _REQUIRED_FILES.items():
        if any(_starts_with(candidate, command) for candidate in configured) and not any(
            (root / name).is_file() for name in files
        ):
            suggestion = f"; {_source_of(first)}: {_join(first.set_up)}" if first and first.set_up else ""
            return [f"postCreate runs {command}, which needs {' or '.join(files)}{suggestion}"]
    if first is None or not first.set_up or any(configured == candidate.set_up for candidate in candidates):
        return []
    detected_managers, configured_managers = _managers(first.set_up), _managers(configured)
    for family in _FAMILIES:
        if (
            configured_managers & family
            and detected_managers & family
            and not configured_managers & detected_managers & family
        ):
            return [f"postCreate runs {_join(configured)}; {_source_of(first)}: {_join(first.set_up)}"]
    return []


def _has_set_up_folder(project: ProjectConfig) -> bool:
    names = {Path(name).name for name in (*project.copy, *project.symlinks)}
    return not names.isdisjoint(_SET_UP_FOLDERS)


def _source_of(candidate: DetectedCommands | None) -> str:
    return f"{candidate.evidence[0]} suggests" if candidate and candidate.evidence else "detected"


def _join(commands: Iterable[str]) -> str:
    return " && ".join(commands)


def _starts_with(command: str, prefix: str) -> bool:
    return f"{' '.join(command.split())} ".startswith(f"{prefix} ")


def _managers(commands: Iterable[str]) -> set[str]:
    managers = frozenset().union(*_FAMILIES)
    return {Path(word).name for command in commands for word in command.split() if Path(word).name in managers}
