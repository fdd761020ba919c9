"""A few deaths at statements that touch the outside in every test run; `make crashes` dies at all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_daemon_killed_amid_a_statement_leaves_everything_done_once() -> None:
    # A process of its own: it forks its daemons, which one with threads should not.
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.statements", "--sample"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
