"""The real aider CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import HeadlessAgentSuite, TerminalAgentSuite


class TestAider(TerminalAgentSuite):
    agent_name = "aider"


class TestAiderHeadless(HeadlessAgentSuite):
    agent_name = "aider"
