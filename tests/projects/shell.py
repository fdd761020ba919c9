"""Runs a project's commands as its developers would, each in a new shell, with a time limit and captured output."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

TIME_LIMIT = 900.0


@dataclasses.dataclass(frozen=True, slots=True)
class ShellResult:
    """The exit code, output and duration of a command."""

    code: int
    output: str
    seconds: float


def run_command(command: str, folder: Path, env: Mapping[str, str], limit: float = TIME_LIMIT) -> ShellResult:
    """Run the command; after the limit, kill it and its children and return the code 124."""
    began = time.monotonic()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = 124
    return ShellResult(code, output.decode(errors="replace"), time.monotonic() - began)
