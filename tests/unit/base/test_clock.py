"""The daemon's clock: it never goes backwards and catches up with the machine's."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.base.clock import MAX_AHEAD_SECONDS, SystemClock
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Episode, SessionFacts
from agent_orchestrator.core.fold.sessions import reduce


def test_the_clock_follows_the_machine_and_continues_when_it_is_set_back() -> None:
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


def test_the_clock_resumes_no_earlier_than_the_last_recorded_time() -> None:
    clock = SystemClock(lambda: 100.0, lambda: 0.0)
    assert clock.resume(300.0) == 0.0
    assert clock() == 300.0
    assert clock.resume(200.0) == 0.0
    assert clock() == 300.0


def test_a_recorded_time_far_in_the_future_is_ignored() -> None:
    clock = SystemClock(lambda: 100.0, lambda: 0.0)
    assert clock.resume(100.0 + 86400.0) == 86400.0
    assert clock() == 100.0


def test_facts_from_a_wrong_clock_are_outdated_by_the_next_report() -> None:
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
    assert (back.limit_until, back.updated_at, back.last_sign_at) == (100.0, 100.0, 100.0)
    assert back.messages[0].at == back.messages[0].delivered_at == 100.0
    after = reduce(back, idle)
    assert after is not None and after.activity.state == "idle"
