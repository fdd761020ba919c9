"""Where a peer plays: a folder with a home, a repository and a tmux server of its own, and a meter for what happens there."""

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

from benchmarks.measure import children_started, resident
from benchmarks.peers.adapter import Adapter, filled, words

AGENT = Path(__file__).with_name("agent.py")
COUNTED = ("tmux", "git", "ps", "sh", "bash", "node", "gh", "lsof", "pgrep", "which", "stty")
_FOREIGN = ("AO_", "CAO_", "TMUX", "GIT_", "PYTEST_", "PYTHON")


class OutOfTime(Exception):
    """The time for all peers together is over."""


class Place:
    """One peer at play, until a moment at the latest. Leaving it ends, by their ids, all processes that know of its folder."""

    def __init__(self, adapter: Adapter, folder: Path, values: Mapping[str, str], latest: float) -> None:
        self.adapter = adapter
        self.folder = folder
        self.latest = latest
        self.log = folder / "agents.jsonl"
        self.server: subprocess.Popen[bytes] | None = None
        self._calls = folder / "calls"
        rooms = {name: folder / name for name in ("home", "repo", "bin", "programs", "tmux")}
        for room in rooms.values():
            room.mkdir(parents=True, mode=0o700)
        self.values = {
            **values,
            **{name: str(room) for name, room in rooms.items()},
            "folder": str(folder),
            "port": str(_free_port()),
        }
        self.env = self._environment(rooms)
        self._furnish(rooms)

    def __enter__(self) -> Place:
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
        """Set it up and start what runs all the time; returns when it answers."""
        for command in self.adapter.prepare:
            self._run(words(command, self.values), limit, check=True)
        if "start" in self.adapter.commands:
            self.server = self.begin("start")
        if "answers" in self.adapter.commands:
            self.until(lambda: self.run("answers").returncode == 0, limit, f"{self.adapter.name} to answer")

    def run(self, command: str, limit: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
        """One of its commands, to its end."""
        return self._run(self._words(command, **more), limit)

    def begin(self, command: str, **more: str) -> subprocess.Popen[bytes]:
        """One of its commands, without waiting for its end."""
        with self._printed(command, more.get("name", "")).open("wb") as printed:
            return subprocess.Popen(
                self._words(command, **more),
                cwd=self.folder / "repo",
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def session(self, name: str) -> str:
        """What the peer calls the session that was asked for by a name."""
        if not self.adapter.session:
            return name
        printed = self._printed("spawn", name).read_text(errors="replace")
        found = re.search(self.adapter.session, printed)
        return found[1] if found else name

    def shows_alive(self, session: str) -> bool:
        """Does its list show that the session's agent runs?"""
        pattern = filled(self.adapter.alive, {**self.values, "name": re.escape(session)})
        return re.search(pattern, self.run("list").stdout) is not None

    # -- the meter -----------------------------------------------------------------------------------------------------

    def notes(self, event: str) -> list[dict[str, Any]]:
        """What the agents noted."""
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def until(self, holds: Callable[[], object], limit: float, what: str) -> None:
        """Look until something is so; `TimeoutError` after the limit."""
        end = time.monotonic() + limit
        while not holds():
            if time.monotonic() > self.latest:
                raise OutOfTime(f"no time was left to wait for {what}")
            if time.monotonic() > end:
                raise TimeoutError(f"waited {limit:g} s in vain for {what}")
            if self.server is not None and self.server.poll() is not None:
                raise ChildProcessError(
                    f"{self.adapter.name} ended with {self.server.returncode}: {self._last_words()}"
                )
            time.sleep(0.01)

    def memory(self) -> float:
        """Resident memory of what runs all the time, with all that it started and that is still its own, in MB."""
        if self.server is None:
            return 0.0
        return sum(resident(pid) for pid in _family(self.server.pid))

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """Counts the programs that are started by anything of the peer's: each is replaced by one that notes its call."""
        self._calls.write_text("")
        for name, real in self._programs().items():
            note = f'#!/bin/sh\necho {name} >> {shlex.quote(str(self._calls))}\nexec {shlex.quote(real)} "$@"\n'
            self._put(name, partial(_script, text=note))
        try:
            with children_started(self.server.pid if self.server else os.getpid()) as others:
                yield lambda: max(len(self._calls.read_text().splitlines()), int(others() > 0))
        finally:
            for name, real in self._programs().items():
                self._put(name, partial(Path.symlink_to, target=real))

    # -- furniture -----------------------------------------------------------------------------------------------------

    def _environment(self, rooms: Mapping[str, Path]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        return {
            **kept,
            "HOME": str(rooms["home"]),
            "PATH": f"{rooms['bin']}:{rooms['programs']}:{kept.get('PATH', os.defpath)}",
            "TMUX_TMPDIR": str(rooms["tmux"]),
            "SHELL": "/bin/sh",
            "GIT_CONFIG_NOSYSTEM": "1",
            "NO_COLOR": "1",
            **{name: filled(value, self.values) for name, value in self.adapter.env.items()},
        }

    def _furnish(self, rooms: Mapping[str, Path]) -> None:
        agent = [sys.executable, "-IS", str(AGENT), str(self.log), self.adapter.ready]
        _script(rooms["bin"] / self.adapter.program, f"#!/bin/sh\nexec {shlex.join(agent)}\n")
        for name, real in self._programs().items():
            (rooms["programs"] / name).symlink_to(real)
        person = ["-c", "user.name=Person", "-c", "user.email=person@example.invalid"]
        for command in (["init", "-q", "-b", "main"], [*person, "commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", *command], cwd=rooms["repo"], env=self.env, check=True, capture_output=True)
        for name, text in self.adapter.files.items():
            Path(filled(name, self.values)).write_text(filled(text.lstrip("\n"), self.values))

    def _programs(self) -> dict[str, str]:
        found = {name: shutil.which(name) for name in COUNTED}
        return {name: real for name, real in found.items() if real}

    def _put(self, name: str, make: Callable[[Path], object]) -> None:
        """Replace a program in one step: a call meanwhile finds the one or the other."""
        beside = self.folder / "programs" / f".{name}"
        make(beside)
        beside.replace(self.folder / "programs" / name)

    def _words(self, command: str, **more: str) -> list[str]:
        return words(self.adapter.commands[command], {**self.values, **more})

    def _printed(self, command: str, name: str = "") -> Path:
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

    def _last_words(self) -> str:
        lines = self._printed("start").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def _processes(self) -> list[int]:
        """All that were started here: they have the folder in their environment or their command."""
        mark = str(self.folder).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                known = mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes()
                gone = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                found += [int(entry.name)] if known and not gone else []
        return found


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += children.get(one, [])
    return found
