"""The environment of a peer: a folder with a separate home, repository and tmux server, and the meters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.measure import children_started, resident_megabytes
from benchmarks.peers.adapter import Adapter, fill, fill_all

AGENT = Path(__file__).with_name("agent.py")
COUNTED_PROGRAMS = ("tmux", "git", "ps", "sh", "bash", "node", "gh", "lsof", "pgrep", "which", "stty")
_REMOVED_PREFIXES = ("AO_", "CAO_", "TMUX", "GIT_", "PYTEST_", "PYTHON")


class OutOfTime(Exception):
    """The time limit of all peers is reached."""


class PeerEnvironment:
    """The environment of one peer, until a deadline. On exit, its processes are killed by id."""

    def __init__(self, adapter: Adapter, folder: Path, values: Mapping[str, str], deadline: float) -> None:
        self.adapter = adapter
        self.folder = folder
        self.deadline = deadline
        self.log = folder / "agents.jsonl"
        self.server: subprocess.Popen[bytes] | None = None
        self._calls = folder / "calls"
        folders = {name: folder / name for name in ("home", "repo", "bin", "programs", "tmux")}
        for path in folders.values():
            path.mkdir(parents=True, mode=0o700)
        self.values = {
            **values,
            **{name: str(path) for name, path in folders.items()},
            "folder": str(folder),
            "port": str(_free_port()),
        }
        self.env = self._environment(folders)
        self._fill_folders(folders)

    def __enter__(self) -> PeerEnvironment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._processes():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            end = time.monotonic() + 2
            while self._processes() and time.monotonic() < end:
                time.sleep(0.05)
        if self.server is not None:
            self.server.wait(5)

    # -- commands ------------------------------------------------------------------------------------------------------

    def start(self, limit: float) -> None:
        """Set the peer up and start its server; return when it answers."""
        for command in self.adapter.prepare:
            self._run(fill_all(command, self.values), limit, check=True)
        if "start" in self.adapter.commands:
            self.server = self.start_command("start")
        if "answers" in self.adapter.commands:
            self.wait_until(lambda: self.run("answers").returncode == 0, limit, f"{self.adapter.name} to answer")

    def run(self, command: str, limit: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self._run(self._command(command, **more), limit)

    def start_command(self, command: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a command without waiting for its end."""
        with self._output_file(command, more.get("name", "")).open("wb") as output:
            return subprocess.Popen(
                self._command(command, **more),
                cwd=self.folder / "repo",
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def session(self, name: str) -> str:
        """Return the peer's id of the session that was started with a name."""
        if not self.adapter.session:
            return name
        output = self._output_file("spawn", name).read_text(errors="replace")
        match = re.search(self.adapter.session, output)
        return match[1] if match else name

    def shows_alive(self, session: str) -> bool:
        """Return whether the peer's list shows the session's agent as running."""
        pattern = fill(self.adapter.alive, {**self.values, "name": re.escape(session)})
        return re.search(pattern, self.run("list").stdout) is not None

    # -- the meter -----------------------------------------------------------------------------------------------------

    def notes(self, event: str) -> list[dict[str, Any]]:
        """Return the agents' log entries of this event."""
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def wait_until(self, condition: Callable[[], object], limit: float, description: str) -> None:
        """Poll until a condition is true; raise `TimeoutError` after the limit, `OutOfTime` after the deadline."""
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > self.deadline:
                raise OutOfTime(f"no time was left to wait for {description}")
            if time.monotonic() > end:
                raise TimeoutError(f"waited {limit:g} s in vain for {description}")
            if self.server is not None and self.server.poll() is not None:
                raise ChildProcessError(f"{self.adapter.name} ended with {self.server.returncode}: {self._last_line()}")
            time.sleep(0.01)

    def memory(self) -> float:
        """Return the resident memory of the server and its descendants, in MB."""
        if self.server is None:
            return 0.0
        return sum(resident_megabytes(pid) for pid in _process_tree(self.server.pid))

    @contextmanager
    def count_programs(self) -> Iterator[Callable[[], int]]:
        """Count the programs that the peer's processes start: each program is replaced by a script that logs its call."""
        self._calls.write_text("")
        for name, real in self._programs().items():
            note = f'#!/bin/sh\necho {name} >> {shlex.quote(str(self._calls))}\nexec {shlex.quote(real)} "$@"\n'
            self._replace_program(name, partial(_script, text=note))
        try:
            with children_started(self.server.pid if self.server else os.getpid()) as others:
                yield lambda: max(len(self._calls.read_text().splitlines()), int(others() > 0))
        finally:
            for name, real in self._programs().items():
                self._replace_program(name, partial(Path.symlink_to, target=real))

    # -- furniture -----------------------------------------------------------------------------------------------------

    def _environment(self, folders: Mapping[str, Path]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED_PREFIXES)}
        return {
            **inherited,
            "HOME": str(folders["home"]),
            "PATH": f"{folders['bin']}:{folders['programs']}:{inherited.get('PATH', os.defpath)}",
            "TMUX_TMPDIR": str(folders["tmux"]),
            "SHELL": "/bin/sh",
            "GIT_CONFIG_NOSYSTEM": "1",
            "NO_COLOR": "1",
            **{name: fill(value, self.values) for name, value in self.adapter.env.items()},
        }

    def _fill_folders(self, folders: Mapping[str, Path]) -> None:
        agent = [sys.executable, "-IS", str(AGENT), str(self.log), self.adapter.ready]
        _script(folders["bin"] / self.adapter.program, f"#!/bin/sh\nexec {shlex.join(agent)}\n")
        for name, real in self._programs().items():
            (folders["programs"] / name).symlink_to(real)
        person = ["-c", "user.name=Person", "-c", "user.email=person@example.invalid"]
        for command in (["init", "-q", "-b", "main"], [*person, "commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", *command], cwd=folders["repo"], env=self.env, check=True, capture_output=True)
        for name, text in self.adapter.files.items():
            Path(fill(name, self.values)).write_text(fill(text.lstrip("\n"), self.values))

    def _programs(self) -> dict[str, str]:
        paths = {name: shutil.which(name) for name in COUNTED_PROGRAMS}
        return {name: real for name, real in paths.items() if real}

    def _replace_program(self, name: str, make: Callable[[Path], object]) -> None:
        """Replace a program atomically, so that simultaneous calls always find one."""
        temporary = self.folder / "programs" / f".{name}"
        make(temporary)
        temporary.replace(self.folder / "programs" / name)

    def _command(self, command: str, **more: str) -> list[str]:
        return fill_all(self.adapter.commands[command], {**self.values, **more})

    def _output_file(self, command: str, name: str = "") -> Path:
        return self.folder / f"{command}-{name}.out"

    def _run(self, command: list[str], limit: float, check: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder / "repo",
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=check,
        )

    def _last_line(self) -> str:
        lines = self._output_file("start").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _processes(self) -> list[int]:
        """Return the processes that have the folder in their environment or their command."""
        mark = str(self.folder).encode()
        pids = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                is_ours = mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes()
                is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                pids += [int(entry.name)] if is_ours and not is_zombie else []
        return pids


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _process_tree(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    pids, remaining = [], [pid]
    while remaining:
        current = remaining.pop()
        pids.append(current)
        remaining += children.get(current, [])
    return pids
