"""Runs a project's commands as its developers would, each in a shell of its own, with a bound and the output kept."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

LIMIT = 900.0


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    output: str
    seconds: float


def shell(command: str, folder: Path, env: Mapping[str, str], limit: float = LIMIT) -> Done:
    """Run it; after the limit it and all it started is ended, and the code is 124."""
    began = time.monotonic()
    running = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=limit)
        code = running.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        output, _ = running.communicate()
        code = 124
    return Done(code, output.decode(errors="replace"), time.monotonic() - began)
