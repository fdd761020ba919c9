"""Repositories that were made to harm whoever clones them: what they bring is not in force, costs little, and stops nobody."""

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
from agent_orchestrator.cli.top.actions import command
from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.config.test_trust import DEMO, foreign


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("foreign")) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def test_a_key_without_a_name_hides_nothing(box: Sandbox) -> None:
    config = DEMO + "agents: {a: {tool: claude-code, options: {'': 0, args: [--settings, evil.json]}}}\n"
    repo = foreign(box, "nameless", config)
    preview = box.request("GET", f"/api/projects/trust?path={repo}")
    assert not preview["trusted"] and "evil.json" in json.dumps(preview["commands"])


def test_trust_in_one_repository_is_none_in_another(box: Sandbox) -> None:
    text = DEMO + "postCreate: [sh ./setup.sh]\n"
    mine, theirs = foreign(box, "mine", text), foreign(box, "theirs", text)
    box.request("POST", "/api/projects/trust", {"path": str(mine)})
    looked = [box.request("GET", f"/api/projects/trust?path={one}")["trusted"] for one in (mine, theirs)]
    assert looked == [True, False]
    assert_refused(box.ao("new", "[[wait]]", cwd=theirs, check=False), 1, "ao trust")


@pytest.mark.parametrize("named", ["plugins: [/dev/zero]", "docker: {dockerfile: /dev/zero}"])
def test_code_without_an_end_is_not_read(box: Sandbox, named: str) -> None:
    repo = foreign(box, "endless-" + named.partition(":")[0], DEMO + named + "\n")
    began = time.monotonic()
    assert "not in force" in box.ao("status", cwd=repo).stderr
    assert time.monotonic() - began < 60
    box.request("GET", "/healthz")


def test_rules_that_are_too_long_are_not_read(box: Sandbox) -> None:
    repo = foreign(box, "wordy", DEMO + "projects: {wordy: {path: ., agentRulesFile: RULES.md}}\n")
    rules = repo / "RULES.md"
    with rules.open("wb") as file:
        file.truncate(8 << 20)
    began = time.monotonic()
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, str(rules), "256 KB")
    rules.unlink()
    os.mkfifo(rules)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, str(rules), "no plain file")
    assert time.monotonic() - began < 60
    rules.unlink()
    rules.write_text("be kind " * 10_000)
    assert box.ao("new", "[[wait]]", "--name", "wordy", cwd=repo).returncode == 0
    [made] = [one for one in box.events("wordy-wordy") if one["type"] == "session-created"]
    assert made["data"]["rules"].startswith("be kind be kind")


def test_a_file_that_is_no_configuration_is_not_read_to_be_checked(box: Sandbox, tmp_path: Path) -> None:
    large, pipe = tmp_path / "large.yaml", tmp_path / "pipe.yaml"
    with large.open("wb") as file:
        file.truncate(8 << 20)
    os.mkfifo(pipe)
    none = tmp_path / "none.yaml"
    for path, why in ((large, "is larger than 262144 bytes"), (pipe, "it is no file"), (none, "there is no file")):
        with pytest.raises(AoError, match=why):
            box.request("POST", "/api/config/validate", {"path": str(path)})


def test_a_task_that_is_too_long_is_not_kept(box: Sandbox, tmp_path: Path) -> None:
    """Neither of a person, who is told, nor of those who write to an issue, whose words are cut."""
    given = tmp_path / "task.md"
    given.write_text("[[wait]] " + "a" * (1 << 20))
    assert_refused(box.ao("new", "--file", str(given), check=False), 2, "the task has over 1 MB")
    issue = box.request("POST", "/api/issues", {"title": "Long", "body": "first"})
    for _ in range(11):
        box.request("POST", f"/api/issues/{issue['number']}/comments", {"body": "[[wait]] " + "a" * 99_000})
    made = box.request("POST", "/api/sessions", {"issue": issue["number"], "name": "long"})
    [event] = [one for one in box.events(made["id"]) if one["type"] == "session-created"]
    prompt = event["data"]["prompt"]
    assert prompt.startswith("Issue ") and prompt.endswith("is left out: it is too long.)")
    assert len(prompt.encode()) < (1 << 20) + 100


def test_no_file_is_made_where_a_symlink_of_it_leads(box: Sandbox, tmp_path: Path) -> None:
    repo = foreign(box, "led", DEMO)
    (repo / "agent-orchestrator.yaml").unlink()
    (repo / "agent-orchestrator.yaml").symlink_to(tmp_path / "profile")
    for argv in (["init"], ["start", "--no-open"]):
        assert_refused(box.ao(*argv, cwd=repo, check=False), 1, "agent-orchestrator.yaml is a symlink", "remove it")
    assert not (tmp_path / "profile").exists()


def test_no_file_is_changed_where_a_symlink_of_it_leads(box: Sandbox, tmp_path: Path) -> None:
    mine, repo = tmp_path / "mine.yaml", foreign(box, "leading", DEMO)
    mine.write_text("services: {db: {image: postgres}}\n")
    other, theirs = tmp_path / "other.yaml", tmp_path / "theirs.yaml"
    other.write_text(DEMO)
    theirs.write_text("projects: {a: {repo: a/b, path: .}}\n")
    link = repo / "agent-orchestrator.yaml"
    for target in (mine, other):
        before = target.read_text()
        link.unlink()
        link.symlink_to(target)
        for argv in (["config", "set", "defaults.agent", "codex"], ["import", str(theirs), "--yes"]):
            done = box.ao(*argv, cwd=repo, check=False)
            assert done.returncode and str(link) in done.stderr, done.stdout + done.stderr
            assert target.read_text() == before
    assert_refused(box.ao("config", "set", "defaults.agent", "codex", cwd=repo, check=False), 1, str(other), "out of")


def test_a_folder_that_is_called_like_our_own_code_is_not_run(box: Sandbox, tmp_path: Path) -> None:
    """Neither of a repository that a person is in, nor of a workspace where a window with an agent's terminal opens."""
    repo = foreign(box, "namesake", DEMO)
    box.ao("new", "[[wait]]", "--name", "x", cwd=repo)
    workspace = Path(box.until(lambda: box.session("namesake-x")["workspacePath"]))
    ran = tmp_path / "ran"
    for folder in (repo, workspace):
        for name in ("agent_orchestrator/__init__.py", "asyncio.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"open({str(ran)!r}, 'a').write(__file__)\n")
    box.ao("open", "namesake-x", "--print", cwd=repo, check=False)
    assert_refused(box.ao("doctor", "--repair", "--dry-run", cwd=repo, check=False), 1, "ao shutdown")
    window = subprocess.run(
        attach_command(str(box.home.path), "namesake-x"), cwd=workspace, env=box.env, capture_output=True, text=True
    )
    assert window.returncode == 2 and "ao attach needs a terminal" in window.stderr, window.stderr
    subprocess.run(command("open", "namesake-x", "--print"), cwd=repo, env=box.env, capture_output=True, check=False)
    with Sandbox(tmp_path / "other") as other:
        ao = [sys.executable, "-P", "-m", "agent_orchestrator", "start", "--foreground", "--no-open", "--port", "0"]
        daemon = subprocess.Popen(ao, cwd=repo, env=other.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        other.until(lambda: other.daemon_pid() or daemon.poll(), "the daemon")
        daemon.terminate()
        daemon.wait(30)
    assert not ran.exists(), ran.read_text()
