"""The bugs planted by `tests/faults/mutations.py` and others still match the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import mutations
from tests.integration.rescue import mutations as rescue

PACKAGE = Path(__file__).parents[2] / "src" / "agent_orchestrator"
PLANTED = {**mutations.PLANTED_BUGS, **rescue.PLANTED_BUGS}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_matches_the_source(name: str) -> None:
    for file, before, _ in PLANTED[name].edits:
        assert before in (PACKAGE / file).read_text(), f"{file} has changed: update what {name} replaces"
