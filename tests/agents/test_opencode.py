"""The real opencode CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven, HeadlessDriven


class TestOpencode(Driven):
    agent_name = "opencode"


class TestOpencodeHeadless(HeadlessDriven):
    agent_name = "opencode"
