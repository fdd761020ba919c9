"""`ao open`: choice of sessions, terminal, browser and editor."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.programs import Programs
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import ScriptedDaemon

MINE = """
class Mine:
    name = "mine"

    def __init__(self, config, host):
        self.config, self.host = config, host

    async def open(self, window):
        await self.host.run(["mine-terminal", self.config["colour"], *window.command])
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs(tmp_path, "kitty", "xdg-open", "mine-terminal", "my-editor")
    monkeypatch.setenv("PATH", f"{programs.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("EDITOR", "my-editor --wait")
    for name in ("TMUX", "KITTY_LISTEN_ON", "SSH_CONNECTION", "SSH_TTY", "VISUAL", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return programs


def window(name: str, tmp_path: Path, terminal: object = None, **more: object) -> dict[str, object]:
    return {
        "session": f"app-{name}",
        "live": True,
        "workspacePath": str(tmp_path),
        "node": None,
        "cwd": str(tmp_path),
        "url": f"http://127.0.0.1:3999/sessions/app-{name}",
        "terminal": terminal or {"plugin": "kitty", "options": {}, "files": []},
        **more,
    }


@pytest.fixture
def sessions(daemon: ScriptedDaemon, tmp_path: Path, programs: Programs) -> ScriptedDaemon:
    daemon.route(
        "GET", "/api/sessions(\\?.*)?", {"sessions": [{"id": f"app-{name}"} for name in ("one", "two", "three")]}
    )
    for name in ("one", "two"):
        daemon.route("GET", f"/api/sessions/(app-)?{name}/window", window(name, tmp_path))
    daemon.route("GET", "/api/sessions/(app-)?three/window", window("three", tmp_path, live=False))
    return daemon


def attach(name: str) -> list[str]:
    home = os.environ["AO_HOME"]
    return ["env", f"AO_HOME={home}", sys.executable, "-P", "-m", "agent_orchestrator", "attach", f"app-{name}"]


def test_a_session_is_opened_in_the_configured_terminal(
    sessions: ScriptedDaemon, run: Run, programs: Programs, tmp_path: Path
) -> None:
    ran = run("open", "one")
    assert (ran.code, ran.out) == (0, "app-one: opened in kitty\n"), ran.err
    assert programs.started() == [["kitty", "--title", "app-one", "--directory", str(tmp_path), *attach("one")]]


def test_every_running_session_gets_a_window(sessions: ScriptedDaemon, run: Run, programs: Programs) -> None:
    ran = run("open", "--all", "-A")
    assert ran.code == 0 and ran.out.splitlines() == ["app-one: opened in kitty", "app-two: opened in kitty"]
    assert sessions.requests_for("GET", "/api/sessions\\?.*all=.*")
    assert sorted(call[2] for call in programs.started(2)) == ["app-one", "app-two"]


def test_a_session_that_is_not_running_fails_alone(sessions: ScriptedDaemon, run: Run, programs: Programs) -> None:
    ran = run("open", "three", "two", "nobody")
    assert ran.code == 3 and "app-two: opened in kitty" in ran.out
    assert "app-three has no running agent" in ran.err and "ao restore app-three" in ran.err
    assert len(programs.started()) == 1


def test_the_browser_needs_no_running_agent(sessions: ScriptedDaemon, run: Run, programs: Programs) -> None:
    assert run("open", "three", "--browser").code == 0
    assert programs.started() == [["xdg-open", "http://127.0.0.1:3999/sessions/app-three"]]


def test_the_editor_gets_the_workspace(sessions: ScriptedDaemon, run: Run, programs: Programs, tmp_path: Path) -> None:
    assert run("open", "one", "--editor").code == 0
    assert programs.started() == [["my-editor", "--wait", str(tmp_path)]]


def test_a_missing_editor_is_reported(
    sessions: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "/nowhere/editor")
    ran = run("open", "one", "--editor")
    assert ran.code == 1 and "/nowhere/editor cannot be run" in ran.err
    sessions.route("GET", "/api/sessions/gone/window", window("gone", tmp_path, workspacePath=None))
    assert run("open", "gone", "--editor").code == 3


def test_an_editor_for_a_workspace_on_another_node_is_refused(
    sessions: ScriptedDaemon, run: Run, tmp_path: Path
) -> None:
    sessions.route("GET", "/api/sessions/far/window", window("far", tmp_path, node="beta"))
    ran = run("open", "far", "--editor")
    assert ran.code == 2 and "on node beta" in ran.err and "ao diff app-far" in ran.err


def test_printing_opens_nothing(sessions: ScriptedDaemon, run: Run, programs: Programs) -> None:
    ran = run("open", "one", "--print")
    assert ran.code == 0 and ran.out.startswith(str(programs.folder / "kitty")) and "attach app-one" in ran.out
    assert programs.started(within=0) == []


@pytest.mark.parametrize("change", ["", "# another line\n"])
def test_a_plugin_file_runs_only_with_its_trusted_content(
    sessions: ScriptedDaemon, run: Run, programs: Programs, tmp_path: Path, change: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    files = [{"path": str(file), "sha256": hashlib.sha256(MINE.encode()).hexdigest()}]
    terminal: dict[str, Any] = {"plugin": "mine", "options": {"colour": "green"}, "files": files}
    sessions.route("GET", "/api/sessions/one/window", window("one", tmp_path, terminal))
    file.write_text(MINE + change)
    ran = run("open", "one")
    if change:
        assert ran.code == 3 and "changed since it was trusted" in ran.err and programs.started(within=0) == []
    else:
        assert ran.code == 0, ran.err
        assert programs.started() == [["mine-terminal", "green", *attach("one")]]


def test_a_window_that_could_not_be_seen_is_refused(
    sessions: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "KITTY_WINDOW_ID", "WEZTERM_PANE", "TERM_PROGRAM", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    auto = {"plugin": "auto", "options": {}, "files": []}
    sessions.route("GET", "/api/sessions/one/window", window("one", tmp_path, auto))
    ran = run("open", "one")
    assert ran.code == 1 and "you came by SSH" in ran.err and "ao attach" in ran.err


@pytest.mark.parametrize("argv", [(), ("one", "--all"), ("one", "-A")])
def test_sessions_are_given_by_name_or_as_all_but_not_both(
    sessions: ScriptedDaemon, run: Run, argv: tuple[str, ...]
) -> None:
    assert run("open", *argv).code == 2
