"""The real aider CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven, HeadlessDriven


class TestAider(Driven):
    agent_name = "aider"


class TestAiderHeadless(HeadlessDriven):
    agent_name = "aider"
