"""The real Copilot CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import TerminalAgentSuite


class TestCopilot(TerminalAgentSuite):
    agent_name = "copilot"
