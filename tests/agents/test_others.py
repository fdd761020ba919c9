"""The basic tests on more real agent CLIs."""

from __future__ import annotations

import pytest

from tests.agents.suite import AgentSuite


@pytest.mark.parametrize("agent", ["gemini", "copilot", "kimicode", "qwen"])
class TestOthers(AgentSuite):
    """Each agent with the configuration of a user."""
