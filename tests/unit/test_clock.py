"""The daemon's time never goes back."""

from __future__ import annotations

from agent_orchestrator.clock import Clock


def test_it_is_the_machines_time_and_goes_on_when_that_is_put_back() -> None:
    wall, steady = 1000.0, 5.0
    clock = Clock(lambda: wall, lambda: steady)
    assert clock() == 1000.0
    wall, steady = 1003.0, 8.0
    assert clock() == 1003.0
    wall, steady = -2597.0, 10.0
    assert clock() == 1005.0
    wall, steady = -2590.0, 17.0
    assert clock() == 1012.0
    wall, steady = 5000.0, 18.0
    assert clock() == 5000.0


def test_it_is_never_before_what_is_known() -> None:
    clock = Clock(lambda: 100.0, lambda: 0.0)
    clock.not_before(300.0)
    assert clock() == 300.0
    clock.not_before(200.0)
    assert clock() == 300.0
