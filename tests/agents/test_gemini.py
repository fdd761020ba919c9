"""The real Gemini CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven


class TestGemini(Driven):
    agent_name = "gemini"
