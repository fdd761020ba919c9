"""Run the real program in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys


def run_ao(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the real program in a separate process, and return its result."""
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False
    )
