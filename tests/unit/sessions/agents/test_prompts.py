"""The system prompt of an agent."""

from __future__ import annotations

import pytest

from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.sessions.agents.prompts import system_prompt
from tests.unit.core.event_strategies import created


@pytest.mark.parametrize(("scm", "expected"), [("local", False), ("github", True), ("gitlab", True)])
def test_the_prompt_of_a_forge_project_forbids_the_forges_cli(scm: str, expected: bool) -> None:
    facts = reduce(None, created(scm=scm, rules="Be kind."))
    assert facts is not None
    prompt = system_prompt(facts, ("make test",))
    assert ("no `gh`, no `glab`" in prompt) == expected
    assert "`make test`" in prompt and prompt.endswith("Be kind.") and "feature/x" in prompt
