"""How often a second the list of sessions is served, the daemon kept to one core."""

from __future__ import annotations

from collections.abc import Iterator

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import Line, one_core, rate
from benchmarks.fleet import Changes
from benchmarks.measure import Figure, Result, quartiles, share

ASK = b"GET /api/sessions?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECONDS = 1.5
ROUNDS = 3
A_SECOND = 10.0
JUDGED = 50


def serving(box: Sandbox, size: int) -> Iterator[Result]:
    """While nothing changes, and while agents report steps."""
    pid = box.daemon_pid()
    assert pid is not None
    place = str(box.home.socket("daemon.sock"))
    with Line.unix(box) as line:
        length = len(line.send(ASK)[1])
    with one_core(pid):
        rounds = [rate(pid, place, [ASK], SECONDS) for _ in range(ROUNDS)]
        with Changes(box, [str(one["id"]) for one in box.sessions()[:JUDGED]]).meanwhile(A_SECOND):
            moving = rate(pid, place, [ASK], SECONDS).a_second
    still, each = [one.a_second for one in rounds], min(one.each for one in rounds)
    note = (
        f"{each * 1e6:.0f} µs of CPU and {length / 1e3:.0f} kB each; "
        f"{moving:,.0f} a second while {A_SECOND:g} changes a second are made"
    )
    must, stretch = (1500.0, 5000.0) if size == JUDGED else (150.0, 500.0)
    yield Figure(
        f"`GET /api/sessions`, {size} sessions, one core",
        share(still, 0.5),
        must,
        "a second",
        at_least=True,
        note=note,
        stretch=stretch,
        spread=quartiles(still),
    )
