"""The hook that decides for an agent without a terminal: the same rule as for all others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.deciding import decide


def asked(command: object, cwd: Path | str, tool: str = "Bash") -> dict[str, object]:
    return {"tool_name": tool, "tool_input": {"command": command}, "cwd": str(cwd)}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / "out").symlink_to("/etc")
    return workspace


def test_what_is_allowed(workspace: Path) -> None:
    for command in ("git add src", "git commit -m 'x'", f"cd {workspace} && git status", "make test"):
        assert decide(asked(command, workspace), str(workspace), ("make test",)), command
    assert decide(asked("git status", workspace / "src"), str(workspace), ())


@pytest.mark.parametrize(
    "command", ["git push", "make test -k x", "git add out/passwd", "git mv src out/x", "id", "", None, 7]
)
def test_what_is_left_to_the_agents_own_rules(workspace: Path, command: object) -> None:
    assert decide(asked(command, workspace), str(workspace), ("make test",)) is None


def test_another_tool_or_another_folder(workspace: Path) -> None:
    assert decide(asked("git status", workspace, "mcp__x__run"), str(workspace), ()) is None
    assert decide(asked("git status", workspace.parent), str(workspace), ()) is None
    assert decide(asked("git status", f"{workspace}-other"), str(workspace), ()) is None
    assert decide([], str(workspace), ()) is None and decide({"tool_name": "Bash"}, str(workspace), ()) is None


def test_as_a_program(workspace: Path) -> None:
    words = [sys.executable, "-I", "-m", "agent_orchestrator.deciding", str(workspace)]
    done = subprocess.run(
        words, input=json.dumps(asked("git status", workspace)), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "allow"
    for text in ("", "[[[[", json.dumps(asked("git push", workspace))):
        assert subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout == ""
