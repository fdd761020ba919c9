"""One daemon with a growing number of live sessions, up to 500: the costs at each number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.board.viewers import measure_viewers
from benchmarks.daemon.commands import CommandTimes
from benchmarks.daemon.idle import IdleCost
from benchmarks.daemon.requests import measure_requests
from benchmarks.daemon.restart import Restarts
from benchmarks.fleet import (
    CONFIG,
    PULL_REQUEST_TASK,
    SIZE,
    ProgressReports,
    request_sessions,
    wait_for_status,
    wait_until_at_rest,
)
from benchmarks.measure import Result
from benchmarks.sessions.messages import measure_messages

PULL_REQUESTS = 5
"""Sessions with a pull request, for the comments."""
IDLE_SIZES = (0, 20, 50, 200)
COMMAND_SIZES = (0, 50, 500)
REQUEST_SIZES = (50, 500)
RESTART_SIZES = (200, 500)
"""Sizes at which the daemon is restarted; the idle costs are measured before."""
SIZES = sorted({*IDLE_SIZES, *COMMAND_SIZES, *REQUEST_SIZES, *RESTART_SIZES})


def measure_scale(folder: Path) -> Iterator[Result]:
    """At each size, measure commands, idle costs, requests and restarts, before sessions are added."""
    log = folder / "heard.jsonl"
    with Sandbox(folder / "box", "tmux", env={"AO_DEMO_LOG": str(log)}) as box:
        box.repository(config=CONFIG)
        box.start()
        fleet, idle, commands, restarts = GrowingFleet(box), IdleCost(), CommandTimes(box), Restarts(box)
        restarts.measure(0)
        idle.set_process(box.daemon_pid() or 0)
        yield from commands.versions()
        for size in SIZES:
            fleet.grow(size)
            if size in COMMAND_SIZES:
                yield from commands.measure(size, size == SIZE)
            if size in IDLE_SIZES:
                idle.measure(size)
            if size == SIZE:
                yield from measure_messages(box, folder, log, fleet.names[:PULL_REQUESTS])
                yield from measure_viewers(box, ProgressReports(box, [f"app-{name}" for name in fleet.names]))
            if size in REQUEST_SIZES:
                yield from measure_requests(box, size)
            if size in RESTART_SIZES:
                restarts.measure(size)
        yield from commands.growth()
        yield from idle.results()
        yield from restarts.results()


class GrowingFleet:
    """The live sessions."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.names: list[str] = []

    def grow(self, size: int) -> None:
        """Add sessions, all at once, until there are so many idle ones."""
        fresh = [f"n{number:03}" for number in range(len(self.names), size)]
        if not fresh:
            return
        if not self.names:
            request_sessions(self.box, fresh[:PULL_REQUESTS], PULL_REQUEST_TASK)
            wait_for_status(self.box, PULL_REQUESTS, "review_pending")
        request_sessions(self.box, fresh[PULL_REQUESTS:] if not self.names else fresh)
        wait_for_status(self.box, size - PULL_REQUESTS)
        self.names += fresh
        wait_until_at_rest(self.box)
