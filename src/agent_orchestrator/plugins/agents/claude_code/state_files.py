"""Claude Code's own state: where it is, what it would ask that is answered ahead, and the copy that it has in a sandbox."""

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
"""Characters by which Claude Code remembers an API key that was approved."""

log = structlog.get_logger(__name__)


def own_file(env: Mapping[str, str]) -> Path:
    """Its state: logins, trusted folders, answered dialogs."""
    folder = config_folder(env)
    return folder / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else folder.parent / ".claude.json"


def config_folder(env: Mapping[str, str]) -> Path:
    """Where Claude Code keeps its settings, records and transcripts."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env["CLAUDE_CONFIG_DIR"]) if env.get("CLAUDE_CONFIG_DIR") else home / ".claude"


def answer_ahead(context: AgentContext) -> None:
    """Onboarding, trust in the repository and the API key of the environment, in Claude Code's own file and under its lock."""
    file, folder = own_file(context.env), config_folder(context.env)
    if _already_answered(file, folder, context):
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(file) as held:
        if not held:
            raise Temporary(f"{file} stays locked by another program", f"if none runs, remove {file}.lock")
        cli.merge_json(file, lambda data: _answers(data, context), folder)


def _already_answered(file: Path, folder: Path, context: AgentContext) -> bool:
    try:
        data = json.loads(user_files.read(file, folder)[0])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and not _answers(data, context)


def _answers(data: dict[str, Any], context: AgentContext) -> bool:
    """Put in what is missing; says whether anything was."""
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


def take_along(file: Path, copy: Path) -> None:
    """Bring a copy of its state up to the user's own; what was learnt in the copy stays where his says nothing."""
    folder = copy.parent
    try:
        theirs = json.loads(user_files.read(file, folder)[0])
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(theirs, dict):
        return

    def bring(data: dict[str, Any]) -> bool:
        learnt, known = data.get("projects"), theirs.get("projects")
        data.update(theirs)
        data["projects"] = {
            **(learnt if isinstance(learnt, dict) else {}),
            **(known if isinstance(known, dict) else {}),
        }
        return True

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(copy.lstat().st_mode):
            copy.unlink()  # an agent's doing: the copy is where agents write
    with lock_folder(copy) as held:
        if not held:
            log.warning("Claude Code's state is copied without its lock, which stays", lock=f"{copy}.lock")
        cli.merge_json(copy, bring, folder)


def trusted_root(workspace: Path) -> Path:
    """The folder that trust is kept for: a worktree's main checkout, otherwise the workspace itself."""
    here = Path(os.path.realpath(workspace))
    layout = find_layout(here)
    if layout is None or layout.common == layout.git_dir:
        return here
    common = Path(os.path.realpath(layout.common))
    return common.parent if common.name == ".git" else common
