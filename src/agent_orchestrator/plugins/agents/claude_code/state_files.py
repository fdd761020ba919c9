"""Claude Code's own state file: where it is, which of its dialogs are answered in advance, and its copy for a sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.shared import cli, user_files
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder
from agent_orchestrator.protocols import AgentContext

KEY_TAIL = 20
"""The number of last characters by which Claude Code remembers an approved API key."""

log = structlog.get_logger(__name__)


def own_file(env: Mapping[str, str]) -> Path:
    """Return the path of Claude Code's state: logins, trusted folders, answered dialogs."""
    folder = config_folder(env)
    return folder / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else folder.parent / ".claude.json"


def config_folder(env: Mapping[str, str]) -> Path:
    """Return the folder in which Claude Code keeps its settings, records and transcripts."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env["CLAUDE_CONFIG_DIR"]) if env.get("CLAUDE_CONFIG_DIR") else home / ".claude"


def answer_dialogs(context: AgentContext) -> None:
    """Answer onboarding, trust in the repository and approval of the API key in Claude Code's state file, under its lock.

    Raise `Temporary` if the lock stays held by another program.
    """
    file, folder = own_file(context.env), config_folder(context.env)
    if _is_answered(file, folder, context):
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(file) as is_locked:
        if not is_locked:
            raise Temporary(f"{file} stays locked by another program", f"if none runs, remove {file}.lock")
        cli.merge_json(file, lambda data: _add_answers(data, context), folder)


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
            tail = key[-KEY_TAIL:]
            if isinstance(approved, list) and isinstance(rejected, list) and tail not in (*approved, *rejected):
                approved.append(tail)
    return json.dumps(data) != before


def update_copy(file: Path, copy: Path) -> None:
    """Update a copy of the state from the user's own; projects that only the copy has stay."""
    folder = copy.parent
    try:
        user_state = json.loads(user_files.read(file, folder)[0])
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(user_state, dict):
        return

    def bring(data: dict[str, Any]) -> bool:
        """Merge the user's state into the copy; the user's projects win."""
        copied_projects, user_projects = data.get("projects"), user_state.get("projects")
        data.update(user_state)
        data["projects"] = {
            **(copied_projects if isinstance(copied_projects, dict) else {}),
            **(user_projects if isinstance(user_projects, dict) else {}),
        }
        return True

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(copy.lstat().st_mode):
            copy.unlink()  # made by an agent, since agents write in this folder
    with lock_folder(copy) as is_locked:
        if not is_locked:
            log.warning("Claude Code's state is copied without its lock, which stays", lock=f"{copy}.lock")
        cli.merge_json(copy, bring, folder)


def trusted_root(workspace: Path) -> Path:
    """Return the folder that trust is stored for: the main checkout of a worktree, otherwise the workspace itself."""
    folder = Path(os.path.realpath(workspace))
    layout = find_layout(folder)
    if layout is None or layout.common == layout.git_dir:
        return folder
    common = Path(os.path.realpath(layout.common))
    return common.parent if common.name == ".git" else common
