"""A real daemon, a real agent CLI and the scripted model, for each test. `make test-agents` installs the CLIs before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.model import ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.agents.labs import LABS, Lab, write_files

INSTALLER = Path(__file__).parents[2] / "scripts" / "agents"


@pytest.fixture(scope="session")
def installed() -> dict[str, Any]:
    """The agent CLIs that are on this machine, as the installer knows them."""
    done = subprocess.run([sys.executable, str(INSTALLER), "--json"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def lab(agent: str, installed: dict[str, Any]) -> Lab:
    """The agent under test; skipped by name where it cannot be had."""
    if agent not in installed:
        pytest.skip(f"{agent} cannot be had here")
    return LABS[agent]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture
def mode() -> str:
    return "tui"


@pytest.fixture
def permissions() -> str:
    return "auto-edit"


@pytest.fixture
def rbox(
    tmp_path: Path, lab: Lab, model: ScriptedModel, installed: dict[str, Any], mode: str, permissions: str
) -> Iterator[Sandbox]:
    """A repository whose agent is the one under test, as a user would have it."""
    if not have_tmux():
        pytest.skip("tmux is not installed")
    known = installed[lab.agent]
    path = os.pathsep.join([*known["path"], os.environ["PATH"]])
    temporary = tmp_path / "tmp"  # Codex makes no helpers for its sandbox where a home is below the temporary folder
    temporary.mkdir()
    with Sandbox(tmp_path, "tmux", {**lab.env(model.url), "PATH": path, "TMPDIR": str(temporary)}) as box:
        for folder, source in known.get("seeds", {}).items():
            shutil.copytree(source, box.user_home / folder, symlinks=True)
        write_files(box.user_home, lab.files(model.url))
        agent_config = {"permissions": permissions, "mode": mode, **({"model": lab.model} if lab.model else {})}
        settings = {
            "defaults": {"agent": lab.agent, "runtime": "tmux"},
            "projects": {
                "app": {
                    "path": ".",
                    "agentConfig": {**agent_config, **lab.options},
                    **({"sandbox": "none"} if permissions == "full" else {}),
                }
            },
        }
        box.repository(config=json.dumps(settings))
        box.start()
        yield box
