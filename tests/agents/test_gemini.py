"""The real Gemini CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import TerminalAgentSuite


class TestGemini(TerminalAgentSuite):
    agent_name = "gemini"
