"""The walls that a configuration file puts around agents: containers, sandboxes and permissions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.config.trust.agents import RANKS
from agent_orchestrator.config.trust.digests import digest
from agent_orchestrator.config.trust.power import first_set


def walls(loaded: LoadedConfig, own: m.Config | None = None) -> dict[str, bool]:
    """Return the walls that a file could put around agents, and whether it does.

    With `own`, the user's own file counts where the file sets nothing.
    """
    config = (loaded.without_secrets or loaded).config
    defaults = [config.defaults, *([own.defaults] if own else [])]
    sections = config.projects or {"": config.project or m.Project()}
    projects = {
        f"projects.{name}.": {
            **_walls_of((config.agents.get(str(first_set("agent", project, *defaults)), project), project, *defaults)),
            "sandbox: bwrap": project.sandbox == "bwrap",
        }
        for name, project in sections.items()
    }
    weakest = {
        wall: all(held_walls[wall] for held_walls in projects.values()) for wall in next(iter(projects.values()))
    }
    profiles = {
        f"agents.{name}.": {
            wall: is_held if _sets_wall(wall, profile) else weakest[wall]
            for wall, is_held in _walls_of((profile,)).items()
        }
        for name, profile in config.agents.items()
    }
    walls_by_section = {**projects, **profiles}
    everywhere = {wall: all(held_walls.get(wall, True) for held_walls in walls_by_section.values()) for wall in weakest}
    reported = walls_by_section if config.projects else profiles
    return {
        f"{section_path}{wall}": is_held
        for section_path, held_walls in {"": everywhere, **reported}.items()
        for wall, is_held in held_walls.items()
    }


def _walls_of(sections: Sequence[BaseModel]) -> dict[str, bool]:
    """Return the walls other than a sandbox, each from the first of these sections that sets it."""
    runtime, permissions = first_set("runtime", *sections), _permissions(*sections)
    rank = RANKS.index(permissions) if permissions else len(RANKS)
    return {
        "runtime: docker": runtime == "docker",
        "permissions: plan": rank == 0,
        "permissions: default": rank <= 1,
    }


def _sets_wall(wall: str, profile: m.Profile) -> bool:
    return bool(getattr(profile, wall.partition(":")[0]))


def _permissions(*sections: BaseModel) -> Any:
    return first_set("permissions", *(getattr(section, "agent_config", section) for section in sections))


def wall_digests(wall: str, file: Path) -> tuple[str, str]:
    """Return the digest of a wall that a trusted file of that folder has, and the digest of a person's trust that it may be missing."""
    return digest({"wall": wall}, file.parent), digest({"without": wall}, file.parent)
