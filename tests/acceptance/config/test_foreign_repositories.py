"""Malicious repositories: their configuration is not in force, costs little to read and blocks no other project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.cli.sessions.open import attach_command
from agent_orchestrator.cli.top.actions import ao_command
from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.config.test_trust import DEMO, commit_foreign_repository


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("foreign")) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def test_a_key_without_a_name_hides_nothing(box: Sandbox) -> None:
    config = DEMO + "agents: {a: {tool: claude-code, options: {'': 0, args: [--settings, evil.json]}}}\n"
    repo = commit_foreign_repository(box, "nameless", config)
    preview = box.request("GET", f"/api/projects/trust?path={repo}")
    assert not preview["trusted"] and "evil.json" in json.dumps(preview["commands"])


def test_trust_in_one_repository_does_not_apply_to_another(box: Sandbox) -> None:
    text = DEMO + "postCreate: [sh ./setup.sh]\n"
    first, second = commit_foreign_repository(box, "mine", text), commit_foreign_repository(box, "theirs", text)
    box.request("POST", "/api/projects/trust", {"path": str(first)})
    trusted = [box.request("GET", f"/api/projects/trust?path={repo}")["trusted"] for repo in (first, second)]
    assert trusted == [True, False]
    assert_refused(box.ao("new", "[[wait]]", cwd=second, check=False), 1, "ao trust")


@pytest.mark.parametrize("setting", ["plugins: [/dev/zero]", "docker: {dockerfile: /dev/zero}"])
def test_endless_files_named_by_the_configuration_are_not_read(box: Sandbox, setting: str) -> None:
    repo = commit_foreign_repository(box, "endless-" + setting.partition(":")[0], DEMO + setting + "\n")
    started_at = time.monotonic()
    assert "not in force" in box.ao("status", cwd=repo).stderr
    assert time.monotonic() - started_at < 60
    box.request("GET", "/healthz")


def test_a_rules_file_that_is_too_large_is_not_read(box: Sandbox) -> None:
    repo = commit_foreign_repository(box, "wordy", DEMO + "projects: {wordy: {path: ., agentRulesFile: RULES.md}}\n")
    rules = repo / "RULES.md"
    with rules.open("wb") as file:
        file.truncate(8 << 20)
    started_at = time.monotonic()
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, str(rules), "256 KB")
    rules.unlink()
    os.mkfifo(rules)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, str(rules), "no plain file")
    assert time.monotonic() - started_at < 60
    rules.unlink()
    rules.write_text("be kind " * 10_000)
    assert box.ao("new", "[[wait]]", "--name", "wordy", cwd=repo).returncode == 0
    [created] = [event for event in box.events("wordy-wordy") if event["type"] == "session-created"]
    assert created["data"]["rules"].startswith("be kind be kind")


def test_only_plain_files_of_limited_size_are_validated(box: Sandbox, tmp_path: Path) -> None:
    large, pipe = tmp_path / "large.yaml", tmp_path / "pipe.yaml"
    with large.open("wb") as file:
        file.truncate(8 << 20)
    os.mkfifo(pipe)
    missing = tmp_path / "none.yaml"
    for path, problem in (
        (large, "is larger than 262144 bytes"),
        (pipe, "it is no file"),
        (missing, "there is no file"),
    ):
        with pytest.raises(AoError, match=problem):
            box.request("POST", "/api/config/validate", {"path": str(path)})


def test_a_task_over_one_megabyte_is_refused_or_truncated(box: Sandbox, tmp_path: Path) -> None:
    """A task that is too long is refused; an issue that is too long is truncated."""
    task_file = tmp_path / "task.md"
    task_file.write_text("[[wait]] " + "a" * (1 << 20))
    assert_refused(box.ao("new", "--file", str(task_file), check=False), 2, "the task has over 1 MB")
    issue = box.request("POST", "/api/issues", {"title": "Long", "body": "first"})
    for _ in range(11):
        box.request("POST", f"/api/issues/{issue['number']}/comments", {"body": "[[wait]] " + "a" * 99_000})
    created = box.request("POST", "/api/sessions", {"issue": issue["number"], "name": "long"})
    [event] = [event for event in box.events(created["id"]) if event["type"] == "session-created"]
    prompt = event["data"]["prompt"]
    assert prompt.startswith("Issue ") and prompt.endswith("is left out: it is too long.)")
    assert len(prompt.encode()) < (1 << 20) + 100


def test_no_file_is_created_through_a_symlink_of_the_repository(box: Sandbox, tmp_path: Path) -> None:
    repo = commit_foreign_repository(box, "led", DEMO)
    (repo / "agent-orchestrator.yaml").unlink()
    (repo / "agent-orchestrator.yaml").symlink_to(tmp_path / "profile")
    for argv in (["init"], ["start", "--no-open"]):
        assert_refused(box.ao(*argv, cwd=repo, check=False), 1, "agent-orchestrator.yaml is a symlink", "remove it")
    assert not (tmp_path / "profile").exists()


def test_no_file_is_changed_through_a_symlink_of_the_repository(box: Sandbox, tmp_path: Path) -> None:
    own_file, repo = tmp_path / "mine.yaml", commit_foreign_repository(box, "leading", DEMO)
    own_file.write_text("services: {db: {image: postgres}}\n")
    other_file, imported_file = tmp_path / "other.yaml", tmp_path / "theirs.yaml"
    other_file.write_text(DEMO)
    imported_file.write_text("projects: {a: {repo: a/b, path: .}}\n")
    link = repo / "agent-orchestrator.yaml"
    for target in (own_file, other_file):
        before = target.read_text()
        link.unlink()
        link.symlink_to(target)
        for argv in (["config", "set", "defaults.agent", "codex"], ["import", str(imported_file), "--yes"]):
            result = box.ao(*argv, cwd=repo, check=False)
            assert result.returncode and str(link) in result.stderr, result.stdout + result.stderr
            assert target.read_text() == before
    assert_refused(
        box.ao("config", "set", "defaults.agent", "codex", cwd=repo, check=False), 1, str(other_file), "out of"
    )


def test_a_folder_named_like_a_module_is_not_imported(box: Sandbox, tmp_path: Path) -> None:
    """Neither in a repository nor in a workspace where a window with an agent's terminal opens."""
    repo = commit_foreign_repository(box, "namesake", DEMO)
    box.ao("new", "[[wait]]", "--name", "x", cwd=repo)
    workspace = Path(box.wait_until(lambda: box.session("namesake-x")["workspacePath"]))
    marker = tmp_path / "ran"
    for folder in (repo, workspace):
        for name in ("agent_orchestrator/__init__.py", "asyncio.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"open({str(marker)!r}, 'a').write(__file__)\n")
    box.ao("open", "namesake-x", "--print", cwd=repo, check=False)
    assert_refused(box.ao("doctor", "--repair", "--dry-run", cwd=repo, check=False), 1, "ao shutdown")
    window = subprocess.run(
        attach_command(str(box.home.path), "namesake-x"), cwd=workspace, env=box.env, capture_output=True, text=True
    )
    assert window.returncode == 2 and "ao attach needs a terminal" in window.stderr, window.stderr
    subprocess.run(ao_command("open", "namesake-x", "--print"), cwd=repo, env=box.env, capture_output=True, check=False)
    with Sandbox(tmp_path / "other") as other:
        ao = [sys.executable, "-P", "-m", "agent_orchestrator", "start", "--foreground", "--no-open", "--port", "0"]
        daemon = subprocess.Popen(ao, cwd=repo, env=other.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        other.wait_until(lambda: other.daemon_pid() or daemon.poll(), "the daemon")
        daemon.terminate()
        daemon.wait(30)
    assert not marker.exists(), marker.read_text()
