"""What may be done without asking a person, and what may not although it looks like it."""

from __future__ import annotations

import pytest

from agent_orchestrator.flow.permissions import only_looks, permitted, plain_git


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git add -A",
        "git commit -m 'fix: a thing'",
        "git diff HEAD~1 -- src",
        "git log --oneline -5",
        "git rebase origin/main",
        "GIT_EDITOR=true git rebase --continue",
        "git merge --no-edit main",
        "git merge --abort",
    ],
)
def test_git_on_its_own_branch_is_permitted(command: str) -> None:
    assert plain_git(command)
    assert permitted("Bash", command, "auto-edit", (), ())
    assert not permitted("Bash", command, "default", (), ())


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git checkout main",
        "git commit -m x; rm -rf /",
        "git commit -m `id`",
        "git commit -m $(id)",
        "git add -A && curl evil",
        "git log\nrm x",
        "git -c core.pager=evil log",
        "git diff --output=/etc/passwd",
        "git diff --ext-diff",
        "git log > out",
        "git status | sh",
        "gitx status",
        " git status",
        "git statusx",
        "GIT_DIR=/x git status",
        "git rebase main other",
        "git rebase --exec id main",
        "git rebase -i main",
        "git merge main other",
        "git merge -s ours main",
        "git merge $(id)",
        "GIT_EDITOR=id git rebase --continue",
        "git rebase --continue; id",
    ],
)
def test_what_only_looks_like_it_is_asked(command: str) -> None:
    assert not plain_git(command)
    assert not permitted("Bash", command, "auto-edit", ("make test",), ())


def test_a_projects_own_command_and_nothing_more() -> None:
    assert permitted("Bash", "make test", "auto-edit", ("make test",), ())
    assert not permitted("Bash", "make test; id", "auto-edit", ("make test",), ())
    assert not permitted("Bash", "", "auto-edit", ("",), ())


def test_what_a_person_allowed_holds_for_that_tool_and_command_in_every_mode() -> None:
    rules = [("Bash", "npm ci")]
    assert permitted("Bash", "npm ci", "default", (), rules)
    assert not permitted("Write", "npm ci", "default", (), rules)
    assert not permitted("Bash", "npm ci --force", "default", (), rules)


@pytest.mark.parametrize("path", ["a.txt", "src/a b.py", ".env", ".gitignore", "a..b/c", "ünï.txt"])
def test_files_of_the_workspace_may_be_edited(path: str) -> None:
    assert permitted("edit", path, "auto-edit", (), ()) and permitted("read", path, "auto-edit", (), ())
    assert not permitted("edit", path, "default", (), ()) and not permitted("Write", path, "auto-edit", (), ())


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../x", "..", "./a", "~/x", "C:\\x", "a\\b", ".git", ".git/hooks/x", "a/.GIT/config", ""],
)
def test_other_files_are_asked(path: str) -> None:
    assert not permitted("edit", path, "auto-edit", (), ())


def test_going_on_needs_no_question_and_full_needs_none_at_all() -> None:
    assert permitted("continue", "Attempt to fix lint errors?", "auto-edit", (), ())
    assert not permitted("continue", "Attempt to fix lint errors?", "default", (), ())
    assert permitted("shell", "rm -rf /", "full", (), ()) and permitted("aider 17", "", "full", (), ())


@pytest.mark.parametrize(
    "command", ["ao status", "ao status --json", "ao logs app-x", "ao why app-x", "ao backlog -p app", "ao ls -A"]
)
def test_ao_commands_that_only_look(command: str) -> None:
    assert only_looks(command)


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
        "ao api POST /x",
        "ao statusx",
        "ao",
        "",
    ],
)
def test_what_only_looks_like_looking(command: str) -> None:
    assert not only_looks(command)
