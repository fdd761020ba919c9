"""`claude-code` against the contract of agent plugins, with a stand-in for its program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent
from agent_orchestrator.testing.contracts.agent import AgentContract


class TestClaudeCode(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        plugin = PluginRegistry().create("agent", "claude-code", {}, LocalHost())
        assert isinstance(plugin, Agent)
        return plugin

    @pytest.fixture
    def absent(self, agent: Agent) -> Agent:
        return agent

    @pytest.fixture
    def env(self, tmp_path: Path) -> Mapping[str, str]:
        program = tmp_path / "bin" / "claude"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        home = tmp_path / "home"
        home.mkdir()
        return {"HOME": str(home), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
