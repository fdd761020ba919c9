"""A sandbox whose daemon writes down what it does, and what was written between two moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest

from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
SETTLED = 0.5
"""Seconds without a line after which nothing more is expected, of a daemon that only waits, and for no program."""
AT_ONCE = 0.2
"""Seconds from one look to the next; if they are more, the whole machine may have stood still."""
WORKS = "[[sleep: 7200]]"


@dataclass
class Done:
    """What the daemon did meanwhile."""

    lines: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[str]:
        return [line.removeprefix(f"{kind} ") for line in self.lines if line.startswith(f"{kind} ")]

    @property
    def statements(self) -> list[str]:
        return self.of("sql")

    @property
    def commits(self) -> list[str]:
        return [line for line in self.statements if line == "COMMIT"]

    @property
    def programs(self) -> list[str]:
        return self.of("run")


class World:
    """One daemon after the other in one home."""

    def __init__(self, box: Sandbox, log: Path) -> None:
        self.box, self._log = box, log

    def _lines(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    @contextmanager
    def counted(self) -> Iterator[Done]:
        """What is done within the block, and because of it."""
        before, done = len(self._lines()), Done()
        yield done
        done.lines = self._settled()[before:]

    def _settled(self) -> list[str]:
        lines, since = self._lines(), monotonic()
        looked = since

        def quiet() -> bool:
            nonlocal lines, since, looked
            now, before, looked = self._lines(), looked, monotonic()
            if len(now) != len(lines) or looked - before > AT_ONCE or self._works():
                lines, since = now, looked
            return looked - since > SETTLED

        self.box.until(quiet, "the daemon to have nothing more to do")
        return lines

    def _works(self) -> bool:
        """Is the daemon or a Git of its own at work, or is it to be, once it is let?"""
        for thread in Path(f"/proc/{self.box.daemon_pid()}/task").glob("*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] != "S":
                    return True
                for pid in (thread / "children").read_text().split():
                    if b"git" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                        return True
        return False

    def wait_for(self, text: str) -> None:
        """Go on when the daemon has written a line with this."""
        self.box.until(lambda: any(text in line for line in self._lines()), text)

    def timers(self) -> int:
        """How often the daemon would wake in the next minute if nothing happened."""
        with self.counted() as done:
            os.kill(self.box.daemon_pid() or 0, signal.SIGUSR1)
            self.wait_for("timers ")
        return int(done.of("timers")[-1])

    def spawn(self, name: str) -> str:
        """A session that works on and on."""
        self.box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": WORKS})
        self.box.until(lambda: self.box.session(f"app-{name}")["status"] == "working", f"{name} at work")
        return f"app-{name}"


@contextmanager
def world(folder: Path, monkeypatch: pytest.MonkeyPatch, config: str | None = None) -> Iterator[World]:
    """A repository and no daemon yet."""
    log = folder / "done"

    def launch(argv: Sequence[str], env: Mapping[str, str]) -> sandbox.Daemon:
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-m", "tests.guards.counted", *argv],
            env={**env, "AO_COUNTED": str(log), "PYTHONPATH": f"{ROOT}{os.pathsep}{env.get('PYTHONPATH', '')}"},
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )

    monkeypatch.setattr(sandbox, "launch", launch)
    with Sandbox(folder / "box") as box:
        box.repository(config=config)
        box.home.make()
        box.home.config.write_text("power: {preventIdleSleep: false}\n")  # a program that is there or not
        yield World(box, log)


def at_most(allowed: int, found: Sequence[str], what: str, remedy: str) -> None:
    """Fail if there is more than that, with all of it and what to do."""
    listed = "\n  ".join(found)
    assert len(found) <= allowed, f"{what}: {len(found)}, and {allowed} were enough so far. {remedy}\n  {listed}"
