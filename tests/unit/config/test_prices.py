"""Prices of models, used where an agent does not report its cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.config.prices import Prices


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "prices.json"


def test_the_price_of_the_longest_matching_name_is_used(own: Path) -> None:
    prices = Prices(own)
    assert prices.cost_usd("gpt-5-mini-2025-08-07", 1_000_000, 0, 0, 0) == pytest.approx(0.25)
    assert prices.cost_usd("openai/gpt-5", 1_000_000, 0, 0, 0) == pytest.approx(1.25)
    assert prices.cost_usd("Claude-Sonnet-4-6", 1_000_000, 1_000_000, 1_000_000, 1_000_000) == pytest.approx(22.05)
    assert prices.cost_usd("somebody-s-own-model", 1, 1, 1, 1) is None


def test_the_users_own_file_has_precedence_and_is_reread_when_it_changes(own: Path) -> None:
    prices = Prices(own)
    assert prices.cost_usd("my-model", 1_000_000, 0, 0, 0) is None
    own.write_text(json.dumps({"models": {"my-model": {"input": 2, "output": 4}, "gpt-5": {"input": 9, "output": 9}}}))
    assert prices.cost_usd("my-model", 1_000_000, 1_000_000, 1_000_000, 0) == pytest.approx(8.0)
    assert prices.cost_usd("gpt-5", 1_000_000, 0, 0, 0) == pytest.approx(9.0)
    assert prices.cost_usd("gpt-4o", 1_000_000, 0, 0, 0) == pytest.approx(2.5)
    own.unlink()
    assert prices.cost_usd("gpt-5", 1_000_000, 0, 0, 0) == pytest.approx(1.25)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"models": {"m": {"input": 1}}}', '{"models": {"m": 3}}'])
def test_a_broken_file_is_ignored(own: Path, text: str) -> None:
    own.write_text(text)
    assert Prices(own).cost_usd("gpt-5", 1_000_000, 0, 0, 0) == pytest.approx(1.25)
