"""The real goose CLI on the scripted model."""

from __future__ import annotations

import pytest

from tests.agents.suite import Driven, HeadlessDriven


class TestGoose(Driven):
    agent_name = "goose"


class TestGooseHeadless(HeadlessDriven):
    agent_name = "goose"

    @pytest.fixture
    def permissions(self) -> str:
        """Without a terminal there are no permission dialogs."""
        return "full"
