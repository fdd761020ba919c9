"""Scripted agents under one daemon: many started at once, stopped at once, and changes to them one by one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import cpu_exact

SIZE = 50
CONFIG = """
defaults: {agent: demo, runtime: tmux}
orchestrator: {maxParallelAgents: 1000}
"""
READY = "[[say: ready]]"
WORKS = "[[progress: 1/9 reading the task]] [[sleep: 7200]]"
ASKS = "[[progress: 2/9 looking around]] [[ask: Which of the two shall I take?]]"
OFFERS = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
KINDS = ((WORKS, "working", 30), (ASKS, "needs_input", 10), (OFFERS, "review_pending", 10))
HANDS = 50
"""Requests that are made at the same time where all are wanted at once: more only queue at the daemon's socket."""
PATIENCE = 300.0


def gathered(box: Sandbox) -> list[str]:
    """Fifty: most work, some ask, some have a pull request; returns the ids of those that work."""
    box.repository(config=CONFIG)
    box.start()
    wanted: dict[str, str] = {}
    for text, status, count in KINDS:
        for _ in range(count):
            name = f"n{len(wanted):02}"
            task = {"name": name, "title": f"Piece of work {name}", "prompt": text.format(name=name)}
            box.request("POST", "/api/sessions", task)
            wanted[f"app-{name}"] = status
    box.until(lambda: {one["id"]: one["status"] for one in box.sessions()} == wanted, f"{SIZE} sessions", 180)
    return [session for session, status in wanted.items() if status == "working"]


def asked_for(box: Sandbox, names: Iterable[str], prompt: str = READY) -> None:
    """Ask for sessions, all at once; each is answered as soon as it is recorded."""

    def ask(name: str) -> None:
        task = {"name": name, "title": f"Piece of work {name}", "prompt": prompt.format(name=name)}
        box.request("POST", "/api/sessions", task)

    at_once(ask, names)


def waiting(box: Sandbox, count: int, status: str = "idle") -> None:
    """Return when so many sessions have this status."""

    def there() -> bool:
        return [one["status"] for one in box.sessions()].count(status) >= count

    box.until(there, f"{count} sessions that are {status}", PATIENCE)


def at_rest(box: Sandbox) -> None:
    """Return when the daemon has come to its rest after what was asked of it."""
    pid = box.daemon_pid()
    assert pid is not None
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        before = cpu_exact(pid)
        time.sleep(0.2)
        if cpu_exact(pid) - before < 0.002:
            return
    raise TimeoutError("the daemon does not come to its rest")


def at_once(work: Callable[[str], Any], names: Iterable[str]) -> None:
    """Do something with each of them at the same time."""
    with ThreadPoolExecutor(HANDS) as pool:
        list(pool.map(work, names))


class Changes:
    """Steps that agents report, in turn, each with a number of its own: `mark17.` in its text."""

    def __init__(self, box: Sandbox, sessions: Sequence[str]) -> None:
        self._next = 0
        self._spools = [box.home.session(session) / "spool.1.jsonl" for session in sessions]

    def make(self) -> tuple[int, float]:
        """The next agent reports its next step; returns its number, and when."""
        number, self._next = self._next, self._next + 1
        line = json.dumps({"event": "progress", "done": number % 9, "total": 9, "step": f"mark{number}."}) + "\n"
        with self._spools[number % len(self._spools)].open("a") as spool:
            at = time.time()
            spool.write(line)
        return number, at

    def make_all(self, count: int, a_second: float) -> dict[int, float]:
        """So many, at moments of chance; returns when each was made."""
        with self.meanwhile(a_second) as made:
            while len(made) < count:
                time.sleep(0.01)
        return made

    @contextmanager
    def meanwhile(self, a_second: float) -> Iterator[dict[int, float]]:
        """One after the other as long as the block lasts; gives when each was made."""
        enough, chance = threading.Event(), Random(7)
        made: dict[int, float] = {}

        def keep_on() -> None:
            while not enough.wait(chance.expovariate(a_second)):
                number, at = self.make()
                made[number] = at

        thread = threading.Thread(target=keep_on)
        thread.start()
        try:
            yield made
        finally:
            enough.set()
            thread.join()
