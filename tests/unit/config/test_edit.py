"""Editing a configuration file keeps the user's text; an initial file loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_orchestrator.config.detection.repository import RepositoryInfo, detect_repository, parse_remote
from agent_orchestrator.config.edit import get_value, initial_text, set_value
from agent_orchestrator.config.load import load_file, load_text
from agent_orchestrator.errors import ConfigError, Denied, UsageError

TEXT = """\
# My file
defaults:
  runtime: tmux # because
  notifiers:
    - desktop

projects:
  app: # the app
    path: '.'
    default_branch: main   # snake
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent-orchestrator.yaml"
    path.write_text(TEXT)
    return path


def test_setting_keeps_everything_else(file: Path) -> None:
    file.chmod(0o600)
    set_value(file, "defaults.runtime", "process", {})
    assert file.read_text() == TEXT.replace("runtime: tmux", "runtime: process")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_setting_uses_the_spelling_of_the_file(file: Path) -> None:
    set_value(file, "projects.app.defaultBranch", "dev", {})
    assert "default_branch: dev" in file.read_text()
    assert "# snake" in file.read_text()


def test_setting_creates_missing_sections_and_files(file: Path, tmp_path: Path) -> None:
    set_value(file, "projects.app.ci.command", "make test", {})
    set_value(file, "defaults.notifiers", "[desktop, slack]", {})
    config = load_file(file, {}).config
    assert config.projects["app"].ci["default"].command == "make test"
    assert config.defaults.notifiers == ("desktop", "slack")
    new = tmp_path / "new" / "config.yaml"
    set_value(new, "port", "4000", {})
    assert load_file(new, {}).config.port == 4000


def test_setting_keeps_a_symlink(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    set_value(link, "port", "4000", {})
    assert link.is_symlink()
    assert load_file(file, {}).config.port == 4000


def test_a_symlink_is_followed_within_its_repository_only(file: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "conf").mkdir()
    link = repo / "agent-orchestrator.yaml"
    before = file.read_text()
    for target in (file, repo / ".git" / "config"):
        link.unlink(missing_ok=True)
        target.write_text(before)
        link.symlink_to(target)
        with pytest.raises(Denied, match=re.escape(f"{link} leads to {target}")):
            set_value(link, "port", "4000", {}, repo)
        assert target.read_text() == before
    (repo / "conf" / "ao.yaml").write_text(before)
    link.unlink()
    link.symlink_to("conf/ao.yaml")
    set_value(link, "port", "4000", {}, repo)
    assert link.is_symlink() and load_file(repo / "conf" / "ao.yaml", {}).config.port == 4000


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("defaults.runtme", "x", 'did you mean "runtime"'),
        ("port", "many", "whole number"),
        ("defaults.runtime.x", "y", "plain value"),
        ("defaults.notifiers.7", "y", "1 items"),
        ("", "y", "no key"),
    ],
)
def test_an_invalid_change_leaves_the_file_unchanged(file: Path, key: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        set_value(file, key, value, {})
    assert file.read_text() == TEXT


def test_a_broken_file_is_not_changed(file: Path) -> None:
    file.write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        set_value(file, "port", "1", {})
    assert file.read_text() == "a: ["


def test_values_can_be_read_by_key(file: Path) -> None:
    set_value(file, "notifiers.slack.webhookUrl", "${SECRET}", {"SECRET": "s"})
    assert get_value(file, "defaults.runtime", {}) == "tmux"
    assert get_value(file, "projects.app.defaultBranch", {}) == "main"
    assert get_value(file, "defaults.notifiers.0", {}) == "desktop"
    assert get_value(file, "notifiers.slack.webhookUrl", {"SECRET": "s"}) == "${SECRET}"
    assert get_value(file, "power.preventIdleSleep", {}) is True
    with pytest.raises(UsageError, match='did you mean "power"'):
        get_value(file, "powr.preventIdleSleep", {})


@pytest.mark.parametrize(
    ("host", "name", "repo"),
    [
        ("github.com", "owner/app", "owner/app"),
        ("gitlab.com", "group/sub/app", "gitlab.com/group/sub/app"),
        ("github.example.com", "owner/app", None),
        ("acme.ghe.com", "owner/app", "acme.ghe.com/owner/app"),
        ("bitbucket.org", "owner/app", None),
        ("git.example.com", "owner/app", None),
        ("nas", "srv/git/app", None),
    ],
)
def test_a_repository_is_written_with_its_host_unless_it_is_github(
    tmp_path: Path, host: str, name: str, repo: str | None
) -> None:
    text = initial_text("app", RepositoryInfo("main", name, host))
    assert load_text(text, tmp_path / "x.yaml", {}).config.projects["app"].repo == repo
    assert name in text


def test_an_initial_file_loads(tmp_path: Path) -> None:
    detected = RepositoryInfo(
        "trunk", "owner/app", "github.com", ("uv sync", "echo '#'"), "make test: all", commands=("make lint",)
    )
    config = load_text(initial_text("my-app", detected, "codex", "app"), tmp_path / "x.yaml", {}).config
    project = config.projects["my-app"]
    assert (project.path, project.repo, project.default_branch) == (".", "owner/app", "trunk")
    assert (project.session_prefix, project.ci["default"].command) == ("app", "make test: all")
    assert (project.post_create, project.commands) == (("uv sync", "echo '#'"), ("make lint",))
    assert config.defaults.agent == "codex"
    bare = load_text(initial_text("123", RepositoryInfo()), tmp_path / "x.yaml", {}).config
    assert (list(bare.projects), bare.projects["123"].ci) == (["123"], {})
    two = load_text(
        initial_text("x", RepositoryInfo(test_command="a", lint="b ${c}: #")), tmp_path / "x.yaml", {}
    ).config
    assert {name: check.command for name, check in two.projects["x"].ci.items()} == {"test": "a", "lint": "b ${c}: #"}


def test_branch_remote_and_test_command_are_detected(tmp_path: Path) -> None:
    assert detect_repository(tmp_path) == RepositoryInfo()
    git = tmp_path / ".git"
    (git / "refs" / "remotes" / "origin").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/topic\n")
    (git / "config").write_text('[core]\n\tbare = false\n[remote "origin"]\n\turl = git@github.com:owner/app.git\n')
    (tmp_path / "Makefile").write_text("all:\n\ntest: all\n\tpytest\n")
    assert detect_repository(tmp_path) == RepositoryInfo("topic", "owner/app", "github.com", test_command="make test")
    (git / "packed-refs").write_text(f"{'a' * 40} refs/heads/master\n")
    assert detect_repository(tmp_path).default_branch == "master"
    (git / "refs" / "remotes" / "origin" / "HEAD").write_text("ref: refs/remotes/origin/release/1\n")
    assert detect_repository(tmp_path).default_branch == "release/1"


@pytest.mark.parametrize(
    ("name", "content", "commands"),
    [
        ("Makefile", "lint:\n\truff\nbuild: x\nformat := no\n", ("make lint", "make build")),
        (
            "package.json",
            '{"scripts": {"lint": "eslint", "build": "vite", "x": "y"}}',
            ("npm run lint", "npm run build"),
        ),
        ("package.json", '{"scripts": []}', ()),
        ("Cargo.toml", "", ("cargo build", "cargo clippy", "cargo fmt")),
        ("pyproject.toml", "[tool.ruff]\n[tool.mypy]\n", ("ruff check .", "ruff format .", "mypy")),
        ("pyproject.toml", "[tool", ()),
    ],
)
def test_lint_and_build_commands_are_detected(
    tmp_path: Path, name: str, content: str, commands: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    assert detect_repository(tmp_path).commands == commands
    config = load_text(initial_text("app", detect_repository(tmp_path)), tmp_path / "x.yaml", {}).config
    assert config.projects["app"].commands == commands


def test_the_remote_is_detected_in_a_worktree(tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    (main / "worktrees" / "w").mkdir(parents=True)
    (main / "worktrees" / "w" / "commondir").write_text("../..\n")
    (main / "config").write_text('[remote "upstream"]\n url = https://gitlab.example/group/sub/app\n')
    tree = tmp_path / "w"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {main / 'worktrees' / 'w'}\n")
    assert (detect_repository(tree).remote, detect_repository(tree).forge) == ("group/sub/app", "gitlab.example")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:secret@github.com/o/r.git", ("o/r", "github.com")),
        ("ssh://git@ghe.example:2222/o/r", ("o/r", "ghe.example")),
        ("GitHub.com:o/r.git", ("o/r", "github.com")),
        ("https://host.example/r.git", (None, None)),
        ("/srv/git/r.git", (None, None)),
        ("../r.git", (None, None)),
        ("file:///srv/o/r.git", (None, None)),
        ("C:\\repos\\r", (None, None)),
        ("", (None, None)),
    ],
)
def test_remote_urls_are_parsed(url: str, expected: tuple[str | None, str | None]) -> None:
    assert parse_remote(url) == expected
