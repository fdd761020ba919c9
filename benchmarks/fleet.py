"""Many sessions of scripted agents under one daemon, and reports of progress that change them one by one."""

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
from benchmarks.measure import exact_cpu_seconds

SIZE = 50
CONFIG = """
defaults: {agent: demo, runtime: tmux}
orchestrator: {maxParallelAgents: 1000}
"""
READY_TASK = "[[say: ready]]"
WORKING_TASK = "[[progress: 1/9 reading the task]] [[sleep: 7200]]"
ASKING_TASK = "[[progress: 2/9 looking around]] [[ask: Which of the two shall I take?]]"
PULL_REQUEST_TASK = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
KINDS = ((WORKING_TASK, "working", 30), (ASKING_TASK, "needs_input", 10), (PULL_REQUEST_TASK, "review_pending", 10))
PARALLEL_REQUESTS = 50
"""Requests made at the same time: more would only queue at the daemon's socket."""
TIMEOUT = 300.0


def start_fleet(box: Sandbox) -> list[str]:
    """Start fifty sessions: most work, some ask, some have a pull request; return the ids of the working ones."""
    box.repository(config=CONFIG)
    box.start()
    expected: dict[str, str] = {}
    for text, status, count in KINDS:
        for _ in range(count):
            name = f"n{len(expected):02}"
            task = {"name": name, "title": f"Piece of work {name}", "prompt": text.format(name=name)}
            box.request("POST", "/api/sessions", task)
            expected[f"app-{name}"] = status
    box.wait_until(
        lambda: {session["id"]: session["status"] for session in box.sessions()} == expected, f"{SIZE} sessions", 180
    )
    return [session for session, status in expected.items() if status == "working"]


def request_sessions(box: Sandbox, names: Iterable[str], prompt: str = READY_TASK) -> None:
    """Request sessions, all at once; each request returns as soon as the session is recorded."""

    def request_session(name: str) -> None:
        task = {"name": name, "title": f"Piece of work {name}", "prompt": prompt.format(name=name)}
        box.request("POST", "/api/sessions", task)

    call_in_parallel(request_session, names)


def wait_for_status(box: Sandbox, count: int, status: str = "idle") -> None:
    """Wait until so many sessions have this status."""

    def are_enough() -> bool:
        return [session["status"] for session in box.sessions()].count(status) >= count

    box.wait_until(are_enough, f"{count} sessions that are {status}", TIMEOUT)


def wait_until_at_rest(box: Sandbox) -> None:
    """Wait until the daemon uses no more CPU time."""
    pid = box.daemon_pid()
    assert pid is not None
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        before = exact_cpu_seconds(pid)
        time.sleep(0.2)
        if exact_cpu_seconds(pid) - before < 0.002:
            return
    raise TimeoutError("the daemon does not become idle")


def call_in_parallel(work: Callable[[str], Any], names: Iterable[str]) -> None:
    """Call a function with each name at the same time."""
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(work, names))


class ProgressReports:
    """Progress reports of agents in turn, each with a unique number: `mark17.` in its text."""

    def __init__(self, box: Sandbox, sessions: Sequence[str]) -> None:
        self._next = 0
        self._spools = [box.home.session(session) / "spool.1.jsonl" for session in sessions]

    def write_next(self) -> tuple[int, float]:
        """Write the next report of the next agent; return its number and the time."""
        number, self._next = self._next, self._next + 1
        line = json.dumps({"event": "progress", "done": number % 9, "total": 9, "step": f"mark{number}."}) + "\n"
        with self._spools[number % len(self._spools)].open("a") as spool:
            written_at = time.time()
            spool.write(line)
        return number, written_at

    def write_all(self, count: int, a_second: float) -> dict[int, float]:
        """Write so many reports at random intervals; return the time of each."""
        with self.write_in_background(a_second) as times:
            while len(times) < count:
                time.sleep(0.01)
        return times

    @contextmanager
    def write_in_background(self, a_second: float) -> Iterator[dict[int, float]]:
        """Write reports at random intervals during the block; yield the time of each."""
        stop, random = threading.Event(), Random(7)
        times: dict[int, float] = {}

        def report_steps() -> None:
            while not stop.wait(random.expovariate(a_second)):
                number, written_at = self.write_next()
                times[number] = written_at

        thread = threading.Thread(target=report_steps)
        thread.start()
        try:
            yield times
        finally:
            stop.set()
            thread.join()
