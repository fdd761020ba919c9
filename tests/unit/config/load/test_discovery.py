"""Discovery of the configuration file, and the allowed folders of workspaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.config.load import find_config_file
from agent_orchestrator.errors import ConfigError
from tests.unit.config.load.documents import load_config_text, load_problems


def test_the_nearest_configuration_file_is_used(tmp_path: Path) -> None:
    user, home = tmp_path / "user", tmp_path / "user" / ".ao"
    deep = user / "repo" / "src" / "deep"
    deep.mkdir(parents=True)
    home.mkdir()
    environ = {"HOME": str(user)}
    (tmp_path / "agent-orchestrator.yaml").write_text("")
    assert find_config_file(deep, environ, home) is None
    (home / "config.yaml").write_text("")
    assert find_config_file(deep, environ, home) == home / "config.yaml"
    (user / "repo" / "agent-orchestrator.yml").write_text("")
    assert find_config_file(deep, environ, home) == user / "repo" / "agent-orchestrator.yml"
    (user / "other.yaml").write_text("")
    assert find_config_file(deep, {**environ, "AO_CONFIG": "~/other.yaml"}, home) == user / "other.yaml"
    with pytest.raises(ConfigError, match="AO_CONFIG"):
        find_config_file(deep, {**environ, "AO_CONFIG": "nowhere.yaml"}, home)


def test_a_file_in_a_workspace_is_ignored(tmp_path: Path) -> None:
    user, home = tmp_path / "user", tmp_path / "user" / ".ao"
    real, moved = home / "worktrees" / "app" / "fix", tmp_path / "elsewhere" / "fix"
    repo = user / "repo"
    for folder in (real, moved, repo / ".worktrees"):
        folder.mkdir(parents=True)
    (repo / ".worktrees" / "fix").symlink_to(real)
    (real / "agent-orchestrator.yaml").write_text("")
    (moved / "agent-orchestrator.yaml").write_text("")
    (repo / "agent-orchestrator.yaml").write_text("")
    environ = {"HOME": str(user)}
    assert find_config_file(real, environ, home) is None
    assert find_config_file(moved, environ, home, [tmp_path / "elsewhere"]) is None
    assert find_config_file(repo / ".worktrees" / "fix", environ, home) == repo / "agent-orchestrator.yaml"


@pytest.mark.parametrize("part", [*"`$;|&<>\"'\\#*?()", "\n", "\x1b", "\u2028"])
def test_a_worktree_folder_with_special_characters_is_refused(part: str) -> None:
    written = json.dumps(f"trees {part}x")
    [error] = load_problems(f"project: {{worktreeDir: {written}}}")
    assert error.startswith("ao.yaml:1: project.worktreeDir: ") and "a shell or tmux would interpret" in error
    [error] = load_problems("project: {worktreeDir: '${WHERE}/trees'}", WHERE=f"/tmp/{part}x")
    assert "a shell or tmux would interpret" in error


def test_other_worktree_folders_are_accepted() -> None:
    for folder in ("../trees of mine", "~/.worktrees", "~me/träume", "/a-b_c/d.e,f+g@h=i/[1]{2}%"):
        project = load_config_text(f"project: {{worktreeDir: {json.dumps(folder)}}}").project
        assert project and project.worktree_dir == folder
