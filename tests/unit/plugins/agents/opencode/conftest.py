"""OpenCode, what it is started with, and a server that stands in for its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.protocols import (
    AgentContext,
)
from tests.unit.plugins.agents.opencode.server import SimulatedOpenCode, run_server


@pytest.fixture
def agent() -> OpenCode:
    return OpenCode({}, LocalHost())


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in ("workspace", "private", "bin"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "opencode"
    program.write_text("#!/bin/sh\necho 1.18.33\n")
    program.chmod(0o755)
    return AgentContext(
        session="app-fix",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/fix",
        base="main",
        prompt="Fix it\n\nBe kind.",
        task="Fix it",
        system="Be kind.",
        commands=("make test", "ruff check . && mypy"),
        task_file=tmp_path / "private" / "task.md",
        private=tmp_path / "private",
        env={"PATH": f"{tmp_path}/bin:/bin:/usr/bin", "AO_SPOOL": "spool.1.jsonl"},
    )


@pytest.fixture
async def server() -> AsyncIterator[SimulatedOpenCode]:
    async with run_server() as standing_in:
        yield standing_in
