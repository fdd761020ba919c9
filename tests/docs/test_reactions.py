"""The page on reactions is complete."""

from __future__ import annotations

import re

import pytest

from agent_orchestrator.config.model import Reaction, keys_of
from agent_orchestrator.core.rules.default_rules import TRIGGERS
from agent_orchestrator.core.rules.model import ACTIONS, MERGE_STRATEGIES, PRIORITIES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reactions.md").read_text()


def named(heading: str) -> set[str]:
    """Return the code words in the first column of a section's table."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([\w-]+)`", cell)}


def test_every_trigger_action_and_field_is_explained() -> None:
    assert named("Triggers") == set(TRIGGERS)
    assert named("Actions") == {*ACTIONS, "auto-merge"}
    assert named("Fields") == set(keys_of(Reaction))


@pytest.mark.parametrize("word", [*PRIORITIES, *MERGE_STRATEGIES])
def test_every_value_is_named(word: str) -> None:
    assert f"`{word}`" in PAGE
