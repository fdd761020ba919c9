"""A few rounds in every test run; `make faults` plays many."""

from __future__ import annotations

from tests.faults.run import play


def test_a_few_rounds_violate_nothing() -> None:
    assert play(4, seed=7, say=False) == []
