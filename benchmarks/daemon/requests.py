"""Requests for the list of sessions per second, with the daemon pinned to one core."""

from __future__ import annotations

from collections.abc import Iterator

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import HTTPConnection, measure_request_rate, pin_to_one_core
from benchmarks.fleet import ProgressReports
from benchmarks.measure import Figure, Result, quantile, quartiles

REQUEST = b"GET /api/sessions?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECONDS = 1.5
ROUNDS = 3
CHANGES_PER_SECOND = 10.0
CHANGED_SESSIONS = 50


def measure_requests(box: Sandbox, size: int) -> Iterator[Result]:
    """Measure without changes, and while agents report progress."""
    pid = box.daemon_pid()
    assert pid is not None
    address = str(box.home.socket("daemon.sock"))
    with HTTPConnection.unix(box) as line:
        length = len(line.send(REQUEST)[1])
    with pin_to_one_core(pid):
        rounds = [measure_request_rate(pid, address, [REQUEST], SECONDS) for _ in range(ROUNDS)]
        with ProgressReports(
            box, [str(result["id"]) for result in box.sessions()[:CHANGED_SESSIONS]]
        ).write_in_background(CHANGES_PER_SECOND):
            rate_with_changes = measure_request_rate(pid, address, [REQUEST], SECONDS).per_second
    rates, cpu = [result.per_second for result in rounds], min(result.cpu_seconds_each for result in rounds)
    note = (
        f"{cpu * 1e6:.0f} µs of CPU and {length / 1e3:.0f} kB each; "
        f"{rate_with_changes:,.0f} a second while {CHANGES_PER_SECOND:g} changes a second are made"
    )
    must, stretch = (1500.0, 5000.0) if size == CHANGED_SESSIONS else (150.0, 500.0)
    yield Figure(
        f"`GET /api/sessions`, {size} sessions, one core",
        quantile(rates, 0.5),
        must,
        "a second",
        at_least=True,
        note=note,
        stretch=stretch,
        spread=quartiles(rates),
    )
