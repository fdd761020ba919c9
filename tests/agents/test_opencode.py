"""The real opencode CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import HeadlessAgentSuite, TerminalAgentSuite


class TestOpencode(TerminalAgentSuite):
    agent_name = "opencode"


class TestOpencodeHeadless(HeadlessAgentSuite):
    agent_name = "opencode"
