"""A sandbox whose daemon logs what it does, and the part of the log within a block."""

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
SETTLE_SECONDS = 0.5
"""Seconds without a new line after which an idle daemon is considered settled."""
MAX_POLL_SECONDS = 0.2
"""The maximum seconds between two polls; if it took longer, the machine may have stalled."""
WORKING_TASK = "[[sleep: 7200]]"


@dataclass
class DaemonActivity:
    """The log lines of the daemon within a block."""

    lines: list[str] = field(default_factory=list)

    def lines_of(self, kind: str) -> list[str]:
        return [line.removeprefix(f"{kind} ") for line in self.lines if line.startswith(f"{kind} ")]

    @property
    def statements(self) -> list[str]:
        return self.lines_of("sql")

    @property
    def commits(self) -> list[str]:
        return [line for line in self.statements if line == "COMMIT"]

    @property
    def programs(self) -> list[str]:
        return self.lines_of("run")


class CountedWorld:
    """The daemons of one home, one after the other."""

    def __init__(self, box: Sandbox, log: Path) -> None:
        self.box, self._log = box, log

    def _lines(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    @contextmanager
    def count(self) -> Iterator[DaemonActivity]:
        """Yield a record of what the daemon does within the block and because of it."""
        before, done = len(self._lines()), DaemonActivity()
        yield done
        done.lines = self._wait_until_settled()[before:]

    def _wait_until_settled(self) -> list[str]:
        lines, since = self._lines(), monotonic()
        last_poll = since

        def quiet() -> bool:
            nonlocal lines, since, last_poll
            now, before, last_poll = self._lines(), last_poll, monotonic()
            if len(now) != len(lines) or last_poll - before > MAX_POLL_SECONDS or self._is_busy():
                lines, since = now, last_poll
            return last_poll - since > SETTLE_SECONDS

        self.box.wait_until(quiet, "the daemon to have nothing more to do")
        return lines

    def _is_busy(self) -> bool:
        """Return whether the daemon or a Git command of it is running or runnable."""
        for thread in Path(f"/proc/{self.box.daemon_pid()}/task").glob("*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] != "S":
                    return True
                for pid in (thread / "children").read_text().split():
                    if b"git" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                        return True
        return False

    def wait_for(self, text: str) -> None:
        """Wait until the daemon has logged a line that contains this text."""
        self.box.wait_until(lambda: any(text in line for line in self._lines()), text)

    def count_timers(self) -> int:
        """Return how often the daemon would wake in the next minute while idle."""
        with self.count() as done:
            os.kill(self.box.daemon_pid() or 0, signal.SIGUSR1)
            self.wait_for("timers ")
        return int(done.lines_of("timers")[-1])

    def spawn(self, name: str) -> str:
        """Create a session whose agent keeps working, and return its id."""
        self.box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": WORKING_TASK})
        self.box.wait_until(lambda: self.box.session(f"app-{name}")["status"] == "working", f"{name} at work")
        return f"app-{name}"


@contextmanager
def world(folder: Path, monkeypatch: pytest.MonkeyPatch, config: str | None = None) -> Iterator[CountedWorld]:
    """Yield a home with a repository, before a daemon runs."""
    log = folder / "done"

    def launch(argv: Sequence[str], env: Mapping[str, str]) -> sandbox.SandboxDaemon:
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
        box.home.create_folders()
        box.home.config.write_text("power: {preventIdleSleep: false}\n")  # its program is not installed everywhere
        yield CountedWorld(box, log)


def assert_at_most(allowed: int, actual: Sequence[str], what: str, remedy: str) -> None:
    """Assert that there are no more items than allowed; the message lists them and a remedy."""
    listed = "\n  ".join(actual)
    assert len(actual) <= allowed, f"{what}: {len(actual)}, and {allowed} were enough so far. {remedy}\n  {listed}"
