"""`ao open` with a real daemon: in the caller's tmux, by a terminal plugin, and from an untrusted repository."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.programs import Programs
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux

OPENER_PLUGIN = """
class Mine:
    name = "mine"

    def __init__(self, config, host):
        self.host = host

    async def open(self, window):
        await self.host.run(["mine-terminal", window.session, str(window.cwd), window.url])
"""


@pytest.fixture
def tmux(process_box: Sandbox, tmp_path: Path) -> Iterator[list[str]]:
    if not have_tmux():
        pytest.skip("tmux is not installed")
    socket = process_box.home.path / "persons.sock"
    argv = ["tmux", "-S", str(socket), "-f", "/dev/null"]
    subprocess.run([*argv, "new-session", "-d", "-s", "work", "-x", "100", "-y", "30"], env=process_box.env, check=True)
    pid = subprocess.run([*argv, "display", "-p", "#{pid}"], capture_output=True, text=True, check=True).stdout.strip()
    process_box.env["TMUX"] = f"{socket},{pid},0"
    yield argv
    subprocess.run([*argv, "kill-server"], check=False, capture_output=True)


def run_tmux(argv: list[str], *arguments: str) -> str:
    return subprocess.run([*argv, *arguments], capture_output=True, text=True, check=False).stdout


def test_sessions_open_as_windows_of_the_callers_tmux(process_box: Sandbox, tmux: list[str]) -> None:
    for name in ("red", "blue"):
        process_box.ao("new", "--name", name, f"[[say: I am {name}]] [[ask: well?]]")
        process_box.wait_until(lambda name=name: process_box.session(f"app-{name}")["status"] == "needs_input")  # type: ignore[misc]
    output = process_box.ao("open", "--all").stdout
    assert sorted(output.splitlines()) == ["app-blue: opened in tmux", "app-red: opened in tmux"]
    for name in ("red", "blue"):
        process_box.wait_until(
            lambda name=name: f"I am {name}" in run_tmux(tmux, "capture-pane", "-p", "-t", f"=work:=app-{name}")  # type: ignore[misc]
        )
    run_tmux(tmux, "kill-window", "-t", "=work:=app-red")
    assert process_box.session("app-red")["pid"] is not None


def test_a_terminal_plugin_runs_in_the_callers_environment(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "mine-terminal")
    with Sandbox(tmp_path / "box") as box:
        config = "defaults: {agent: demo, runtime: process, terminal: mine}\nplugins: [{path: ./mine.py}]\n"
        box.repository(config=config)
        (box.repo / "mine.py").write_text(OPENER_PLUGIN)
        box.start()
        box.ao("new", "--name", "x", "[[ask: well?]]")
        before = box.env["PATH"]
        box.env["PATH"] = f"{programs.folder}:{before}"
        assert box.ao("open", "x").stdout == "app-x: opened in mine\n"
        url = str(box.client().info()["url"])
        assert programs.started() == [
            ["mine-terminal", "app-x", box.session("app-x")["workspacePath"], f"{url}/sessions/app-x"]
        ]
        (box.repo / "mine.py").write_text(OPENER_PLUGIN + "# changed\n")
        box.git("add", "mine.py", "agent-orchestrator.yaml")
        box.git("commit", "-q", "-m", "plugin")
        refused = box.ao("open", "x", check=False)
        assert refused.returncode != 0 and len(programs.started(within=0)) == 1


def test_a_terminal_command_of_the_repository_runs_only_after_trust(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "evil", "kitty")
    with Sandbox(tmp_path / "box", env={"KITTY_WINDOW_ID": "1"}) as box:
        box.env["PATH"] = f"{programs.folder}:{os.environ['PATH']}"
        box.repository(config="defaults: {agent: demo, terminal: {plugin: command, command: [evil]}}\n")
        box.git("add", "agent-orchestrator.yaml")
        box.git("commit", "-q", "-m", "configuration")
        copy = tmp_path / "copy"
        subprocess.run(["git", "clone", "-q", str(box.repo), str(copy)], env=box.env, check=True)
        box.repo = copy
        box.start()
        box.ao("start", "--no-open")
        box.ao("new", "--name", "x", "[[ask: well?]]")
        assert "opened in kitty" in box.ao("open", "x").stdout
        box.ao("trust", "--yes")
        output = shlex.split(box.ao("open", "x", "--print").stdout)
        assert Path(output[0]).name == "evil" and output[-2:] == ["attach", next(iter(box.sessions()))["id"]]
        assert [call[0] for call in programs.started()] == ["kitty"]
