"""Unexpected failures injected into a daemon: a configuration that breaks its reader, a signal at a bad moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

BROKEN_READER = """
import sys
from agent_orchestrator.daemon import __main__ as daemon
from agent_orchestrator.config import load

def trapped(tree, notes, normalize=load.normalize):
    if "trap" in str(tree):
        raise ArithmeticError("nobody foresaw this")
    normalize(tree, notes)

load.normalize = trapped
sys.exit(daemon.main())
"""

SIGNAL_AT_START = """
import signal, sys
from agent_orchestrator.daemon import __main__ as daemon

def trapped(self, *given, write=daemon.Daemon._write_info, **more):
    write(self, *given, **more)
    signal.raise_signal(signal.{name})

daemon.Daemon._write_info = trapped
sys.exit(daemon.main())
"""


def start_daemon_with(code: str, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a daemon by this program, which injects a failure."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *argv],
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_file_that_breaks_its_reader_does_not_affect_other_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "launch", lambda argv, env: start_daemon_with(BROKEN_READER, argv, env))
    with Sandbox(tmp_path, "process") as box:
        odd_repo, file = box.repository("odd"), tmp_path / "odd" / "agent-orchestrator.yaml"
        good, app = file.read_text(), box.repository()
        box.start()
        for repo in (odd_repo, app):
            box.ao("status", cwd=repo)
            box.request("POST", "/api/projects", {"path": str(repo)})
        file.write_text(f"{good}# changed\nreactions: {{trap: {{trigger: stuck}}}}\n")
        box.wait_until(
            lambda: [event for event in box.events() if event["type"] == "configuration-broken"], "it to be seen"
        )
        warnings = box.ao("status", cwd=odd_repo).stderr
        assert (
            f"{file} cannot be used (" in warnings
            and "ArithmeticError" in warnings
            and "the last good content" in warnings
        )
        box.stop(signal.SIGKILL)
        box.start()
        assert {event["id"] for event in box.request("GET", "/api/projects")["projects"]} == {"app", "odd"}
        assert box.ao("status", cwd=app).stderr == ""
        assert "it is not in force" in box.ao("status", cwd=odd_repo).stderr
        assert_refused(box.ao("new", "x", cwd=odd_repo, check=False), 2, str(file), "ArithmeticError")
        assert box.home.log.read_text().count("Traceback") == 2  # once a daemon
        file.write_text(good)
        assert box.ao("new", "[[wait]]", cwd=odd_repo).stderr == ""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_right_after_the_start_ends_the_daemon_cleanly(tmp_path: Path, name: str) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        daemon = start_daemon_with(SIGNAL_AT_START.replace("{name}", name), ["--port", "0"], box.env)
        assert daemon.wait(60) == 0
        assert not box.home.daemon_info.exists()
        assert "event=ending" in box.home.log.read_text()
