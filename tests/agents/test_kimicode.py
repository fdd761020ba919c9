"""The real Kimi Code CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven


class TestKimiCode(Driven):
    agent_name = "kimicode"
