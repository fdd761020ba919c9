"""`ao start --at-login`: the service definition for systemd and launchd, and its removal."""

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

from agent_orchestrator.cli.daemon import login_service
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import UsageError
from agent_orchestrator.testing.programs import Programs
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import ScriptedDaemon

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
    scripts = {"loginctl": "echo Linger=no"}
    programs = Programs(tmp_path, "systemctl", "launchctl", "loginctl", then=scripts)
    monkeypatch.setenv("PATH", f"{programs.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))
    monkeypatch.chdir(tmp_path)
    return programs


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    return tmp_path / "my config" / "systemd" / "user" / "agent-orchestrator.service"


def test_the_unit_quotes_its_command_and_variables() -> None:
    argv = [
        "/opt/my venv/bin/python",
        "-m",
        "agent_orchestrator.daemon",
        "--config",
        '/home/me/50% "done"/$x.yaml',
    ]
    env = {"PATH": "/usr/bin:/home/me/my bin", "AO_HOME": "/home/me/a \\ home/50%"}
    assert login_service.systemd_unit(argv, env) == UNIT


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.service"
    file.write_text(
        login_service.systemd_unit([sys.executable, "-m", "x", '/50% "done"/$x'], {"AO_HOME": "/a \\ home/50%"})
    )
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")


def test_the_unit_is_written_enabled_and_removed(
    daemon: ScriptedDaemon, run: Run, system: Programs, unit: Path
) -> None:
    ran = run("start", "--at-login", "--no-open", "--port", "0")
    assert ran.code == 0, ran.err
    assert f"wrote {unit}" in ran.out and "undo: ao start --no-at-login" in ran.out
    assert "loginctl enable-linger" in ran.out
    text = unit.read_text()
    (command,) = re.findall("ExecStart=(.*)", text)
    assert shlex.split(command) == [sys.executable, "-P", "-m", "agent_orchestrator.daemon", "--port", "0"]
    assert f'Environment="AO_HOME={daemon.home}"' in text
    calls = [call[1:] for call in system.started(3) if call[0] == "systemctl"]
    assert calls == [["--user", "daemon-reload"], ["--user", "enable", "agent-orchestrator.service"]]

    ran = run("start", "--no-at-login")
    assert ran.code == 0 and f"removed {unit}" in ran.out and not unit.exists()
    calls = [call[1:] for call in system.started(5) if call[0] == "systemctl"][2:]
    assert calls == [["--user", "disable", "agent-orchestrator.service"], ["--user", "daemon-reload"]]
    assert "does not start when you log in" in run("start", "--no-at-login").out


def test_systemd_starts_a_daemon_that_is_not_running(home: Path, system: Programs, unit: Path) -> None:
    messages = login_service.enable(DaemonClient(home, start=False), [])
    assert messages[0] == f"wrote {unit}"
    calls = [call[1:] for call in system.started(4) if call[0] == "systemctl"]
    assert calls[-1] == ["--user", "restart", "agent-orchestrator.service"]


@pytest.mark.parametrize("before", [None, "the old one\n"])
def test_without_a_service_manager_nothing_is_written(
    daemon: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: Path, before: str | None
) -> None:
    scripts = {"systemctl": "echo Failed to connect to bus: No medium found >&2; exit 1"}
    failing = Programs(tmp_path, "systemctl", then=scripts)
    monkeypatch.setenv("PATH", f"{failing.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))
    monkeypatch.chdir(tmp_path)
    if before:
        unit.parent.mkdir(parents=True)
        unit.write_text(before)
    ran = run("start", "--at-login", "--no-open")
    assert ran.code == 1 and "Failed to connect to bus" in ran.err and ran.err.count("\n") == 1
    assert (unit.read_text() if unit.exists() else None) == before


def test_launchd_gets_a_property_list(
    home: Path, system: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(login_service, "platform", "darwin")
    ao = DaemonClient(home, start=False)
    messages = login_service.enable(ao, ["--config", "/a b/c.yaml"])
    file = Path(os.environ["HOME"]) / "Library" / "LaunchAgents" / "agent-orchestrator.daemon.plist"
    assert messages == [f"wrote {file}", "the daemon starts when you log in; undo: ao start --no-at-login"]
    properties = plistlib.loads(file.read_bytes())
    assert properties["ProgramArguments"] == [
        sys.executable,
        "-P",
        "-m",
        "agent_orchestrator.daemon",
        "--config",
        "/a b/c.yaml",
    ]
    assert properties["EnvironmentVariables"]["AO_HOME"] == str(home)
    assert (
        properties["AbandonProcessGroup"]
        and properties["RunAtLoad"]
        and properties["KeepAlive"] == {"SuccessfulExit": False}
    )
    gui = f"gui/{os.getuid()}"
    assert system.started(3) == [
        ["launchctl", "enable", f"{gui}/agent-orchestrator.daemon"],
        ["launchctl", "bootout", f"{gui}/agent-orchestrator.daemon"],
        ["launchctl", "bootstrap", gui, str(file)],
    ]
    login_service.disable(ao)
    assert not file.exists() and system.started(4)[-1][1] == "disable"


def test_other_systems_are_refused(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(login_service, "platform", "win32")
    monkeypatch.chdir(tmp_path)
    ran = run("start", "--at-login", "--no-open")
    assert ran.code == 1 and "systemd and launchd only" in ran.err


def test_at_login_and_foreground_exclude_each_other(daemon: ScriptedDaemon, run: Run) -> None:
    assert run("start", "--at-login", "--foreground").code == 2


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\udcff"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_control_character_in_a_path_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, character: str
) -> None:
    monkeypatch.setattr(login_service, "platform", platform)
    path = f"/home/me/x{character}ExecStart=/home/me/x/evil"
    with DaemonClient(home, start=False) as ao, pytest.raises(UsageError, match="cannot be told to the system"):
        login_service.service_file(ao, ["--config", path])
