"""aider and goose against the contract of agent plugins, with stand-ins for their programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent
from agent_orchestrator.testing.contracts.agent import AgentContract


def make(name: str) -> Agent:
    agent = PluginRegistry().create("agent", name, {}, LocalHost())
    assert isinstance(agent, Agent)
    return agent


def with_program(folder: Path, name: str) -> Mapping[str, str]:
    """Return an environment with a program of this name on the PATH."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}


class TestAider(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return make("aider")

    @pytest.fixture
    def absent(self) -> Agent:
        return make("aider")

    @pytest.fixture
    def env(self, tmp_path: Path) -> Mapping[str, str]:
        return with_program(tmp_path, "aider")


class TestGoose(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return make("goose")

    @pytest.fixture
    def absent(self) -> Agent:
        return make("goose")

    @pytest.fixture
    def env(self, tmp_path: Path) -> Mapping[str, str]:
        return with_program(tmp_path, "goose")
