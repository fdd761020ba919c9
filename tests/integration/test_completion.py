"""Completion in real shells: a line typed with Tab, and the completed command line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

NAMES = {
    "sessions": "app-fix-login app-tidy fix-login tidy",
    "any": "app-fix-login app-old app-tidy fix-login old tidy",
    "projects": "app docs-site",
    "agents": "claude-code demo",
    "plans": "P1",
    "fixes": "F7",
    "nodes": "n1",
}
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SET_UP = {
    "bash": 'source {script}; ao() {{ printf "GOT[%s]\\n" "$*"; }}; bind "set bell-style none"; echo REA""DY',
    "zsh": 'autoload -Uz compinit && compinit -u -D; source {script}; ao() {{ printf "GOT[%s]\\n" "$*" }}; echo REA""DY',
    "fish": 'source {script}; function ao; printf "GOT[%s]\\n" "$argv"; end; echo REA""DY',
}
TYPED = {
    "a command": ("shutd\t", "shutdown"),
    "a command after a project": ("-p app rest\t", "-p app restore"),
    "a command below another": ("config val\t", "config validate"),
    "an option": ("stop --ke\t", "stop --keep"),
    "a session by its id": ("attach app-f\t", "attach app-fix-login"),
    "a session by its name": ("attach ti\t", "attach tidy"),
    "the second of several": ("stop tidy fix\t", "stop tidy fix-login"),
    "one that is stopped, to bring it back": ("restore app-o\t", "restore app-old"),
    "a project": ("status -p do\t", "status -p docs-site"),
    "a project after =": ("status --project=do\t", "status --project=docs-site"),
    "an agent": ("new --agent cl\t", "new --agent claude-code"),
    "a branch": ("new --branch feature/o\t", "new --branch feature/one"),
    "a branch that would be a command": ("new --branch evi\t", "new --branch evil;touch${IFS}pwned$(id)'"),
    "a plan": ("plan P\t", "plan P1"),
    "a run of fix": ("fix --stop F\t", "fix --stop F7"),
    "a node": ("drain n\t", "drain n1"),
    "one of a few": ("completion fi\t", "completion fish"),
    "a file": ("import old-c\t", "import old-config.yaml"),
    "nothing for a text": ("new tid\t", "new tid"),
    "by another name of the command": ("prompt ti\t", "prompt tidy"),
}


class Terminal:
    """A shell at a terminal."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)
        self.output = ""

    def type(self, text: str, until: str, seconds: float = 60.0) -> re.Match[str]:
        """Type a text, wait until a pattern appears and return the match."""
        start, end = len(self.output), time.monotonic() + seconds
        os.write(self.fd, text.encode())
        while time.monotonic() < end:
            if shown_match := re.search(until, self.output[start:]):
                return shown_match
            if select.select([self.fd], [], [], 0.1)[0]:
                self.output += os.read(self.fd, 65536).decode(errors="replace")
        raise AssertionError(f"{until} was not seen after {text!r}, but {self.output[start:]!r}")

    def close(self) -> None:
        """Kill the shell."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "ao" / "names").mkdir(parents=True)
    for kind, names in NAMES.items():
        (folder / "ao" / "names" / kind).write_text("".join(f"{name}\n" for name in names.split()))
    repo = folder / "repo"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "start"], check=True)
    for branch in ("feature/one", "evil;touch${IFS}pwned$(id)'"):
        subprocess.run([*git, "branch", branch], check=True)
    (repo / "old-config.yaml").write_text("")
    for shell in SHELLS:
        result = subprocess.run(
            [sys.executable, "-m", "agent_orchestrator", "completion", shell],
            env=environment(folder),
            stdout=subprocess.PIPE,
            check=True,
        )
        (folder / f"script.{shell}").write_bytes(result.stdout)
    return folder


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH")}
    return {**inherited, "HOME": str(folder), "AO_HOME": str(folder / "ao"), "TERM": "dumb", "PS1": "$ "}


@pytest.fixture(scope="module", params=SHELLS)
def complete_line(request: pytest.FixtureRequest, world: Path) -> Iterator[Callable[[str], str]]:
    """Yield a function that types a line after `ao ` and returns the completed line."""
    shell = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal(SHELLS[shell], world / "repo", environment(world))
    terminal.type(SET_UP[shell].format(script=world / f"script.{shell}") + "\n", "READY")
    yield lambda line: terminal.type(f"ao {line}\n", r"GOT\[(.*?)\]")[1].rstrip()
    terminal.close()


@pytest.mark.parametrize("case", TYPED)
def test_tab_completes_the_line(complete_line: Callable[[str], str], case: str) -> None:
    line, completed = TYPED[case]
    assert complete_line(line) == completed


def test_zsh_loads_the_script_from_its_function_folder(world: Path) -> None:
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    functions = world / "functions"
    functions.mkdir()
    shutil.copy(world / "script.zsh", functions / "_ao")
    terminal = Terminal(SHELLS["zsh"], world / "repo", environment(world))
    try:
        set_up = (
            f'fpath=({functions} $fpath); autoload -Uz compinit && compinit -u -D; ao() {{ printf "GOT[%s]\\n" "$*" }}'
        )
        terminal.type(f'{set_up}; echo REA""DY\n', "READY")
        for line, completed in (TYPED["a session by its id"], TYPED["a command"]):  # the first one loads it
            assert terminal.type(f"ao {line}\n", r"GOT\[(.*?)\]")[1].rstrip() == completed
    finally:
        terminal.close()


def test_a_completion_starts_no_program(world: Path) -> None:
    """A completion takes a few milliseconds, because Python is not started; only branches need Git."""
    script = f"PATH=/nowhere; source {world / 'script.bash'}; COMP_WORDS=(ao attach app-f) COMP_CWORD=2; _ao"
    script_and_output = f'{script}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", script_and_output], env=environment(world), capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("app-fix-login\n", "")


def test_the_daemon_updates_the_files_with_names(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository("app")
        box.start()
        folder = box.home.completion_folder

        def names(kind: str) -> list[str]:
            return (folder / kind).read_text().split() if (folder / kind).exists() else ["none yet"]

        box.wait_until(lambda: names("sessions") == [], "there is no session")
        box.ao("new", "--name", "one", "[[wait: 1]]")
        box.wait_until(lambda: names("sessions") == ["app-one", "one"], "the session's names")
        box.wait_until(lambda: names("projects") == ["app"] and "claude-code" in names("agents"), "the others")
        box.ao("stop", "one")
        box.wait_until(lambda: names("sessions") == [], "it is stopped")
        box.wait_until(lambda: names("any") == ["app-one", "one"], "it may be named still")
        (box.repo / "agent-orchestrator.yaml").write_text("agents: {mine: {tool: demo}}\ndefaults: {agent: mine}\n")
        box.ao("status")
        box.wait_until(lambda: "mine" in names("agents"), "the profile's name")
        assert folder.stat().st_mode & 0o077 == 0
