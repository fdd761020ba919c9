"""A command on a terminal: what it shows, and a person who answers when asked."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox

CTRL_C = "\x03"


@dataclass(frozen=True)
class Ended:
    """What a command showed, as lines of text, and its exit code."""

    text: str
    code: int


def talk(box: Sandbox, *argv: str, answers: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    """Run a command on a terminal of its own; each answer is typed once its text was shown, in order."""
    waiting = list((answers or {}).items())
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 200))
    command = [sys.executable, "-P", "-m", "agent_orchestrator", *argv]
    place = cwd or box.repo
    shown, until = b"", time.monotonic() + 120
    try:
        with subprocess.Popen(
            command,
            env=box.env,
            cwd=place,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,
        ) as process:
            os.close(slave)
            with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
                while piece := os.read(master, 1 << 16):
                    shown += piece
                    if waiting and waiting[0][0] in plain(shown):
                        os.write(master, waiting.pop(0)[1].encode())
                    assert time.monotonic() < until, shown
    finally:
        os.close(master)
    assert not waiting, f"it never showed {waiting[0][0]!r}: {plain(shown)}"
    return Ended(plain(shown), process.returncode)


def _take_terminal() -> None:
    """Make the terminal the process's own: Ctrl-C reaches it."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(shown: bytes) -> str:
    """What was shown, without what steers the terminal."""
    return (
        re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    )
