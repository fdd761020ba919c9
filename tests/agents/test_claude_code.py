"""The real claude-code CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven, HeadlessDriven


class TestClaudeCode(Driven):
    agent_name = "claude-code"


class TestClaudeCodeHeadless(HeadlessDriven):
    agent_name = "claude-code"
