"""Shells' messages about missing programs and environments."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import Outcome


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        (". .venv/bin/activate && python -m pytest", ".venv/bin/activate not found"),
        ("no-such-program --now", "no-such-program"),
        ("exec no-such-program", "no-such-program"),
        ("true; .venv/bin/python -m pytest", "not found"),
        ("printf 'no-such-program\\n' > run; sh ./run || exit 2", "command no-such-program not found"),
        ("test a b c", ""),
        ("cd nowhere", ""),
        ("false", ""),
    ],
)
@pytest.mark.parametrize("shell", ["/bin/sh", "bash"])
def test_a_missing_program_is_recognized_in_a_shells_message(
    shell: str, command: str, lacks: str, tmp_path: Path
) -> None:
    done = subprocess.run([shell, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    missing = missing_environment(done.stderr, Outcome(), exit_code=done.returncode)
    assert lacks in missing and bool(lacks) == bool(missing), done.stderr
