"""Detect which orchestrator a configuration file is from, by its keys."""

from __future__ import annotations

import re
from pathlib import Path

from agent_orchestrator.config.importers import other_tools, typescript_and_go
from agent_orchestrator.config.importers.key_report import ImportedConfig
from agent_orchestrator.config.model import Config, Project, keys_of
from agent_orchestrator.config.problems import ConfigNotes
from agent_orchestrator.config.yaml_tree import Section, parse
from agent_orchestrator.errors import UsageError

_PROFILE = re.compile(r"\A---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)\Z", re.DOTALL)
_SUPPORTED = (
    "agent-orchestrator's yaml, what its `ao project get ID --json` prints, claude-squad's config.json, vibe-kanban's profiles.json"
    " or a cli-agent-orchestrator profile"
)


def read_import(text: str, path: Path, folder: Path) -> ImportedConfig:
    """Read another orchestrator's configuration for a file in `folder`. Raises `AoError` if it is unknown or invalid."""
    notes = ConfigNotes(str(path))
    if profile := _PROFILE.match(text.replace("\r\n", "\n")):
        head = _parse(profile[1], notes)
        return other_tools.convert_cli_agent_orchestrator(head, profile[2].strip(), path.stem)
    tree = _parse(text, notes)
    if {"default_program", "branch_prefix", "auto_yes"} & set(tree):
        return other_tools.convert_claude_squad(tree)
    if isinstance(tree.get("executors"), Section):
        return other_tools.convert_vibe_kanban(tree)
    if typescript_and_go.is_go_project(tree):
        return typescript_and_go.convert_go(tree, notes, path, folder)
    if set(tree) & (keys_of(Config) | keys_of(Project) | {"dataDir", "worktreeDir"}):
        return typescript_and_go.convert_typescript(tree, notes, path, folder)
    raise UsageError(f"{path} is no configuration that is known", f"give {_SUPPORTED}")


def _parse(text: str, notes: ConfigNotes) -> Section:
    tree = parse(text, notes)
    notes.raise_problems()
    return tree
