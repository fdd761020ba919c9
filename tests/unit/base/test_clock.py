"""The daemon's time never goes back, and is never far from the machine's for good."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.base.clock import MAX_AHEAD_SECONDS, SystemClock
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import Episode


def test_it_is_the_machines_time_and_goes_on_when_that_is_put_back() -> None:
    wall, steady = 1000.0, 5.0
    clock = SystemClock(lambda: wall, lambda: steady)
    assert clock() == 1000.0
    wall, steady = 1003.0, 8.0
    assert clock() == 1003.0
    wall, steady = -2597.0, 10.0
    assert 1003.0 < clock() < 1005.0
    wall, steady = 5000.0, 18.0
    assert clock() == 5000.0


def test_the_machines_clock_catches_up() -> None:
    wall, steady = 1000.0, 0.0
    clock = SystemClock(lambda: wall, lambda: steady)
    clock.resume(1000.0 + MAX_AHEAD_SECONDS)
    before = clock()
    for _ in range(20):
        wall, steady = wall + MAX_AHEAD_SECONDS, steady + MAX_AHEAD_SECONDS
        now = clock()
        assert now > before
        before = now
    assert now == wall


def test_it_is_never_before_what_is_known() -> None:
    clock = SystemClock(lambda: 100.0, lambda: 0.0)
    assert clock.resume(300.0) == 0.0
    assert clock() == 300.0
    assert clock.resume(200.0) == 0.0
    assert clock() == 300.0


def test_a_clock_that_was_grossly_wrong_is_not_gone_on_from() -> None:
    clock = SystemClock(lambda: 100.0, lambda: 0.0)
    assert clock.resume(100.0 + 86400.0) == 86400.0
    assert clock() == 100.0


def test_what_was_known_by_a_wrong_clock_is_outdated_by_the_next_word() -> None:
    year = 365 * 86400.0
    facts: SessionFacts | None = None
    for seq, (body, time, generation) in enumerate(
        (
            (
                e.SessionCreated(
                    "T1", "a", "", "", "demo", "process", "worktree", "feature/a", "main", "/repo", "/place"
                ),
                year,
                0,
            ),
            (e.AgentLaunched({}), year, 1),
            (e.MessageQueued("m", "hello", "person"), year + 1, 0),
            (e.MessageDelivered("m"), year + 2, 1),
            (e.AgentActivity("active"), year + 3, 1),
        ),
        1,
    ):
        facts = reduce(facts, Event(body, time, "spool", f"k{seq}", "app", "app-1", generation, seq))
    assert facts is not None
    facts = replace(facts, limit_until=year + 60, episodes={"ci-failed": Episode(year)})
    idle = Event(e.AgentActivity("idle"), 101.0, "spool", "k7", "app", "app-1", 1, 7)
    stuck = reduce(facts, idle)
    assert stuck is not None and stuck.activity.state == "active"
    back = reduce(facts, Event(e.ClockSetBack(year), 100.0, "daemon", "k6", "app", "app-1", seq=6))
    assert back is not None
    assert (back.limit_until, back.updated_at, back.heard_at) == (100.0, 100.0, 100.0)
    assert back.messages[0].at == back.messages[0].delivered_at == 100.0
    after = reduce(back, idle)
    assert after is not None and after.activity.state == "idle"
