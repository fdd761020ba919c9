"""The basic tests on more real agent CLIs."""

from __future__ import annotations

import pytest

from tests.agents.suite import Basic


@pytest.mark.parametrize("agent", ["gemini", "copilot", "kimicode", "qwen"])
class TestOthers(Basic):
    """Each agent with the configuration of a user."""
