"""The bugs that `tests/faults/mutations.py` and its likes plant still fit the source: what they replace is there, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import mutations
from tests.integration.rescue import mutations as rescue

PACKAGE = Path(__file__).parents[2] / "src" / "agent_orchestrator"
PLANTED = {**mutations.PLANTED, **rescue.PLANTED}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_fits(name: str) -> None:
    for file, before, _ in PLANTED[name].edits:
        assert before in (PACKAGE / file).read_text(), f"{file} has changed: write down anew what {name} replaces"
