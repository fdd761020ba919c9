"""A few rounds in every test run; `make test-faults` plays many."""

from __future__ import annotations

from tests.faults import loop
from tests.faults.run import play


def test_a_few_rounds_violate_nothing() -> None:
    assert play(3, seed=7, say=False).violations == []


def test_the_whole_loop_survives_a_daemon_that_dies_again_and_again() -> None:
    assert loop.play(seed=3) == []
