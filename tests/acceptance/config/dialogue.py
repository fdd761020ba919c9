"""Run a command on a terminal and type answers to its questions."""

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
class DialogueResult:
    """The output of a command as text, and its exit code."""

    text: str
    code: int


def run_on_terminal(
    box: Sandbox, *argv: str, answers: dict[str, str] | None = None, cwd: Path | None = None
) -> DialogueResult:
    """Run a command on a new terminal and type each answer once its question is shown, in order."""
    pending_answers = list((answers or {}).items())
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 200))
    command = [sys.executable, "-P", "-m", "agent_orchestrator", *argv]
    folder = cwd or box.repo
    output, deadline = b"", time.monotonic() + 120
    try:
        with subprocess.Popen(
            command,
            env=box.env,
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_acquire_terminal,
        ) as process:
            os.close(slave)
            with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
                while chunk := os.read(master, 1 << 16):
                    output += chunk
                    if pending_answers and pending_answers[0][0] in without_escapes(output):
                        os.write(master, pending_answers.pop(0)[1].encode())
                    assert time.monotonic() < deadline, output
    finally:
        os.close(master)
    assert not pending_answers, f"it never showed {pending_answers[0][0]!r}: {without_escapes(output)}"
    return DialogueResult(without_escapes(output), process.returncode)


def _acquire_terminal() -> None:
    """Make the terminal the process's controlling terminal, so that Ctrl-C reaches it."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def without_escapes(output: bytes) -> str:
    """Return terminal output as text, without escape sequences."""
    return (
        re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    )
