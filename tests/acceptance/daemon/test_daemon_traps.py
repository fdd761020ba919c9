"""What nobody foresaw, put into a daemon of its own: a configuration that breaks its reader, a signal at a bad moment."""

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

READING = """
import sys
from agent_orchestrator.daemon import __main__ as daemon
from agent_orchestrator.config import load

def trapped(tree, notes, normalise=load.normalise):
    if "trap" in str(tree):
        raise ArithmeticError("nobody foresaw this")
    normalise(tree, notes)

load.normalise = trapped
sys.exit(daemon.main())
"""

SIGNALLED = """
import signal, sys
from agent_orchestrator.daemon import __main__ as daemon

def trapped(self, *given, write=daemon.Daemon._write_info, **more):
    write(self, *given, **more)
    signal.raise_signal(signal.{name})

daemon.Daemon._write_info = trapped
sys.exit(daemon.main())
"""


def started(code: str, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A daemon with something put into it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *argv],
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_file_that_breaks_its_reader_is_broken_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "launch", lambda argv, env: started(READING, argv, env))
    with Sandbox(tmp_path, "process") as box:
        odd, file = box.repository("odd"), tmp_path / "odd" / "agent-orchestrator.yaml"
        good, app = file.read_text(), box.repository()
        box.start()
        for repo in (odd, app):
            box.ao("status", cwd=repo)
            box.request("POST", "/api/projects", {"path": str(repo)})
        file.write_text(f"{good}# changed\nreactions: {{trap: {{trigger: stuck}}}}\n")
        box.until(lambda: [one for one in box.events() if one["type"] == "configuration-broken"], "it to be seen")
        told = box.ao("status", cwd=odd).stderr
        assert f"{file} cannot be used (" in told and "ArithmeticError" in told and "the last good content" in told
        box.stop(signal.SIGKILL)
        box.start()
        assert {one["id"] for one in box.request("GET", "/api/projects")["projects"]} == {"app", "odd"}
        assert box.ao("status", cwd=app).stderr == ""
        assert "it is not in force" in box.ao("status", cwd=odd).stderr
        assert_refused(box.ao("new", "x", cwd=odd, check=False), 2, str(file), "ArithmeticError")
        assert box.home.log.read_text().count("Traceback") == 2  # once a daemon
        file.write_text(good)
        assert box.ao("new", "[[wait]]", cwd=odd).stderr == ""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_one_that_was_just_reachable_ends_it_in_good_order(tmp_path: Path, name: str) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        ended = started(SIGNALLED.replace("{name}", name), ["--port", "0"], box.env)
        assert ended.wait(60) == 0
        assert not box.home.info.exists()
        assert "event=ending" in box.home.log.read_text()
