"""The watchdog of the event loop: what it counts and logs, and that it sleeps while the loop waits."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.base.loop_watchdog import LOG_INTERVAL_SECONDS, STALL_SECONDS, Watchdog


class Times:
    """A manual clock and CPU time of a thread."""

    def __init__(self) -> None:
        self.now, self.computed = 100.0, 5.0

    def turn(self, watchdog: Watchdog, seconds: float, own: float, *, sampled: bool = True) -> None:
        watchdog.begin_iteration()
        self.now += seconds
        self.computed += own
        if sampled:
            watchdog.check()
        watchdog.end_iteration()


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def watchdog(times: Times) -> Watchdog:
    return Watchdog(lambda: times.now, lambda: times.computed)


def test_long_turns_are_counted_as_work_or_as_waiting(times: Times, watchdog: Watchdog) -> None:
    times.turn(watchdog, STALL_SECONDS * 0.9, STALL_SECONDS * 0.9)
    times.turn(watchdog, 0.08, 0.07)
    times.turn(watchdog, 0.3, 0.01)
    stalls = watchdog.stalls
    assert (stalls.work_count, stalls.wait_count) == (1, 1)
    assert (round(stalls.seconds, 3), round(stalls.own_seconds, 3), round(stalls.longest, 3)) == (0.38, 0.08, 0.3)
    assert "1× by its own work and 1× by waiting" in stalls.summary_line()


def test_a_loop_without_stalls_is_summarized_as_such(watchdog: Watchdog) -> None:
    watchdog.end_iteration()
    assert watchdog.stalls.summary_line() == "never held up for more than 50 ms"


def test_a_stall_has_a_stack_only_if_it_was_sampled(times: Times, watchdog: Watchdog) -> None:
    times.turn(watchdog, 0.08, 0.08)
    times.turn(watchdog, 0.08, 0.08, sampled=False)
    sampled, unsampled = watchdog.stalls.recent
    assert any("Times.turn" in frame for frame in sampled.stack) and "test_loop_watchdog.py" in " ".join(sampled.stack)
    assert unsampled.stack == ()


def test_a_stall_at_one_location_is_logged_once_a_minute(times: Times, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            times.turn(watchdog, 0.08, 0.08)
        watchdog.check()
        assert not lines, "nothing is logged before the daemon serves"
        watchdog.is_logging = True
        watchdog.check()
        times.now += LOG_INTERVAL_SECONDS
        times.turn(watchdog, 0.2, 0.0)
        watchdog.check()
    assert [(line["log_level"], line["ms"], line["own_ms"], line.get("unsaid")) for line in lines] == [
        ("warning", 80, 80, None),
        ("info", 200, 0, 2),
    ]
    assert "Times.turn" in lines[0]["at"]


def blocks() -> None:
    threading.Event().wait(STALL_SECONDS * 4)


def computes() -> None:
    end = time.thread_time() + STALL_SECONDS * 6  # long enough to be sampled, on a busy machine too
    while time.thread_time() < end:
        pass


def test_stalls_of_a_real_loop_have_stacks_and_an_idle_loop_is_not_sampled() -> None:
    watchdog = Watchdog()
    checks = []

    async def work() -> None:
        blocks()
        await asyncio.sleep(0)
        computes()
        await asyncio.sleep(STALL_SECONDS * 4)
        checks.append(watchdog.checks)
        await asyncio.sleep(STALL_SECONDS * 8)
        checks.append(watchdog.checks)

    with asyncio.Runner(loop_factory=watchdog.create_loop) as runner:
        runner.run(work())
    watchdog.close()
    by = {stall.stack[0].split()[1]: stall for stall in watchdog.stalls.recent if stall.stack}
    assert by["computes"].is_own_work and by["computes"].own_seconds >= STALL_SECONDS * 2
    waited = next(
        stall for stall in watchdog.stalls.recent if "work" in " ".join(stall.stack) and not stall.is_own_work
    )
    assert waited.seconds >= STALL_SECONDS * 4 and any("blocks" in line for line in waited.stack)
    assert checks[1] - checks[0] <= 3, "the thread checks on although the loop only waits"
