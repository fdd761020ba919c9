"""Answers an agent's hook before it uses its shell: allowed, or left to the agent's own rules.

    python -I -m agent_orchestrator.sessions.permissions.hook WORKSPACE [COMMAND …] < hook.json

For agents without a terminal, where no person can be asked. The rules are the same as for all other agents (`rules.py`); the commands are
the project's own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from agent_orchestrator.sessions.permissions.autorun_files import hook_folders
from agent_orchestrator.sessions.permissions.path_checks import paths_stay_inside
from agent_orchestrator.sessions.permissions.rules import check_permission, normalize_command


def decide(
    request: object, workspace: str, own: tuple[str, ...], variables: Mapping[str, str] | None = None
) -> dict[str, object] | None:
    """Return the hook's answer, or None if the agent's own rules are to decide. `variables` are the agent's environment."""
    tool_input = request.get("tool_input") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(tool_input, dict) or request.get("tool_name") != "Bash":
        return None
    command, folder = tool_input.get("command"), str(request.get("cwd") or workspace)
    if not isinstance(command, str) or not (folder == workspace or folder.startswith(f"{workspace}/")):
        return None
    subfolder, hooks = folder[len(workspace) + 1 :], hook_folders(variables or {})
    verdict = check_permission("Bash", normalize_command(command), "auto-edit", own, (), workspace, subfolder, hooks)
    if not verdict or not paths_stay_inside(Path(workspace), verdict, hooks):
        return None
    answer = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "permissionDecisionReason": verdict.reason}
    return {"hookSpecificOutput": answer}


def main() -> None:
    """Read the request from standard input and write the decision."""
    try:
        answer = decide(json.load(sys.stdin), sys.argv[1], tuple(sys.argv[2:]), os.environ)
    except (ValueError, RecursionError):
        return
    if answer:
        sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
