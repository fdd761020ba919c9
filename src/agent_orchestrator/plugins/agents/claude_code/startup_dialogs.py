"""Answers the dialogs of Claude Code's start in advance, in its state file: onboarding, trust in the folder, use of the API key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.claude_code.state_files import config_folder, state_file
from agent_orchestrator.plugins.agents.shared import agent_cli, user_files
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder
from agent_orchestrator.protocols import AgentContext

KEY_TAIL_LENGTH = 20
"""The number of last characters by which Claude Code remembers an approved API key."""


def answer_dialogs(context: AgentContext) -> None:
    """Answer onboarding, trust in the repository and approval of the API key in Claude Code's state file, under its lock.

    Raise `Temporary` if the lock stays held by another program.
    """
    file, folder = state_file(context.env), config_folder(context.env)
    if _is_answered(file, folder, context):
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(file) as is_locked:
        if not is_locked:
            raise Temporary(f"{file} stays locked by another program", f"if none runs, remove {file}.lock")
        agent_cli.merge_json(file, lambda data: _add_answers(data, context), folder)


def _is_answered(file: Path, folder: Path, context: AgentContext) -> bool:
    """Return whether the state file has all answers."""
    try:
        data = json.loads(user_files.read(file, folder)[0])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and not _add_answers(data, context)


def _add_answers(data: dict[str, Any], context: AgentContext) -> bool:
    """Add the missing answers to the state; return whether any was missing."""
    before = json.dumps(data)
    data["hasCompletedOnboarding"] = True
    data.setdefault("theme", "dark")
    projects = data.setdefault("projects", {})
    if isinstance(projects, dict):
        project = projects.setdefault(str(trusted_root(context.workspace)), {})
        if isinstance(project, dict):
            project["hasTrustDialogAccepted"] = True
    if key := context.env.get("ANTHROPIC_API_KEY"):
        responses = data.setdefault("customApiKeyResponses", {})
        if isinstance(responses, dict):
            approved, rejected = (responses.setdefault(name, []) for name in ("approved", "rejected"))
            tail = key[-KEY_TAIL_LENGTH:]
            if isinstance(approved, list) and isinstance(rejected, list) and tail not in (*approved, *rejected):
                approved.append(tail)
    return json.dumps(data) != before


def trusted_root(workspace: Path) -> Path:
    """Return the folder that trust is stored for: the main checkout of a worktree, otherwise the workspace itself."""
    folder = Path(os.path.realpath(workspace))
    layout = find_layout(folder)
    if layout is None or layout.common == layout.git_dir:
        return folder
    common = Path(os.path.realpath(layout.common))
    return common.parent if common.name == ".git" else common
