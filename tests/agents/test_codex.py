"""The real codex CLI on the scripted model."""

from __future__ import annotations

from tests.agents.suite import Driven, HeadlessDriven


class TestCodex(Driven):
    agent_name = "codex"


class TestCodexHeadless(HeadlessDriven):
    agent_name = "codex"
