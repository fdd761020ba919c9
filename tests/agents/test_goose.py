"""The real goose CLI on the scripted model."""

from __future__ import annotations

import pytest

from tests.agents.suite import HeadlessAgentSuite, TerminalAgentSuite


class TestGoose(TerminalAgentSuite):
    agent_name = "goose"


class TestGooseHeadless(HeadlessAgentSuite):
    agent_name = "goose"

    @pytest.fixture
    def permissions(self) -> str:
        """Without a terminal there are no permission dialogs."""
        return "full"
