"""The real claude-code CLI on the scripted model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, Lab
from tests.agents.suite import Basic, Driven, HeadlessDriven

TOKEN = "sk-ant-oat01-scripted-token-of-no-value-at-all"


class TestClaudeCode(Driven):
    agent_name = "claude-code"


class TestClaudeCodeHeadless(HeadlessDriven):
    agent_name = "claude-code"


class TestClaudeCodeWithSubscription(Basic):
    """With a login instead of an API key: only then does it say when a usage limit ends."""

    agent_name = "claude-code"

    @pytest.fixture
    def lab(self, agent: str, installed: dict[str, object]) -> Lab:
        if agent not in installed:
            pytest.skip(f"{agent} cannot be had here")
        known = LABS[agent]

        def env(url: str) -> dict[str, str]:
            variables = {name: value for name, value in known.env(url).items() if name != "ANTHROPIC_API_KEY"}
            return {**variables, "CLAUDE_CODE_OAUTH_TOKEN": TOKEN}

        return replace(known, env=env)

    def test_a_usage_limit_is_shown_with_its_reset(self, rbox: Sandbox, lab: Lab) -> None:
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        rbox.ao("send", "s", "more [[limit: 3600]]")
        rbox.until(lambda: self.look(rbox, "s")["status"] == "limited", "the limit", 40)
        told = next(one for one in rbox.events("s") if one["type"] == "agent-limit")
        assert told["data"]["resetsAt"]
