"""Fixtures: a real daemon, a real agent CLI and the scripted model for each test. `make test-agents` installs the CLIs first."""

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
from tests.agents.labs import LABS, AgentLab, write_files

INSTALLER = Path(__file__).parents[2] / "scripts" / "agents"


@pytest.fixture(scope="session")
def installed() -> dict[str, Any]:
    """The agent CLIs installed on this machine, as `scripts/agents --json` prints them."""
    process = subprocess.run([sys.executable, str(INSTALLER), "--json"], capture_output=True, text=True, check=True)
    agents: dict[str, Any] = json.loads(process.stdout)
    return agents


@pytest.fixture
def lab(agent: str, installed: dict[str, Any]) -> AgentLab:
    """The agent under test; the test is skipped if it is not installed."""
    if agent not in installed:
        pytest.skip(f"{agent} is not installed")
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
    tmp_path: Path, lab: AgentLab, model: ScriptedModel, installed: dict[str, Any], mode: str, permissions: str
) -> Iterator[Sandbox]:
    """A sandbox with a repository whose agent is the one under test, configured as by a user."""
    if not have_tmux():
        pytest.skip("tmux is not installed")
    installed_agent = installed[lab.agent]
    path = os.pathsep.join([*installed_agent["path"], os.environ["PATH"]])
    temporary = tmp_path / "tmp"  # Codex makes no helpers for its sandbox where a home is below the temporary folder
    temporary.mkdir()
    with Sandbox(tmp_path, "tmux", {**lab.env(model.url), "PATH": path, "TMPDIR": str(temporary)}) as box:
        for folder, source in installed_agent.get("seeds", {}).items():
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
