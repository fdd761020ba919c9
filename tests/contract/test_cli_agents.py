"""The plugins of agent CLIs against the contract of agent plugins, with stand-ins for the CLIs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent
from agent_orchestrator.testing.contracts.agent import AgentContract

PROGRAMS = {
    "amp": "amp",
    "auggie": "auggie",
    "copilot": "copilot",
    "crush": "crush",
    "cursor": "cursor-agent",
    "droid": "droid",
    "gemini": "gemini",
    "kimicode": "kimi",
    "opencode": "opencode",
    "qwen": "qwen",
}


@pytest.mark.parametrize("name", PROGRAMS)
class TestCli(AgentContract):
    @pytest.fixture
    def agent(self, name: str) -> Agent:
        plugin = PluginRegistry().create("agent", name, {}, LocalHost())
        assert isinstance(plugin, Agent)
        return plugin

    @pytest.fixture
    def absent(self, agent: Agent) -> Agent:
        return agent

    @pytest.fixture
    def env(self, name: str, tmp_path: Path) -> Mapping[str, str]:
        program = tmp_path / "bin" / PROGRAMS[name]
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 1.2.3\n")
        program.chmod(0o755)
        home = tmp_path / "home"
        home.mkdir()
        return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
