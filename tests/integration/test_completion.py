"""Tab in real shells: what is typed at a prompt, and the command line that comes of it."""

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
        self.seen = ""

    def type(self, text: str, until: str, seconds: float = 60.0) -> re.Match[str]:
        """Type, and wait for what is to be seen after it."""
        start, end = len(self.seen), time.monotonic() + seconds
        os.write(self.fd, text.encode())
        while time.monotonic() < end:
            if found := re.search(until, self.seen[start:]):
                return found
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        raise AssertionError(f"{until} was not seen after {text!r}, but {self.seen[start:]!r}")

    def close(self) -> None:
        """End it."""
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
        made = subprocess.run(
            [sys.executable, "-m", "agent_orchestrator", "completion", shell],
            env=environment(folder),
            stdout=subprocess.PIPE,
            check=True,
        )
        (folder / f"script.{shell}").write_bytes(made.stdout)
    return folder


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH")}
    return {**kept, "HOME": str(folder), "AO_HOME": str(folder / "ao"), "TERM": "dumb", "PS1": "$ "}


@pytest.fixture(scope="module", params=SHELLS)
def typed(request: pytest.FixtureRequest, world: Path) -> Iterator[Callable[[str], str]]:
    """What becomes of a line typed after `ao `."""
    shell = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal(SHELLS[shell], world / "repo", environment(world))
    terminal.type(SET_UP[shell].format(script=world / f"script.{shell}") + "\n", "READY")
    yield lambda line: terminal.type(f"ao {line}\n", r"GOT\[(.*?)\]")[1].rstrip()
    terminal.close()


@pytest.mark.parametrize("what", TYPED)
def test_tab_completes(typed: Callable[[str], str], what: str) -> None:
    line, whole = TYPED[what]
    assert typed(line) == whole


def test_zsh_takes_the_script_from_its_folder_of_functions(world: Path) -> None:
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
        for line, whole in (TYPED["a session by its id"], TYPED["a command"]):  # the first one loads it
            assert terminal.type(f"ao {line}\n", r"GOT\[(.*?)\]")[1].rstrip() == whole
    finally:
        terminal.close()


def test_a_key_press_starts_no_program(world: Path) -> None:
    """So it takes a few milliseconds, whatever Python takes; for branches alone Git is asked."""
    script = f"PATH=/nowhere; source {world / 'script.bash'}; COMP_WORDS=(ao attach app-f) COMP_CWORD=2; _ao"
    shown = f'{script}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", shown], env=environment(world), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("app-fix-login\n", "")


def test_the_daemon_keeps_the_names(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository("app")
        box.start()
        folder = box.home.names

        def names(kind: str) -> list[str]:
            return (folder / kind).read_text().split() if (folder / kind).exists() else ["none yet"]

        box.until(lambda: names("sessions") == [], "there is no session")
        box.ao("new", "--name", "one", "[[wait: 1]]")
        box.until(lambda: names("sessions") == ["app-one", "one"], "the session's names")
        box.until(lambda: names("projects") == ["app"] and "claude-code" in names("agents"), "the others")
        box.ao("stop", "one")
        box.until(lambda: names("sessions") == [], "it is stopped")
        box.until(lambda: names("any") == ["app-one", "one"], "it may be named still")
        (box.repo / "agent-orchestrator.yaml").write_text("agents: {mine: {tool: demo}}\ndefaults: {agent: mine}\n")
        box.ao("status")
        box.until(lambda: "mine" in names("agents"), "the profile's name")
        assert folder.stat().st_mode & 0o077 == 0
