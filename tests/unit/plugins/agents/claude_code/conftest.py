"""Claude Code, what it is started with, and a run of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.protocols import AgentContext
from tests.unit.plugins.agents.claude_code.claude import SimulatedClaude
from tests.unit.plugins.agents.claude_code.launch_files import KEY


@pytest.fixture
def agent() -> ClaudeCode:
    return ClaudeCode({}, LocalHost())


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in ("workspace", "private", "home", "bin"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text("#!/bin/sh\necho '2.1.325 (Claude Code)'\n")
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
        task_file=tmp_path / "private" / "task.md",
        private=tmp_path / "private",
        repo=tmp_path / "repo",
        env={"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin"), "ANTHROPIC_API_KEY": KEY},
    )


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[SimulatedClaude]:
    claude = SimulatedClaude(tmp_path)
    assert await claude.read_reports() == []
    yield claude
    await claude.close()
