"""`ao start --at-login`: what the system is told, and that it is taken back."""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.cli.daemon import at_login
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import UsageError
from agent_orchestrator.testing.programs import Programs
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import Daemon

UNIT = """\
# Written by `ao start --at-login`.
[Unit]
Description=Agent Orchestrator
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
ExecStart="/opt/my venv/bin/python" "-m" "agent_orchestrator.daemon" "--config" "/home/me/50%% \\"done\\"/$$x.yaml"
Environment="AO_HOME=/home/me/a \\\\ home/50%%"
Environment="PATH=/usr/bin:/home/me/my bin"
Restart=on-failure
RestartSec=30
KillMode=process

[Install]
WantedBy=default.target
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    then = {"loginctl": "echo Linger=no"}
    programs = Programs(tmp_path, "systemctl", "launchctl", "loginctl", then=then)
    monkeypatch.setenv("PATH", f"{programs.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))
    monkeypatch.chdir(tmp_path)
    return programs


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    return tmp_path / "my config" / "systemd" / "user" / "agent-orchestrator.service"


def test_the_unit_says_exactly_what_was_meant() -> None:
    argv = [
        "/opt/my venv/bin/python",
        "-m",
        "agent_orchestrator.daemon",
        "--config",
        '/home/me/50% "done"/$x.yaml',
    ]
    env = {"PATH": "/usr/bin:/home/me/my bin", "AO_HOME": "/home/me/a \\ home/50%"}
    assert at_login.unit(argv, env) == UNIT


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.service"
    file.write_text(at_login.unit([sys.executable, "-m", "x", '/50% "done"/$x'], {"AO_HOME": "/a \\ home/50%"}))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_written_enabled_and_undone(daemon: Daemon, run: Run, system: Programs, unit: Path) -> None:
    ran = run("start", "--at-login", "--no-open", "--port", "0")
    assert ran.code == 0, ran.err
    assert f"wrote {unit}" in ran.out and "undo: ao start --no-at-login" in ran.out
    assert "loginctl enable-linger" in ran.out
    text = unit.read_text()
    (command,) = re.findall("ExecStart=(.*)", text)
    assert shlex.split(command) == [sys.executable, "-P", "-m", "agent_orchestrator.daemon", "--port", "0"]
    assert f'Environment="AO_HOME={daemon.home}"' in text
    told = [call[1:] for call in system.started(3) if call[0] == "systemctl"]
    assert told == [["--user", "daemon-reload"], ["--user", "enable", "agent-orchestrator.service"]]

    ran = run("start", "--no-at-login")
    assert ran.code == 0 and f"removed {unit}" in ran.out and not unit.exists()
    told = [call[1:] for call in system.started(5) if call[0] == "systemctl"][2:]
    assert told == [["--user", "disable", "agent-orchestrator.service"], ["--user", "daemon-reload"]]
    assert "does not start when you log in" in run("start", "--no-at-login").out


def test_the_system_starts_one_that_does_not_run(home: Path, system: Programs, unit: Path) -> None:
    said = at_login.enable(Client(home, start=False), [])
    assert said[0] == f"wrote {unit}"
    told = [call[1:] for call in system.started(4) if call[0] == "systemctl"]
    assert told[-1] == ["--user", "restart", "agent-orchestrator.service"]


@pytest.mark.parametrize("before", [None, "the old one\n"])
def test_where_there_is_no_service_manager_nothing_is_left_behind(
    daemon: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: Path, before: str | None
) -> None:
    then = {"systemctl": "echo Failed to connect to bus: No medium found >&2; exit 1"}
    failing = Programs(tmp_path, "systemctl", then=then)
    monkeypatch.setenv("PATH", f"{failing.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))
    monkeypatch.chdir(tmp_path)
    if before:
        unit.parent.mkdir(parents=True)
        unit.write_text(before)
    ran = run("start", "--at-login", "--no-open")
    assert ran.code == 1 and "Failed to connect to bus" in ran.err and ran.err.count("\n") == 1
    assert (unit.read_text() if unit.exists() else None) == before


def test_launchd_is_told_by_a_property_list(
    home: Path, system: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(at_login, "platform", "darwin")
    ao = Client(home, start=False)
    said = at_login.enable(ao, ["--config", "/a b/c.yaml"])
    file = Path(os.environ["HOME"]) / "Library" / "LaunchAgents" / "agent-orchestrator.daemon.plist"
    assert said == [f"wrote {file}", "the daemon starts when you log in; undo: ao start --no-at-login"]
    told = plistlib.loads(file.read_bytes())
    assert told["ProgramArguments"] == [
        sys.executable,
        "-P",
        "-m",
        "agent_orchestrator.daemon",
        "--config",
        "/a b/c.yaml",
    ]
    assert told["EnvironmentVariables"]["AO_HOME"] == str(home)
    assert told["AbandonProcessGroup"] and told["RunAtLoad"] and told["KeepAlive"] == {"SuccessfulExit": False}
    gui = f"gui/{os.getuid()}"
    assert system.started(3) == [
        ["launchctl", "enable", f"{gui}/agent-orchestrator.daemon"],
        ["launchctl", "bootout", f"{gui}/agent-orchestrator.daemon"],
        ["launchctl", "bootstrap", gui, str(file)],
    ]
    at_login.disable(ao)
    assert not file.exists() and system.started(4)[-1][1] == "disable"


def test_elsewhere_it_says_what_to_do(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(at_login, "platform", "win32")
    monkeypatch.chdir(tmp_path)
    ran = run("start", "--at-login", "--no-open")
    assert ran.code == 1 and "systemd and launchd only" in ran.err


def test_it_is_not_both_here_and_by_the_system(daemon: Daemon, run: Run) -> None:
    assert run("start", "--at-login", "--foreground").code == 2


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\udcff"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_no_path_becomes_a_line_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, character: str
) -> None:
    monkeypatch.setattr(at_login, "platform", platform)
    path = f"/home/me/x{character}ExecStart=/home/me/x/evil"
    with Client(home, start=False) as ao, pytest.raises(UsageError, match="cannot be told to the system"):
        at_login.service(ao, ["--config", path])
