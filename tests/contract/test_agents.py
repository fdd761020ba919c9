"""The built-in agents against the contract of agent plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent
from agent_orchestrator.testing.contracts.agent import AgentContract


def make(name: str, config: Mapping[str, Any]) -> Agent:
    agent = PluginRegistry().create("agent", name, config, LocalHost())
    assert isinstance(agent, Agent)
    return agent


class TestDemo(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return make("demo", {})


COMMANDS: dict[str, Mapping[str, Any]] = {
    "argument": {"command": ["sh", "--task", "{{prompt}}", "--worktree", "{{workspacePath}}", "--branch={{branch}}"]},
    "positional": {"command": ["sh", "{{ prompt }}"], "resume": ["sh", "--continue"]},
    "appended": {"command": "sh -x", "prompt": "argument"},
    "inside": {"command": ["sh", "-c", "exec agent <<X\n{{prompt}}\nX"]},
    "file": {"command": ["sh", "--file", "{{taskFile}}"]},
    "stdin": {"command": ["sh"], "prompt": "stdin"},
    "paste": {"command": ["sh"], "screen": {"ready": "^> $"}},
}


class TestCommand(AgentContract):
    @pytest.fixture(params=list(COMMANDS.values()), ids=list(COMMANDS))
    def agent(self, request: pytest.FixtureRequest) -> Agent:
        return make("command", request.param)

    @pytest.fixture
    def absent(self) -> Agent:
        return make("command", {"command": ["no-such-agent", "{{prompt}}"]})
