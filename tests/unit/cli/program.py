"""The real program, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def ao(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The real program in a process of its own."""
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False
    )
