"""Permission rules: commands and edits that are allowed without a person, and similar ones that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.protocols.text import make_visible
from agent_orchestrator.sessions.permissions.autorun_files import hook_folders
from agent_orchestrator.sessions.permissions.rules import (
    MAX_COMMAND_LENGTH,
    check_permission,
    is_read_only,
    normalize_command,
    parse_git_line,
)

HERE = Path(__file__).parent
NOT_ALLOWED = [
    tuple(line.split("\t"))
    for line in (HERE / "permissions_asked.tsv").read_text().splitlines()
    if not line.startswith("#")
]
ALLOWED = [line for line in (HERE / "permissions_allowed.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("command", ALLOWED)
def test_git_on_its_own_branch_is_permitted(command: str) -> None:
    command = json.loads(command)
    assert normalize_command(command) == command
    assert parse_git_line(command, "/ws") is not None
    assert check_permission("Bash", command, "auto-edit", (), (), "/ws")
    assert not check_permission("Bash", command, "default", (), (), "/ws")


@pytest.mark.parametrize(("command", "why"), NOT_ALLOWED)
def test_similar_commands_need_a_person(command: str, why: str) -> None:
    command = json.loads(command)
    for spelled in (command, normalize_command(command)):
        assert not check_permission("Bash", spelled, "auto-edit", ("make test",), (), "/ws"), why


def test_only_a_shell_runs_commands() -> None:
    assert check_permission("shell", "git status", "auto-edit", (), ()) and check_permission(
        "Bash", "make", "auto-edit", ("make",), ()
    )
    for tool in ("mcp__servers__run", "WebFetch", "fetch", "Write", ""):
        assert not check_permission(tool, "git status", "auto-edit", (), ())
        assert not check_permission(tool, "make", "auto-edit", ("make",), ())


def test_only_the_exact_command_of_a_project_is_allowed() -> None:
    assert check_permission("Bash", "make test", "auto-edit", ("make test",), ())
    assert not check_permission("Bash", "make test; id", "auto-edit", ("make test",), ())
    assert not check_permission("Bash", "", "auto-edit", ("",), ())


def test_a_persons_rule_holds_for_its_tool_and_command_in_every_mode() -> None:
    rules = [("Bash", "npm ci")]
    assert check_permission("Bash", "npm ci", "default", (), rules)
    assert not check_permission("Write", "npm ci", "default", (), rules)
    assert not check_permission("Bash", "npm ci --force", "default", (), rules)


def test_a_long_command_is_not_confused_with_its_beginning() -> None:
    beginning = "git add " + "a " * MAX_COMMAND_LENGTH
    assert normalize_command(beginning + "&& evil") != normalize_command(beginning) and normalize_command(
        beginning + "&& evil"
    ) != normalize_command(beginning + "&& others")
    assert not check_permission("Bash", normalize_command(beginning), "auto-edit", (), ())
    quoted = "git commit -m '" + "a" * MAX_COMMAND_LENGTH
    assert not check_permission("Bash", normalize_command(quoted + "' && evil"), "auto-edit", (), ())


@given(st.text(), st.text())
def test_different_commands_are_normalized_differently(first: str, second: str) -> None:
    assert (normalize_command(first) == normalize_command(second)) == (first == second)


@given(st.text())
def test_a_normalized_command_is_printable(command: str) -> None:
    normalized = normalize_command(command)
    assert all(character in "\n\t" or character.isprintable() for character in normalized)


def test_hidden_characters_of_a_command_are_shown() -> None:
    assert normalize_command("git status\r\x1b[2K\u202e\u200b") == "git status⟦U+000D⟧⟦U+001B⟧[2K⟦U+202E⟧⟦U+200B⟧"
    assert make_visible("⟦U+001B⟧") == "⟦U+27E6⟧U+001B⟦U+27E7⟧", "and nothing else looks like it"


@pytest.mark.parametrize(
    "path", ["a.txt", "src/a b.py", ".env.example", ".gitignore", "a..b/c", "ünï.txt", "a.txt, b/c.txt"]
)
def test_files_of_the_workspace_may_be_edited(path: str) -> None:
    assert check_permission("edit", path, "auto-edit", (), ()) and check_permission("read", path, "auto-edit", (), ())
    assert not check_permission("edit", path, "default", (), ()) and not check_permission(
        "Write", path, "auto-edit", (), ()
    )


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../x",
        "..",
        "./a",
        "~/x",
        "C:\\x",
        "a\\b",
        ".git",
        ".git/hooks/x",
        "a/.GIT/config",
        ".g\u200cit/config",
        "git~1/config",
        ".git /config",
        "",
        "a.txt, /etc/passwd",
        "a.txt, ../x",
        "a.txt, .git/config",
        "a//b",
        "a\nb",
        "a\u202eb",
        " a",
    ],
)
def test_files_outside_the_workspace_need_a_person(path: str) -> None:
    assert not check_permission("edit", path, "auto-edit", (), ())
    assert not check_permission("read", path, "auto-edit", (), ())


STEERING = [
    ".claude/settings.json",
    "sub/.mcp.json",
    ".husky/pre-commit",
    ".VSCODE/tasks.json",
    ".idea/watcherTasks.xml",
    ".zed/settings.json",
    ".github/hooks/x.json",
    "mise.toml",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    "lefthook-local.yaml",
    ".lefthook.toml",
    ".lefthook/pre-commit/x.sh",
    ".githooks/pre-commit",
    ".git-hooks/pre_commit/x.rb",
    ".overcommit.yml",
    ".huskyrc",
    ".huskyrc.js",
    ".lintstagedrc.json",
    "lint-staged.config.mjs",
    "commitlint.config.js",
    ".simple-git-hooks.cjs",
    ".lfsconfig",
    ".env",
    ".env.local",
    ".env.production",
    ".env.development.local",
    "bunfig.toml",
    ".npmrc",
    "web/.npmrc",
    "node_modules/.bin/mcp-server",
    ".github/copilot/settings.json",
    ".devcontainer.json",
    ".mise.local.toml",
    ".vimrc",
    "sub/HEAD",
    "sub/head",
    "a.txt, .mcp.json",
]


@pytest.mark.parametrize("path", STEERING)
def test_files_that_configure_programs_may_be_read_but_not_edited(path: str) -> None:
    assert not check_permission("edit", path, "auto-edit", (), ())
    assert check_permission("read", path, "auto-edit", (), ())


@pytest.mark.parametrize("path", [path for path in STEERING if "," not in path])
@pytest.mark.parametrize(
    "command",
    [
        "git mv x {}",
        "git mv {} x",
        "git checkout main -- {}",
        "git checkout -- {}",
        "git restore --source=main {}",
        "git rm -f {}",
    ],
)
def test_git_may_not_change_files_that_configure_programs(command: str, path: str) -> None:
    assert not check_permission("Bash", command.format(path), "auto-edit", (), (), "/ws")
    folder, _, name = path.rpartition("/")
    assert not check_permission("Bash", command.format(name), "auto-edit", (), (), "/ws", folder), "from its folder"


@pytest.mark.parametrize(
    "path",
    [
        "package.json",
        "conftest.py",
        "Makefile",
        ".github/workflows/ci.yml",
        "HEADER",
        "src/head.py",
        "hooks/use_state.ts",
        "src/env.ts",
        "src/npmrc.ts",
        "config",
        "CLAUDE.md",
    ],
)
def test_ordinary_project_files_may_be_edited(path: str) -> None:
    assert check_permission("edit", path, "auto-edit", (), ())


def test_hooks_of_the_workspace_may_not_be_changed() -> None:
    env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "./tools/hooks"}
    hooks = hook_folders(env)
    for tool, command in (("edit", "tools/hooks/pre-commit"), ("Bash", "git mv x tools/hooks/pre-commit")):
        assert check_permission(tool, command, "auto-edit", (), (), "/ws")
        assert not check_permission(tool, command, "auto-edit", (), (), "/ws", hooks=hooks)
    assert check_permission("edit", "tools/hook.py", "auto-edit", (), (), hooks=hooks)
    for value in ("/ao/sessions/x/hooks", "~/hooks", ""):
        assert hook_folders({**env, "GIT_CONFIG_VALUE_0": value}) == ()
    assert hook_folders({"GIT_CONFIG_COUNT": "many"}) == hook_folders({"GIT_CONFIG_COUNT": "3"}) == ()


@pytest.mark.parametrize(
    "command",
    [
        "git mv a/hooks .github",
        "git mv a .github",
        "git mv -f b a/mcp.json .github/",
        "git mv a/extensions/ /ws/.github",
        "git mv a/mise .config",
        "git mv a sub/.config",
        "git mv a/hooks tools",
        "git mv a tools",
        "cd /ws && git mv a/x tools/git && git status",
    ],
)
def test_a_folder_with_hooks_or_settings_may_not_be_moved_into_place(command: str) -> None:
    hooks = ("tools/hooks", "tools/git/hooks")
    assert not check_permission("Bash", command, "auto-edit", (), (), "/ws", hooks=hooks)


@pytest.mark.parametrize(
    "command", ["git mv a .", "git mv a b tools/more", "git mv a.yml .github/workflows", "git mv hooks lib"]
)
def test_other_folders_may_be_moved(command: str) -> None:
    assert check_permission("Bash", command, "auto-edit", (), (), "/ws", hooks=("tools/hooks",))


def test_a_move_is_resolved_from_the_current_folder() -> None:
    assert not check_permission("Bash", "git mv a/hooks .", "auto-edit", (), (), "/ws", ".github")
    assert not check_permission("Bash", "git mv a hooks", "auto-edit", (), (), "/ws", ".github")


def test_the_paths_to_examine_are_returned() -> None:
    assert check_permission("edit", "a/b", "auto-edit", (), ()).paths == ("a/b",)
    assert check_permission("Bash", "git add a/b && git commit -m x c", "auto-edit", (), ()).paths == ("a/b", "c")
    permission = check_permission(
        "Bash", "git checkout main -- a.py && git rm /ws/b", "auto-edit", (), (), "/ws", "sub"
    )
    assert permission.changed == ("sub/a.py", "b") and permission.files == ("sub/a.py",) and permission.folder == "sub"
    assert check_permission("Bash", "cd /ws && git add a", "auto-edit", (), (), "/ws", "sub").paths == ("a",)


def test_continuing_and_full_mode_need_no_person() -> None:
    assert check_permission("continue", "Attempt to fix lint errors?", "auto-edit", (), ())
    assert not check_permission("continue", "Attempt to fix lint errors?", "default", (), ())
    assert check_permission("shell", "rm -rf /", "full", (), ()) and check_permission("aider 17", "", "full", (), ())


@pytest.mark.parametrize(
    "command",
    [
        "ao status",
        "ao status --json",
        "ao logs app-x",
        "ao logs app-x -n 20",
        "ao why app-x",
        "ao backlog -p app",
        "ao ls -A",
        "ao checks app-x --log test",
        "ao usage --by=agent",
    ],
)
def test_read_only_ao_commands_are_recognized(command: str) -> None:
    assert is_read_only(command)


@pytest.mark.parametrize(
    "command",
    [
        "ao merge app-x",
        "ao stop app-x",
        "ao status; ao merge app-x",
        "ao status && ao merge app-x",
        "ao logs $(ao merge app-x)",
        "ao status\nao merge app-x",
        "ao logs app-x > file",
        "ao checks app-x --run",
        "ao logs -f app-x",
        "ao logs -fn 5 app-x",
        "ao status -Aw",
        "ao usage --release work",
        "ao usage --release=work",
        "ao events --replay=/etc/passwd",
        "ao api POST /x",
        "ao statusx",
        "AO_HOME=/x ao status",
        "ao 'status'",
        "ao",
        "",
    ],
)
def test_similar_commands_are_not_read_only(command: str) -> None:
    assert not is_read_only(command)
