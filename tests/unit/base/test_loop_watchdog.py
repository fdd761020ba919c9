"""The watchdog of the event loop: what it counts, what it says, and that it sleeps when nothing happens."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.base.loop_watchdog import LOG_INTERVAL_SECONDS, STALL_SECONDS, Watchdog


class Times:
    """A clock and a thread's CPU time, moved by hand."""

    def __init__(self) -> None:
        self.now, self.computed = 100.0, 5.0

    def turn(self, watchdog: Watchdog, seconds: float, own: float, *, looked_at: bool = True) -> None:
        watchdog.begin()
        self.now += seconds
        self.computed += own
        if looked_at:
            watchdog.look()
        watchdog.rest()


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def watchdog(times: Times) -> Watchdog:
    return Watchdog(lambda: times.now, lambda: times.computed)


def test_turns_that_take_long_are_counted_by_what_they_took_it_for(times: Times, watchdog: Watchdog) -> None:
    times.turn(watchdog, STALL_SECONDS * 0.9, STALL_SECONDS * 0.9)
    times.turn(watchdog, 0.08, 0.07)
    times.turn(watchdog, 0.3, 0.01)
    stalls = watchdog.stalls
    assert (stalls.work, stalls.waits) == (1, 1)
    assert (round(stalls.seconds, 3), round(stalls.own_seconds, 3), round(stalls.longest, 3)) == (0.38, 0.08, 0.3)
    assert "1× by its own work and 1× by waiting" in stalls.told()


def test_nothing_is_said_of_a_loop_that_was_never_held_up(watchdog: Watchdog) -> None:
    watchdog.rest()
    assert watchdog.stalls.told() == "never held up for more than 50 ms"


def test_what_was_running_is_known_if_somebody_looked_while_it_was(times: Times, watchdog: Watchdog) -> None:
    times.turn(watchdog, 0.08, 0.08)
    times.turn(watchdog, 0.08, 0.08, looked_at=False)
    seen, unseen = watchdog.stalls.recent
    assert any("Times.turn" in one for one in seen.stack) and "test_loop_watchdog.py" in " ".join(seen.stack)
    assert unseen.stack == ()


def test_the_log_tells_of_one_place_once_a_minute(times: Times, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            times.turn(watchdog, 0.08, 0.08)
        watchdog.look()
        assert not lines, "nothing is told of a daemon that does not serve yet"
        watchdog.telling = True
        watchdog.look()
        times.now += LOG_INTERVAL_SECONDS
        times.turn(watchdog, 0.2, 0.0)
        watchdog.look()
    assert [(line["log_level"], line["ms"], line["own_ms"], line.get("unsaid")) for line in lines] == [
        ("warning", 80, 80, None),
        ("info", 200, 0, 2),
    ]
    assert "Times.turn" in lines[0]["at"]


def blocks() -> None:
    threading.Event().wait(STALL_SECONDS * 4)


def computes() -> None:
    end = time.thread_time() + STALL_SECONDS * 6  # long enough to be looked at, on a busy machine too
    while time.thread_time() < end:
        pass


def test_a_real_loop_says_who_held_it_and_is_left_alone_while_it_waits() -> None:
    watchdog = Watchdog()
    looks = []

    async def work() -> None:
        blocks()
        await asyncio.sleep(0)
        computes()
        await asyncio.sleep(STALL_SECONDS * 4)
        looks.append(watchdog.looks)
        await asyncio.sleep(STALL_SECONDS * 8)
        looks.append(watchdog.looks)

    with asyncio.Runner(loop_factory=watchdog.loop) as runner:
        runner.run(work())
    watchdog.close()
    by = {one.stack[0].split()[1]: one for one in watchdog.stalls.recent if one.stack}
    assert by["computes"].by_work and by["computes"].own >= STALL_SECONDS * 2
    waited = next(one for one in watchdog.stalls.recent if "work" in " ".join(one.stack) and not one.by_work)
    assert waited.seconds >= STALL_SECONDS * 4 and any("blocks" in line for line in waited.stack)
    assert looks[1] - looks[0] <= 3, "the thread looks on although the loop only waits"
