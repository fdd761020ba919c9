"""Without the package `cluster`, everything that does not concern other machines works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agent_orchestrator

SOURCE = Path(agent_orchestrator.__file__).parent
IMPORT_ALL = """\
import pkgutil, importlib, agent_orchestrator
names = [m.name for m in pkgutil.walk_packages(agent_orchestrator.__path__, "agent_orchestrator.")]
skipped = {name for name in names if name.endswith("__main__") or ".testing." in name}
for name in set(names) - skipped - {"agent_orchestrator.server.routes.git", "agent_orchestrator.views.tracing"}:
    importlib.import_module(name)
print(agent_orchestrator.__path__[0])
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source without the package `cluster`."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "cluster", "dist")
    shutil.copytree(SOURCE, folder / "agent_orchestrator", ignore=ignored)
    assert not (folder / "agent_orchestrator/cluster").exists()
    return folder


def run(copy: Path, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy with a private home."""
    home = {"HOME": str(folder), "AO_HOME": str(folder / "ao"), "SHELL": "/bin/sh", "NO_COLOR": "1"}
    env = {**os.environ, **home, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.long
def test_every_other_module_can_be_imported(copy: Path, tmp_path: Path) -> None:
    imported = run(copy, tmp_path, "-c", IMPORT_ALL)
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.strip() == str(copy / "agent_orchestrator")


def test_a_daemon_runs_a_session_and_says_that_there_are_no_nodes(copy: Path, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = n\n\temail = n@example.invalid\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(
        ["git", "commit", "-q", "--allow-empty", "-m", "start"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    ao = ("-m", "agent_orchestrator")
    try:
        started = run(copy, tmp_path, *ao, "new", "--agent", "demo", "--runtime", "process", "say hello")
        assert started.returncode == 0, started.stderr
        assert "working" in started.stdout
        assert run(copy, tmp_path, *ao, "nodes").stdout.startswith("No nodes.")
        refused = run(copy, tmp_path, *ao, "new", "--runtime", "ray", "say hello again")
        assert (refused.returncode, refused.stderr) == (3, "ao: there is no cluster: see the nodes: ao nodes\n")
        assert run(copy, tmp_path, *ao, "doctor").returncode in (0, 1)
    finally:
        assert run(copy, tmp_path, *ao, "shutdown", "--sessions").returncode == 0
