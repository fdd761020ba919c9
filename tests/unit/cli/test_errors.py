"""Failing commands: messages and exit codes; and help and version without a daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.program import run_ao
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, problem


@pytest.mark.parametrize(("category", "code"), [("failed", 1), ("usage", 2), ("not-found", 3), ("unreachable", 4)])
def test_a_problem_is_one_line_and_its_exit_code(daemon: ScriptedDaemon, run: Run, category: str, code: int) -> None:
    daemon.route(
        "GET", "/api/sessions/x", problem(category, "no session\nx", "see `ao status`", status=404, exit_code=code)
    )
    ran = run("status", "x")
    assert (ran.code, ran.out, ran.err) == (code, "", "ao: no session x: see `ao status`\n")


@pytest.mark.parametrize("group", ["config", "issue", "notify", "secret", "skill", "token"])
def test_a_group_without_a_command_shows_its_help(daemon: ScriptedDaemon, run: Run, group: str) -> None:
    ran = run(group)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith(f"Usage: ao {group} [OPTIONS] COMMAND") and "\nCommands:\n" in ran.err


def test_a_notice_goes_to_standard_error(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/agents", DaemonReply({"agents": []}, headers={"X-AO-Notice": "port%203000%20is%20taken"}))
    ran = run("agents", "--json")
    assert ran.err == "ao: port 3000 is taken\n" and json.loads(ran.out) == {"agents": []}


def test_a_bug_shows_no_traceback_unless_requested(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/api/projects", {"surprise": 1})
    ran = run_ao("projects")
    assert (
        ran.returncode == 1
        and ran.stderr.count(b"\n") == 1
        and b"KeyError" in ran.stderr
        and b"daemon.log" in ran.stderr
    )
    assert b"Traceback" in run_ao("projects", AO_DEBUG="1").stderr


def test_an_unreachable_daemon_exits_with_4(own_world: Path) -> None:
    (own_world / "file").write_text("")
    ran = run_ao("status", AO_HOME=str(own_world / "file" / "ao"))
    assert (
        ran.returncode == 4
        and ran.stderr.startswith(b"ao: the daemon could not be started")
        and ran.stderr.count(b"\n") == 1
    )


def test_a_closed_pipe_is_no_error(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/api/sessions/s/log", DaemonReply(chunks=[b"line\n" * 1000] * 500))
    command = f"{sys.executable} -m agent_orchestrator logs s | head -n 1"
    ran = subprocess.run(command, shell=True, capture_output=True, timeout=30, check=False)
    assert (ran.stdout, ran.stderr) == (b"line\n", b"")


def test_version_and_help_are_printed(run: Run) -> None:
    assert run("--version").out.startswith("ao 0.")
    text = run("--help").out
    assert "status, list, ls" in text and "spawn" in text and "Everyday" in text
    assert run("new", "-h").code == 0


def test_help_of_the_group_loads_no_command() -> None:
    program = (
        "import sys\nfrom agent_orchestrator.cli import main\nmain(['--help'])\nprint(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (
        "agent_orchestrator.cli.sessions.status" not in ran.stderr.split()
        and "agent_orchestrator.client.daemon_client" not in ran.stderr.split()
    )
