"""What an agent is told of how to work here."""

from __future__ import annotations

import pytest

from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.sessions.agents.prompts import system_prompt
from tests.unit.core.drawn import created


@pytest.mark.parametrize(("scm", "told"), [("local", False), ("github", True), ("gitlab", True)])
def test_who_has_a_forge_is_spared_asking_it(scm: str, told: bool) -> None:
    facts = reduce(None, created(scm=scm, rules="Be kind."))
    assert facts is not None
    prompt = system_prompt(facts, ("make test",))
    assert ("no `gh`, no `glab`" in prompt) == told
    assert "`make test`" in prompt and prompt.endswith("Be kind.") and "feature/x" in prompt
