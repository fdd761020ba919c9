"""Whose configuration a file is, by what stands in it."""

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
_KNOWN = (
    "agent-orchestrator's yaml, what its `ao project get ID --json` prints, claude-squad's config.json, vibe-kanban's profiles.json"
    " or a cli-agent-orchestrator profile"
)


def bring(text: str, path: Path, folder: Path) -> Brought:
    """Read somebody's configuration for a file that is to lie in `folder`. Raises what is wrong with it."""
    notes = Notes(str(path))
    if found := _PROFILE.match(text.replace("\r\n", "\n")):
        head = _parsed(found[1], notes)
        return other_tools.profile(head, found[2].strip(), path.stem)
    tree = _parsed(text, notes)
    if {"default_program", "branch_prefix", "auto_yes"} & set(tree):
        return other_tools.claude_squad(tree)
    if isinstance(tree.get("executors"), Section):
        return other_tools.vibe_kanban(tree)
    if similar.is_go(tree):
        return similar.go(tree, notes, path, folder)
    if set(tree) & (keys_of(Config) | keys_of(Project) | {"dataDir", "worktreeDir"}):
        return similar.typescript(tree, notes, path, folder)
    raise UsageError(f"{path} is no configuration that is known", f"give {_KNOWN}")


def _parsed(text: str, notes: Notes) -> Section:
    tree = parse(text, notes)
    notes.check()
    return tree
