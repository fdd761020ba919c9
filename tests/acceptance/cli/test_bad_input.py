"""Bad input: one line with the problem and the remedy, the right exit code, and no partial effects."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

ODD_NAMES = ["a b", "a/b", "..", "ünï", "-x", "x" * 300, ".hidden", "a\tb"]
ODD_BRANCHES = ["a b", "..", "-x", "a..b", "x.lock", "HEAD", "@", "a//b", "a~1", "ends/"]
LONG_BRANCHES = ["x" * 300, f"feature/{'x' * 251}", "ü" * 126, "/".join(["x" * 200] * 6)]


def _repository(box: Sandbox, name: str) -> Path:
    """Create a second repository; the sandbox's current one stays the same."""
    first = box.repo
    try:
        return box.repository(name)
    finally:
        box.repo = first


def _ids(box: Sandbox) -> set[str]:
    return {session["id"] for session in box.sessions()}


def test_a_folder_without_a_repository_is_refused(shared: Sandbox) -> None:
    plain = shared.folder / "plain"
    plain.mkdir()
    for command in (["new", "x"], ["init"], ["add-project", "."], ["create", "x"]):
        assert_refused(
            shared.ao(*command, cwd=plain, check=False), 2, str(plain), "git init" if command[0] == "new" else ""
        )
    assert shared.ao("status", cwd=plain).returncode == 0
    assert list(plain.iterdir()) == []


def test_a_bare_repository_can_be_used(shared: Sandbox) -> None:
    bare = shared.folder / "bare.git"
    shared.git("clone", "-q", "--bare", str(shared.repo), str(bare))
    created = _ao_json(shared, "new", "[[edit: a|b]] [[commit: c]]", "--agent", "demo", "--name", "inbare", cwd=bare)
    shared.wait_until(lambda: shared.session(created["id"])["status"] == "pr_open")
    assert shared.git("log", "--oneline", "main..feature/inbare", cwd=bare)
    assert not (bare / ".worktrees").exists()


def test_an_empty_repository_is_refused_until_it_has_a_commit(shared: Sandbox) -> None:
    empty = shared.folder / "empty"
    empty.mkdir()
    shared.git("init", "-q", "-b", "main", cwd=empty)
    before = _ids(shared)
    assert_refused(shared.ao("new", "x", "--agent", "demo", cwd=empty, check=False), 1, "no commit", "git commit")
    assert _ids(shared) == before
    assert not (empty / ".worktrees").exists()
    shared.git("commit", "-q", "--allow-empty", "-m", "start", cwd=empty)
    assert _ao_json(shared, "new", "[[wait]]", "--agent", "demo", cwd=empty)["status"] in (
        "working",
        "idle",
        "starting",
    )


def test_a_dirty_checkout_is_not_changed(shared: Sandbox) -> None:
    repo = _repository(shared, "dirty")
    (repo / "README.md").write_text("changed\n")
    (repo / "staged").write_text("s\n")
    (repo / "untracked").write_text("u\n")
    shared.git("add", "staged", cwd=repo)
    before = shared.git("status", "--porcelain", cwd=repo)
    created = _ao_json(shared, "new", "[[edit: a|b]] [[commit: c]]", cwd=repo)
    shared.wait_until(lambda: shared.session(created["id"])["status"] == "pr_open")
    shared.ao("stop", created["id"], cwd=repo)
    assert shared.git("status", "--porcelain", cwd=repo) == before
    assert (repo / "README.md").read_text() == "changed\n"


def test_a_detached_head_is_accepted(shared: Sandbox) -> None:
    repo = _repository(shared, "detached")
    shared.git("checkout", "-q", "--detach", cwd=repo)
    created = _ao_json(shared, "new", "[[wait]]", cwd=repo)
    assert created["base"] == "main"
    assert shared.git("rev-parse", "--abbrev-ref", "HEAD", cwd=repo) == "HEAD"


def test_a_branch_that_exists_is_continued_or_avoided(shared: Sandbox) -> None:
    repo = _repository(shared, "branches")
    shared.git("checkout", "-q", "-b", "mine", cwd=repo)
    (repo / "mine.txt").write_text("mine\n")
    shared.git("add", "mine.txt", cwd=repo)
    shared.git("commit", "-q", "-m", "mine", cwd=repo)
    before = _ids(shared)
    assert_refused(shared.ao("new", "x", "--branch", "mine", cwd=repo, check=False), 1, "checked out at", str(repo))
    assert _ids(shared) == before
    shared.git("checkout", "-q", "main", cwd=repo)
    created = _ao_json(shared, "new", "[[wait]]", "--branch", "mine", cwd=repo)
    assert (created["branch"], (Path(created["workspacePath"]) / "mine.txt").exists()) == ("mine", True)
    assert_refused(shared.ao("new", "x", "--branch", "mine", cwd=repo, check=False), 1, "mine", created["id"])
    shared.git("branch", "feature/taken", cwd=repo)
    assert _ao_json(shared, "new", "taken", cwd=repo)["branch"] == "feature/taken-2"
    assert _ao_json(shared, "new", "[[wait]]", "--branch", "refs/heads/whole", cwd=repo)["branch"] == "whole"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_refused(shared: Sandbox, name: str) -> None:
    before = _ids(shared)
    assert_refused(shared.ao("new", "x", f"--name={name}", check=False), 2, "session's name")
    if name != "-x":
        assert_refused(shared.ao("create", "--", name, check=False), 2, "session's name")
    assert _ids(shared) == before


@pytest.mark.parametrize("branch", [*ODD_BRANCHES, *LONG_BRANCHES])
def test_odd_branches_are_refused(shared: Sandbox, branch: str) -> None:
    before = _ids(shared)
    assert_refused(shared.ao("new", "x", f"--branch={branch}", check=False), 2, "branch's name")
    assert _ids(shared) == before


def test_a_branch_name_of_the_maximum_length_is_accepted(shared: Sandbox) -> None:
    longest = "/".join(["x" * 249] * 4)
    assert _ao_json(shared, "new", "[[wait]]", f"--branch={longest}", "--name", "long")["branch"] == longest


def test_odd_tasks_get_good_names(shared: Sandbox) -> None:
    odd = {
        "../../etc/passwd": "etc-passwd",
        "Füge Ümläute hinzu": "fuge-umlaute-hinzu",
        "日本語のテスト": "task",
        "-- dashes": "dashes",
        "x" * 500: "x" * 40,
    }
    for task, name in odd.items():
        created = _ao_json(shared, "new", "--no-wait", "--", task)
        assert created["name"] == name, created
        assert created["title"].startswith(task[:20])
    assert_refused(shared.ao("new", "", check=False), 2)
    assert_refused(shared.ao("new", "  \n ", check=False), 2)


LONE_SURROGATE, REPLACED = "caf\udce9", "caf\ufffd"


def test_lone_surrogates_are_replaced_everywhere(shared: Sandbox) -> None:
    created = _ao_json(shared, "new", "[[wait]]", "--model", LONE_SURROGATE, "--label", LONE_SURROGATE)
    spec = shared.events(created["id"])[0]["data"]
    assert (spec["model"], spec["labels"]) == (REPLACED, [REPLACED])
    body = {
        "prompt": f"[[wait]] {LONE_SURROGATE}",
        "labels": [LONE_SURROGATE],
        "files": [LONE_SURROGATE],
        "group": LONE_SURROGATE,
        "title": LONE_SURROGATE,
    }
    answer = shared.request("POST", "/api/sessions", {**body, "projectId": "app"})
    assert answer["title"] == REPLACED
    with (
        shared.client() as client,
        client.stream("POST", f"/api/sessions/{created['id']}/run", {"command": ["echo", LONE_SURROGATE]}) as stream,
    ):
        assert json.loads(stream.read_line() or "") == {"output": REPLACED}
    deep: Any = []
    for _ in range(700):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deeply"):
        shared.request("PUT", "/api/config/value", {"key": "defaults", "value": deep})


@pytest.mark.parametrize("path", ["/a\0b", f"/{'x' * 300}", "/x" * 3000, "~nobody-is-called-so/x"])
def test_an_impossible_path_is_refused(shared: Sandbox, path: str) -> None:
    for body in ({"path": path}, {"url": f"file://{path}"}):
        with pytest.raises((UsageError, NotFound)):
            shared.request("POST", "/api/projects", body)
    with pytest.raises(UsageError):
        shared.request("POST", "/api/projects/trust", {"path": path})
    with pytest.raises(UsageError):
        shared.request("GET", f"/api/projects/trust?path={quote(path)}")


def test_a_failed_clone_shows_gits_error_message(shared: Sandbox) -> None:
    nothing = (shared.folder / "nothing").as_uri()
    assert_refused(shared.ao("start", nothing, check=False), 3, "git clone", "does not", "address")
    assert not (shared.repo / "nothing").exists()


def test_folders_with_odd_names_are_accepted(shared: Sandbox) -> None:
    repositories = {}
    for folder in ("my app", "zürich 大", "-dash"):
        repo = _repository(shared, folder)
        session = _ao_json(shared, "new", "[[edit: a|b]] [[commit: c]]", "--name", "in", cwd=repo)
        repositories[session["project"]] = repo
    assert list(repositories) == ["my-app", "zurich", "dash"]
    for project, repo in repositories.items():
        shared.wait_until(partial(_is_open, shared, f"{project}-in"), "the agent to finish")
        assert shared.git("log", "--oneline", "main..feature/in", cwd=repo)


def _is_open(box: Sandbox, session: str) -> bool:
    return bool(box.session(session)["status"] == "pr_open")


def test_an_unknown_name_is_refused_with_the_closest_match(shared: Sandbox) -> None:
    before = _ids(shared)
    assert_refused(shared.ao("new", "x", "--agent", "dmo", check=False), 3, "dmo", "demo")
    assert_refused(shared.ao("new", "x", "--runtime", "tmx", check=False), 3, "tmux")
    assert_refused(shared.ao("new", "x", "--workspace", "worktre", check=False), 3, "worktree")
    assert_refused(shared.ao("new", "x", "-p", "nope", check=False), 3, "nope", "app")
    assert_refused(shared.ao("new", "x", "--after", "nope", check=False), 3, "nope")
    assert_refused(shared.ao("new", "x", "--base", "nope", check=False), 2, "nope", "git branch")
    assert_refused(shared.ao("new", "x", "--node", "nope", check=False), 3, "nope")
    assert_refused(shared.ao("new", "x", "--issue", "abc def", check=False), 2, "abc def", "123")
    assert_refused(shared.ao("new", "x", "--issue=-1", check=False), 2, "-1")
    assert_refused(shared.ao("new", "x", "--priority", "high", check=False), 2, "high")
    assert_refused(shared.ao("new", "--file", "/nope", check=False), 2, "/nope")
    assert _ids(shared) == before


@pytest.mark.parametrize(
    "command",
    [["status"], ["send", "x"], ["stop"], ["restore"], ["logs"], ["diff"], ["why"], ["path"], ["events"], ["answer"]],
)
def test_an_unknown_session_is_not_found(shared: Sandbox, command: list[str]) -> None:
    argv = ["send", "nope", "x"] if command[0] == "send" else [*command, "nope"]
    assert_refused(shared.ao(*argv, check=False), 3, "nope", "ao status")


def test_wrong_usage_has_exit_code_two(shared: Sandbox) -> None:
    assert_refused(shared.ao("nwe", "x", check=False), 2, "nwe", "new")
    assert_refused(shared.ao("new", "--nmae", "x", check=False), 2, "--nmae")
    assert_refused(shared.ao("send", check=False), 2)
    assert "ao shutdown" in shared.ao("stop", check=False).stderr + shared.ao("stop", check=False).stdout


def test_an_unknown_project_is_not_found(shared: Sandbox) -> None:
    for command in (["status", "-p", "nope"], ["stop", "-p", "nope", "--all"], ["remove-project", "nope"]):
        assert_refused(shared.ao(*command, check=False), 3, "nope")


def test_malformed_configuration_names_file_and_line(shared: Sandbox) -> None:
    repo = _repository(shared, "malformed")
    file = repo / "agent-orchestrator.yaml"
    cases = {
        "defaults: {agent: demo\nx: [\n": f"{file}:",
        "defaults:\n  agent: demo\n  runtme: process\n": f"{file}:3",
        "projects:\n  a:\n    path: .\n    postcreate: [x]\n": f"{file}:4",
        "port: high\n": f"{file}:1",
        "\tdefaults: x\n": f"{file}:1",
    }
    before = _ids(shared)
    for text, location in cases.items():
        file.write_text(text)
        assert_refused(shared.ao("new", "x", cwd=repo, check=False), 2, location)
        result = shared.ao("config", "validate", cwd=repo, check=False)
        assert result.returncode == 1 and location in result.stdout + result.stderr, (result, location)
    file.write_text("defaults:\n  agent: demo\n  runtme: process\n")
    assert_refused(shared.ao("new", "x", cwd=repo, check=False), 2, "runtme", "runtime")
    file.write_text("projects:\n  a:\n    path: .\n    budget: {perDay: 5 EUR, perWeek: 1}\n")
    result = shared.ao("config", "validate", cwd=repo, check=False)
    assert f'{file}:4: projects.a.budget.perDay: "5 EUR" is no amount: accepted: 5 USD' in result.stdout
    assert f"{file}:4: projects.a.budget.perWeek: unknown key: " in result.stdout
    assert _ids(shared) == before


def _ao_json(box: Sandbox, *argv: str, cwd: Path | None = None) -> dict[str, Any]:

    answer: dict[str, Any] = json.loads(box.ao(argv[0], "--json", *argv[1:], cwd=cwd).stdout)
    return answer
