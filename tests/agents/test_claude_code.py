"""The real claude-code CLI on the scripted model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, AgentLab
from tests.agents.suite import AgentSuite, HeadlessAgentSuite, TerminalAgentSuite

TOKEN = "sk-ant-oat01-scripted-token-of-no-value-at-all"


class TestClaudeCode(TerminalAgentSuite):
    agent_name = "claude-code"


class TestClaudeCodeHeadless(HeadlessAgentSuite):
    agent_name = "claude-code"


class TestClaudeCodeWithSubscription(AgentSuite):
    """With a login instead of an API key: only then does Claude Code report when a usage limit ends."""

    agent_name = "claude-code"

    @pytest.fixture
    def lab(self, agent: str, installed: dict[str, object]) -> AgentLab:
        if agent not in installed:
            pytest.skip(f"{agent} is not installed")
        api_key_lab = LABS[agent]

        def env(url: str) -> dict[str, str]:
            variables = {name: value for name, value in api_key_lab.env(url).items() if name != "ANTHROPIC_API_KEY"}
            return {**variables, "CLAUDE_CODE_OAUTH_TOKEN": TOKEN}

        return replace(api_key_lab, env=env)

    def test_a_usage_limit_is_shown_with_its_reset(self, rbox: Sandbox, lab: AgentLab) -> None:
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        rbox.ao("send", "s", "more [[limit: 3600]]")
        rbox.wait_until(lambda: self.session(rbox, "s")["status"] == "limited", "the limit", 40)
        limit_event = next(event for event in rbox.events("s") if event["type"] == "agent-limit")
        assert limit_event["data"]["resetsAt"]
