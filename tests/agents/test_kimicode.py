"""The real Kimi Code CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import TerminalAgentSuite


class TestKimiCode(TerminalAgentSuite):
    agent_name = "kimicode"
