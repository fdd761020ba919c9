"""Set-up and checks as they are detected, configured and proposed: candidates to show, what a proposal is known by, and drift.

A proposal is what `ao init` wrote into a new file and nobody has confirmed yet. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.config import trust
from agent_orchestrator.config.detection import Commands
from agent_orchestrator.config.effective import ProjectConfig

KEYS = ("ci", "commands", "postCreate")
"""The keys of a project that a proposal sets."""
_FAMILIES = (
    frozenset({"npm", "pnpm", "yarn", "bun"}),
    frozenset({"uv", "poetry", "pdm", "pip", "pipenv", "hatch"}),
)
"""Package managers that stand for one another."""
_NEEDS = {
    "npm ci": ("package-lock.json", "npm-shrinkwrap.json"),
    "pnpm install --frozen-lockfile": ("pnpm-lock.yaml",),
    "yarn install --immutable": ("yarn.lock",),
    "yarn install --frozen-lockfile": ("yarn.lock",),
    "uv sync": ("uv.lock", "pyproject.toml"),
    "poetry install": ("pyproject.toml",),
    "pdm install": ("pyproject.toml",),
}
"""Set-up commands, and the files of which they need one."""
_MADE = ("node_modules", ".venv", "venv", "vendor")
"""What a set-up makes: a project that copies or links one of these needs none."""


def proposal_digest(powers: Mapping[str, Any], file: Path) -> str:
    """Return what the commands of a file are known by while they are a proposal; "" if it has none."""
    sections = {**powers.get("projects", {}), "": powers.get("project", {})}
    found = {name: {key: one[key] for key in KEYS if key in one} for name, one in sections.items()}
    filled = {name: one for name, one in found.items() if one}
    return trust.digest({"proposal": filled}, file) if filled else ""


def candidate_json(candidate: Commands) -> dict[str, Any]:
    """One way to set a project up and test it, as a person is shown it."""
    return {
        "ecosystem": candidate.ecosystem,
        "setUp": list(candidate.set_up),
        "test": candidate.test,
        "lint": candidate.lint,
        "evidence": list(candidate.evidence),
    }


def candidates_digest(candidates: Sequence[Commands], root: Path) -> str:
    """Return what exactly these candidates are known by: what was shown is what is run."""
    return trust.digest({"candidates": [candidate_json(one) for one in candidates]}, root)


def missing_keys(project: ProjectConfig) -> tuple[str, ...]:
    """Return which of `postCreate` and `ci` a project does not set."""
    return (
        *(() if project.post_create or _brings_set_up(project) else ("postCreate",)),
        *(() if project.ci else ("ci",)),
    )


def drift(project: ProjectConfig, candidates: Sequence[Commands], root: Path) -> list[str]:
    """Return where a project's configuration and its files differ, one sentence each."""
    first = candidates[0] if candidates else None
    found = _set_up_drift(project, first, candidates, root)
    if first and first.test and not project.ci:
        found.append(f"no check is configured; {_says(first)}: {first.test}")
    return found


def _set_up_drift(
    project: ProjectConfig, first: Commands | None, candidates: Sequence[Commands], root: Path
) -> list[str]:
    configured = project.post_create
    if not configured:
        checks = {check.command for check in project.ci.values()}
        needs_none = any(one.test in checks and not one.set_up for one in candidates)
        wanted = first is not None and bool(first.set_up) and not needs_none and not _brings_set_up(project)
        return [f"postCreate is empty; {_says(first)}: {_joined(first.set_up)}"] if first and wanted else []
    for command, files in _NEEDS.items():
        if any(_begins(one, command) for one in configured) and not any((root / name).is_file() for name in files):
            instead = f"; {_says(first)}: {_joined(first.set_up)}" if first and first.set_up else ""
            return [f"postCreate runs {command}, which needs {' or '.join(files)}{instead}"]
    if first is None or not first.set_up or any(configured == one.set_up for one in candidates):
        return []
    theirs, ours = _managers(first.set_up), _managers(configured)
    for family in _FAMILIES:
        if ours & family and theirs & family and not ours & theirs & family:
            return [f"postCreate runs {_joined(configured)}; {_says(first)}: {_joined(first.set_up)}"]
    return []


def _brings_set_up(project: ProjectConfig) -> bool:
    named = {Path(name).name for name in (*project.copy, *project.symlinks)}
    return not named.isdisjoint(_MADE)


def _says(candidate: Commands | None) -> str:
    return f"{candidate.evidence[0]} suggests" if candidate and candidate.evidence else "detected"


def _joined(commands: Iterable[str]) -> str:
    return " && ".join(commands)


def _begins(command: str, known: str) -> bool:
    return f"{' '.join(command.split())} ".startswith(f"{known} ")


def _managers(commands: Iterable[str]) -> set[str]:
    known = frozenset().union(*_FAMILIES)
    return {Path(word).name for command in commands for word in command.split() if Path(word).name in known}
