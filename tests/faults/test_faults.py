"""A few rounds of faults in every test run; `make test-faults` plays many."""

from __future__ import annotations

import pytest

from tests.faults import loop
from tests.faults.run import play


@pytest.mark.long
def test_a_few_rounds_violate_nothing() -> None:
    assert play(3, seed=7, say=False).violations == []


@pytest.mark.long
def test_the_demo_finishes_although_its_daemon_is_killed_repeatedly() -> None:
    assert loop.play(seed=3) == []
