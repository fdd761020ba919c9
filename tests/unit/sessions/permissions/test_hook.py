"""The permission hook of agents without a terminal: it applies the same rules as elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.sessions.permissions.hook import decide


def request(command: object, cwd: Path | str, tool: str = "Bash") -> dict[str, object]:
    return {"tool_name": tool, "tool_input": {"command": command}, "cwd": str(cwd)}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / "out").symlink_to("/etc")
    return workspace


def test_git_on_the_own_branch_and_project_commands_are_allowed(workspace: Path) -> None:
    for command in ("git add src", "git commit -m 'x'", f"cd {workspace} && git status", "make test"):
        assert decide(request(command, workspace), str(workspace), ("make test",)), command
    assert decide(request("git status", workspace / "src"), str(workspace), ())


@pytest.mark.parametrize(
    "command", ["git push", "make test -k x", "git add out/passwd", "git mv src out/x", "id", "", None, 7]
)
def test_other_commands_are_left_to_the_agents_own_rules(workspace: Path, command: object) -> None:
    assert decide(request(command, workspace), str(workspace), ("make test",)) is None


def test_other_tools_and_folders_are_left_to_the_agents_own_rules(workspace: Path) -> None:
    assert decide(request("git status", workspace, "mcp__x__run"), str(workspace), ()) is None
    assert decide(request("git status", workspace.parent), str(workspace), ()) is None
    assert decide(request("git status", f"{workspace}-other"), str(workspace), ()) is None
    assert decide([], str(workspace), ()) is None and decide({"tool_name": "Bash"}, str(workspace), ()) is None


def plant(folder: Path, witness: Path) -> None:
    """Write files that make a folder a repository whose configuration runs a program."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "x").write_text("")
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(
        f'[core]\nrepositoryformatversion = 0\nworktree = "{folder}"\nfsmonitor = "touch {witness}; false"\n'
    )


def test_commands_in_a_nested_repository_are_not_allowed(workspace: Path, tmp_path: Path) -> None:
    plant(workspace / "src" / "lib", tmp_path / "ran")
    (workspace / "src" / "lib" / "more").mkdir()
    (workspace / "vendor" / "x").mkdir(parents=True)
    (workspace / "vendor" / ".git").write_text("gitdir: /elsewhere\n")
    (workspace / "cut").mkdir()
    (workspace / "cut" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / "cut" / "commondir").write_text("../elsewhere\n")
    for folder in ("src/lib", "src/lib/more", "vendor", "vendor/x", "cut", "gone", "out", "src/../src/lib"):
        assert decide(request("git status", workspace / folder), str(workspace), ()) is None, folder
        assert decide(request(f"cd {workspace} && git status", workspace / folder), str(workspace), ()), folder
    for folder in (".", "src"):
        assert decide(request("git status", workspace / folder), str(workspace), ()), folder


def test_a_planted_repository_runs_nothing_with_an_agents_variables(workspace: Path, tmp_path: Path) -> None:
    """Git runs the program of the planted repository, but not with the variables of an agent's Git."""
    plant(workspace / "lib", tmp_path / "ran")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    setting = {"GIT_CONFIG_KEY_0": "safe.bareRepository", "GIT_CONFIG_VALUE_0": "explicit", "GIT_CONFIG_COUNT": "1"}
    for variables, runs in ((env | setting, False), (env, True)):
        subprocess.run(["git", "status"], cwd=workspace / "lib", env=variables, capture_output=True, check=False)
        assert (tmp_path / "ran").exists() == runs


def test_commands_are_compared_with_the_files_of_the_workspace(workspace: Path) -> None:
    (workspace / ".claude").mkdir()
    (workspace / "ai").symlink_to(".claude")
    (workspace / "Makefile").write_text("")
    variables = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "src/hooks"}
    for command in (
        "git checkout main -- Makefile",
        "git mv a src/b",
        "git restore src",
    ):
        assert decide(request(command, workspace), str(workspace), (), variables), command
    for command in (
        "git checkout main -- src",
        "git checkout main -- gone",
        "git checkout main -- gone.py",
        "git mv a ai/settings.json",
        "git mv a src/hooks/pre-commit",
        "git mv b/hooks src",
        "git mv b/settings.json ai",
    ):
        assert decide(request(command, workspace), str(workspace), (), variables) is None, command
    assert decide(request("git mv a b/settings.json", workspace / "ai"), str(workspace), ()) is None
    assert decide(request("git checkout main -- settings.json", workspace / ".claude"), str(workspace), ()) is None


def test_the_hook_answers_as_a_program(workspace: Path) -> None:
    words = [sys.executable, "-I", "-m", "agent_orchestrator.sessions.permissions.hook", str(workspace)]
    completed = subprocess.run(
        words, input=json.dumps(request("git status", workspace)), capture_output=True, text=True, check=True
    )
    assert json.loads(completed.stdout)["hookSpecificOutput"]["permissionDecision"] == "allow"
    for text in ("", "[[[[", json.dumps(request("git push", workspace))):
        assert subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout == ""
