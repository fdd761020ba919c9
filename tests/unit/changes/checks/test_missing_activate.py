"""A missing virtual environment, noticed at its activation: reported as missing environment, not as failure of the base."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import Outcome


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox", "zsh", "ksh"])
@pytest.mark.parametrize("builtin", [".", "source"])
def test_an_activation_script_that_is_not_there_is_a_missing_environment(
    tmp_path: Path, shell: str, builtin: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    if builtin == "source" and shell in ("sh", "dash"):
        pytest.skip("has no source")
    argv = [shell, "sh"] if shell == "busybox" else [shell]
    command = f"{builtin} .venv/bin/activate && python -m pytest"
    done = subprocess.run([*argv, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    missing = missing_environment(done.stdout + done.stderr, Outcome(), exit_code=done.returncode)
    assert missing == ".venv/bin/activate not found", done.stderr


def test_a_missing_script_of_the_project_is_a_failure_of_its_content(tmp_path: Path) -> None:
    done = subprocess.run(["sh", "-c", ". ./helpers.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert missing_environment(done.stderr, Outcome(), exit_code=done.returncode) == ""
