"""The command line: everyday commands, older spellings, names, queues and clean-up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator import __version__
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

CONFIG = """\
defaults: {agent: demo, runtime: process}
projects:
  my-app:
    path: .
    sessionPrefix: app
"""


@pytest.fixture(scope="module")
def cli_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield a project whose id differs from the prefix of its sessions."""
    with Sandbox(tmp_path_factory.mktemp("mine"), "process") as box:
        box.repository("my-app", config=CONFIG)
        box.start()
        yield box


def test_commands_work_in_every_spelling(cli_box: Sandbox) -> None:
    created = cli_box.json("new", "Fix the login", "--project", "my-app", "--issue", "123")
    assert (created["id"], created["branch"], created["issue"]) == ("app-fix-the-login", "feature/issue-123", "123")
    assert cli_box.json("list")["sessions"] and cli_box.json("ls")["sessions"]
    assert cli_box.json("spawn", "#124")["branch"] == "feature/issue-124"
    assert cli_box.json("new", "LIN-3")["issue"] == "LIN-3"
    assert cli_box.json("new", "https://github.com/o/r/issues/77")["issue"] == "77"
    assert_refused(cli_box.ao("new", "again", "--issue", "#123", check=False), 1, "app-fix-the-login")
    assert_refused(cli_box.ao("attach", "app-fix-the-login", check=False), 2, "terminal", "ao logs")
    answer = cli_box.ao("api", "POST", f"/sessions/{created['id']}/message", "-d", '{"content": "hello"}')
    assert json.loads(answer.stdout)["messageId"]
    assert cli_box.ao("api", "GET", "/api/sessions").stdout
    assert_refused(cli_box.ao("api", "GET", "/sessions/nope", check=False), 3, "nope")
    for shell in ("bash", "zsh", "fish"):
        assert "ao" in cli_box.ao("completion", shell).stdout
    stopped = cli_box.json("stop", "--project", "my-app", "--all")["stopped"]
    assert {entry["session"]["status"] for entry in stopped} == {"stopped"} and len(stopped) == 4
    assert cli_box.ao("stop", "--project", "my-app", "--all").returncode == 0


def test_sessions_without_a_task_start_at_their_first_message(cli_box: Sandbox) -> None:
    cli_box.ao("create", "a1", "b1", "c1")
    for name in ("a1", "b1", "c1"):
        assert cli_box.session(name)["pid"] is None
    cli_box.ao("prompt", "a1", "[[edit: a.txt|first]] [[commit: first]]")
    session = cli_box.wait_until(lambda: (now := cli_box.session("a1"))["status"] == "pr_open" and now)
    assert (Path(session["workspacePath"]) / "a.txt").read_text().strip() == "first"
    assert Path(cli_box.request("GET", "/api/sessions/a1/environment")["env"]["AO_TASK_FILE"]).read_text() == (
        "[[edit: a.txt|first]] [[commit: first]]"
    )
    assert cli_box.session("b1")["pid"] is None
    assert_refused(cli_box.ao("create", "a1", check=False), 1, "app-a1")


def test_sessions_are_found_by_name_id_and_prefix(cli_box: Sandbox) -> None:
    cli_box.ao("create", "fix", "fix-more", "other")
    for name in ("fix", "app-fix", "my-app-fix"):
        assert cli_box.json("status", name)["id"] == "app-fix"
    assert cli_box.json("status", "fix-m")["id"] == "app-fix-more"
    assert cli_box.json("status", "oth")["id"] == "app-other"
    line = assert_refused(cli_box.ao("status", "fi", check=False), 2, "app-fix", "app-fix-more")
    assert "app-other" not in line


def test_tasks_are_read_from_standard_input_and_files(cli_box: Sandbox) -> None:
    file = cli_box.folder / "task.md"
    file.write_text("# Title of it\n\nlong text [[wait]]\n")
    created = cli_box.json("new", "--file", str(file))
    assert created["name"] == "title-of-it"
    created = json.loads(
        cli_box.ao("new", "-", "--json", "--name", "from-stdin", stdin="from\nstandard input [[wait]]").stdout
    )  # fmt: skip
    assert created["title"] == "from"
    assert_refused(cli_box.ao("new", check=False), 2, "no task")
    assert_refused(cli_box.ao("new", "-", check=False, stdin=""), 2, "empty")


def test_commands_show_what_a_session_did(cli_box: Sandbox) -> None:
    cli_box.ao(
        "new", "[[say: hello world]] [[edit: x.txt|line]] [[commit: add x]] [[write: y.txt|loose]]", "--name", "look"
    )
    session = cli_box.wait_until(lambda: (now := cli_box.session("look"))["status"] == "pr_open" and now)
    assert cli_box.ao("path", "look").stdout.strip() == session["workspacePath"]
    assert cli_box.ao("sh", "look", "--", "pwd").stdout.strip() == session["workspacePath"]
    assert cli_box.ao("sh", "look", "--", "sh", "-c", "exit 5", check=False).returncode == 5
    cli_box.wait_until(lambda: "hello world" in cli_box.ao("logs", "look").stdout, "what it printed")
    assert "x.txt" in cli_box.ao("diff", "look").stdout and "y.txt" in cli_box.ao("diff", "look").stdout
    why = cli_box.json("why", "look")
    assert why["status"] == "pr_open" and why["evidence"]["source"] == "pr"
    assert "is a draft" in cli_box.ao("why", "look").stdout
    file = cli_box.folder / "events.jsonl"
    file.write_text(cli_box.ao("events", "look", "--json").stdout)
    replay = cli_box.ao("events", "--replay", str(file)).stdout
    assert "launch" in replay and "prepare" in replay
    assert_refused(cli_box.ao("events", "--replay", "/nope", check=False), 2, "/nope")
    file.write_text("not json\n")
    assert_refused(cli_box.ao("events", "--replay", str(file), check=False), 2, "events.jsonl")
    assert "look" in cli_box.ao("prune", "--dry-run").stdout or cli_box.ao("prune", "--dry-run").returncode == 0
    assert Path(session["workspacePath"]).exists()
    doctor = cli_box.json("doctor")["checks"]
    assert {check["state"] for check in doctor} <= {"ok", "warning", "failed"}
    check_names = {
        "python",
        "git",
        "git identity",
        "tmux",
        "home",
        "disk",
        "file watches",
        "open files",
        "clock",
        "database",
        "address",
    }
    assert check_names <= {check["name"] for check in doctor}
    assert all(check["remedy"] for check in doctor if check["state"] != "ok")


def test_a_session_after_another_waits_for_it(process_box: Sandbox) -> None:
    process_box.ao("new", "[[sleep: 600]]", "--name", "first")
    second = process_box.json("new", "[[wait]]", "--name", "second", "--after", "first")
    assert (second["status"], second["pid"]) == ("queued", None) and "app-first" in second["waitingFor"]
    assert "app-first" in process_box.ao("status").stdout
    assert_refused(process_box.ao("new", "x", "--after", "nope", check=False), 3, "nope")


def test_the_limit_of_parallel_agents_is_kept(process_box: Sandbox) -> None:
    (process_box.repo / "agent-orchestrator.yaml").write_text(
        "defaults: {agent: demo, runtime: process}\norchestrator: {maxParallelAgents: 1}\n"
    )
    process_box.ao("new", "[[sleep: 600]]", "--name", "busy")
    waiting = process_box.json("new", "[[say: x]]", "--name", "waits")
    assert waiting["status"] == "queued" and waiting["waitingFor"] and waiting["column"] == "Working"
    urgent = process_box.json("new", "[[say: x]]", "--name", "urgent", "--priority", "5")
    assert urgent["status"] == "queued"
    process_box.ao("stop", "busy")
    process_box.wait_until(lambda: process_box.session("urgent")["activity"] == "idle", "the slot to be passed on")
    process_box.wait_until(lambda: process_box.session("waits")["activity"] == "idle", "the slot to be passed on again")


def test_a_raised_agent_limit_takes_effect_at_once(process_box: Sandbox) -> None:
    file = process_box.repo / "agent-orchestrator.yaml"
    text = "defaults: {agent: demo, runtime: process}\norchestrator: {maxParallelAgents: N}\n"
    file.write_text(text.replace("N", "1"))
    process_box.ao("new", "[[stuck]]", "--name", "busy")
    process_box.ao("new", "[[say: x]]", "--name", "waits")
    assert process_box.session("waits")["status"] == "queued"
    file.write_text(text.replace("N", "2"))
    process_box.wait_until(lambda: process_box.session("waits")["activity"] == "idle", "the new limit")


def test_init_writes_a_configuration_once(cli_box: Sandbox) -> None:
    repo = cli_box.folder / "fresh"
    repo.mkdir()
    cli_box.git("init", "-q", "-b", "trunk", cwd=repo)
    cli_box.git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    done = cli_box.ao("init", cwd=repo)
    file = repo / "agent-orchestrator.yaml"
    text = file.read_text()
    assert str(file) in done.stdout and "trunk" in text
    schema = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=file://")
    assert json.loads(Path(schema).read_text()) == json.loads(cli_box.ao("config", "schema").stdout) | {
        "$comment": f"agent-orchestrator {__version__}"
    }
    assert cli_box.ao("config", "validate", cwd=repo).returncode == 0
    again = cli_box.ao("init", cwd=repo, check=False)
    assert again.returncode in (0, 1) and file.read_text() == text
    assert cli_box.json("projects")["projects"]


def test_stopping_several_sessions_reports_each(cli_box: Sandbox) -> None:
    cli_box.ao("create", "s1", "s2")
    done = cli_box.ao("stop", "s1", "nope", "s2", check=False)
    assert done.returncode == 3 and "nope" in done.stderr
    assert {cli_box.session(name)["status"] for name in ("s1", "s2")} == {"stopped"}
    assert cli_box.ao("stop", "s1").returncode == 0
    assert cli_box.ao("restore", "s1").returncode == 0
    assert_refused(cli_box.ao("stop", check=False), 2, "ao shutdown")


def test_every_command_has_help(cli_box: Sandbox) -> None:
    listed = cli_box.ao("--help").stdout
    for command in [
        "start",
        "new",
        "status",
        "answer",
        "send",
        "attach",
        "diff",
        "stop",
        "restore",
        "doctor",
        "create",
        "shutdown",
        "init",
        "add-project",
        "remove-project",
        "projects",
        "trust",
        "logs",
        "events",
        "why",
        "sh",
        "path",
        "open",
        "prune",
        "config",
        "config-help",
        "token",
        "api",
        "completion",
    ]:
        assert command in listed
    assert cli_box.ao("new", "--help").stdout.startswith("Usage: ao new")


def test_both_commands_are_the_same_program(cli_box: Sandbox) -> None:
    folder = cli_box.home.programs
    for name in ("ao", "agent-orchestrator"):
        done = subprocess.run(
            [folder / name, "status", "--json"], cwd=cli_box.repo, env=cli_box.env, capture_output=True, check=True
        )
        assert "sessions" in json.loads(done.stdout)
