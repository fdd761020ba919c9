"""Detect which orchestrator a configuration file is from, by its keys."""

from __future__ import annotations

import re
from pathlib import Path

from agent_orchestrator.config.importers import other_tools, similar
from agent_orchestrator.config.importers.key_report import Brought
from agent_orchestrator.config.model import Config, Project, keys_of
from agent_orchestrator.config.problems import Notes
from agent_orchestrator.config.yaml_tree import Section, parse
from agent_orchestrator.errors import UsageError

_PROFILE = re.compile(r"\A---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)\Z", re.DOTALL)
_SUPPORTED = (
    "agent-orchestrator's yaml, what its `ao project get ID --json` prints, claude-squad's config.json, vibe-kanban's profiles.json"
    " or a cli-agent-orchestrator profile"
)


def bring(text: str, path: Path, folder: Path) -> Brought:
    """Read another orchestrator's configuration for a file in `folder`. Raises `AoError` if it is unknown or invalid."""
    notes = Notes(str(path))
    if profile := _PROFILE.match(text.replace("\r\n", "\n")):
        head = _parse(profile[1], notes)
        return other_tools.profile(head, profile[2].strip(), path.stem)
    tree = _parse(text, notes)
    if {"default_program", "branch_prefix", "auto_yes"} & set(tree):
        return other_tools.claude_squad(tree)
    if isinstance(tree.get("executors"), Section):
        return other_tools.vibe_kanban(tree)
    if similar.is_go(tree):
        return similar.go(tree, notes, path, folder)
    if set(tree) & (keys_of(Config) | keys_of(Project) | {"dataDir", "worktreeDir"}):
        return similar.typescript(tree, notes, path, folder)
    raise UsageError(f"{path} is no configuration that is known", f"give {_SUPPORTED}")


def _parse(text: str, notes: Notes) -> Section:
    tree = parse(text, notes)
    notes.check()
    return tree
