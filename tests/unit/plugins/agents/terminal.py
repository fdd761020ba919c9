"""A program in a real terminal, for tests that look at what it prints, reports and does with keys."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TIMEOUT = 60.0


class ChildTerminal:
    """A child on a pseudo-terminal; every wait is bounded."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self.output = b""
        self.status: int | None = None
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execve(argv[0], list(argv), dict(env))
            finally:
                os._exit(127)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def paste(self, text: str) -> None:
        """Paste as terminals do, then press Enter."""
        self.type("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")
        self.type("\r")

    def wait_until(self, what: Callable[[], object], name: str = "") -> None:
        """Wait until something holds, reading what the program prints meanwhile."""
        end = time.monotonic() + TIMEOUT
        while not what():
            assert time.monotonic() < end, f"waited in vain for {name or what}; it printed {self.text[-2000:]!r}"
            self._read()

    def wait_for_text(self, text: str) -> None:
        """Wait until this was printed."""
        self.wait_until(lambda: text in self.text, repr(text))

    def wait_for_end(self) -> int:
        """Wait for its end; the exit code, or minus the signal."""

        def reaped() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            return bool(pid)

        self.wait_until(reaped, "its end")
        assert self.status is not None
        return self.status

    @property
    def text(self) -> str:
        """What was printed so far."""
        return self.output.decode(errors="replace").replace("\r\n", "\n")

    def close(self) -> None:
        """End it if it still runs."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)

    def _read(self) -> None:
        try:
            if select.select([self._master], [], [], 0.01)[0]:
                self.output += os.read(self._master, 65536)
        except OSError:  # the other side is closed
            time.sleep(0.01)


@contextlib.contextmanager
def terminal(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Iterator[ChildTerminal]:
    """Run a program in a terminal for as long as the block takes."""
    running = ChildTerminal(argv, cwd, env)
    try:
        yield running
    finally:
        running.close()


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete JSON lines of a file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
