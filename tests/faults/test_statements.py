"""Kill the daemon at a few statements with side effects in every test run; `make crashes` does it at all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_daemon_killed_at_a_statement_does_everything_once() -> None:
    # A separate process: it forks its daemons, which a process with threads should not.
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.statements", "--sample"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
