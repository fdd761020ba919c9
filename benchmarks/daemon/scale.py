"""One daemon to which sessions are added until there are five hundred, all live: what each number of them costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.board.viewers import following
from benchmarks.daemon.commands import Waits
from benchmarks.daemon.idle import Idle
from benchmarks.daemon.requests import serving
from benchmarks.daemon.restart import Restarts
from benchmarks.fleet import CONFIG, OFFERS, SIZE, Changes, asked_for, at_rest, waiting
from benchmarks.measure import Result
from benchmarks.sessions.messages import delivering

REVIEWED = 5
"""Sessions with a pull request: they are commented upon."""
IDLE = (0, 20, 50, 200)
ASKED = (0, 50, 500)
SERVED = (50, 500)
STARTED = (200, 500)
"""Sizes at which it is started again, after the first: what is measured of an idle one is measured before."""
SIZES = sorted({*IDLE, *ASKED, *SERVED, *STARTED})


def scaling(folder: Path) -> Iterator[Result]:
    """At each size it is asked, left alone, and killed and started again, before the next are added."""
    log = folder / "heard.jsonl"
    with Sandbox(folder / "box", "tmux", env={"AO_DEMO_LOG": str(log)}) as box:
        box.repository(config=CONFIG)
        box.start()
        fleet, idle, waits, restarts = Fleet(box), Idle(), Waits(box), Restarts(box)
        restarts.look(0)
        idle.started_as(box.daemon_pid() or 0)
        yield from waits.versions()
        for size in SIZES:
            fleet.grow(size)
            if size in ASKED:
                yield from waits.look(size, size == SIZE)
            if size in IDLE:
                idle.look(size)
            if size == SIZE:
                yield from delivering(box, folder, log, fleet.names[:REVIEWED])
                yield from following(box, Changes(box, [f"app-{name}" for name in fleet.names]))
            if size in SERVED:
                yield from serving(box, size)
            if size in STARTED:
                restarts.look(size)
        yield from waits.growth()
        yield from idle.told()
        yield from restarts.told()


class Fleet:
    """All that live."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.names: list[str] = []

    def grow(self, size: int) -> None:
        """Add sessions, all at once, until there are so many that wait for something to do."""
        fresh = [f"n{number:03}" for number in range(len(self.names), size)]
        if not fresh:
            return
        if not self.names:
            asked_for(self.box, fresh[:REVIEWED], OFFERS)
            waiting(self.box, REVIEWED, "review_pending")
        asked_for(self.box, fresh[REVIEWED:] if not self.names else fresh)
        waiting(self.box, size - REVIEWED)
        self.names += fresh
        at_rest(self.box)
