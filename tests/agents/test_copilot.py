"""The real Copilot CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven


class TestCopilot(Driven):
    agent_name = "copilot"
