"""Claude Code's own state file: where it is, and its copy for a sandbox."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.plugins.agents.shared import agent_cli, user_files
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder

log = structlog.get_logger(__name__)


def state_file(env: Mapping[str, str]) -> Path:
    """Return the path of Claude Code's state: logins, trusted folders, answered dialogs."""
    folder = config_folder(env)
    return folder / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else folder.parent / ".claude.json"


def config_folder(env: Mapping[str, str]) -> Path:
    """Return the folder in which Claude Code keeps its settings, records and transcripts."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env["CLAUDE_CONFIG_DIR"]) if env.get("CLAUDE_CONFIG_DIR") else home / ".claude"


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
        agent_cli.merge_json(copy, bring, folder)
