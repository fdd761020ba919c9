"""The time until an agent's exit and a line in its spool are shown by the API."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import HTTPConnection
from benchmarks.fleet import CONFIG, request_sessions, wait_for_status
from benchmarks.measure import Figure, Result, quartiles

COUNT = 15
TIMEOUT = 30.0


def measure_status(folder: Path) -> Iterator[Result]:
    """Measure a report and a kill of each agent, one after the other."""
    with Sandbox(folder / "box", "tmux") as box:
        box.repository(config=CONFIG)
        box.start()
        names = [f"x{number}" for number in range(COUNT)]
        request_sessions(box, names)
        wait_for_status(box, COUNT)
        exits, lines = [], []
        with HTTPConnection.unix(box) as line:
            for number, name in enumerate(names):
                pid = int(box.session(f"app-{name}")["pid"])
                lines.append(_time_report(box, line, name, number + 1))
                begun = time.perf_counter()
                os.kill(pid, 9)
                exits.append(_wait_until_shown(line, name, {"exitCode": 137}) - begun)
    for title, times, must, stretch in (
        ("agent's exit → shown", exits, 0.5, 0.1),
        ("spool line → shown", lines, 0.1, 0.05),
    ):
        note = f"worst of {COUNT} {max(times):.3f} s"
        middle, spread = statistics.median(times), quartiles(times)
        yield Figure(title, middle, must, "s", note=note, stretch=stretch, spread=spread)


def _time_report(box: Sandbox, line: HTTPConnection, name: str, count: int) -> float:
    report = json.dumps({"event": "usage", "input": count}) + "\n"
    with (box.home.session(f"app-{name}") / "spool.1.jsonl").open("a") as spool:
        begun = time.perf_counter()
        spool.write(report)
    return _wait_until_shown(line, name, {"usage": {"input": count, "output": 0, "usd": None}}) - begun


def _wait_until_shown(line: HTTPConnection, name: str, expected: Mapping[str, object]) -> float:
    """Poll the session until it has these values; return the time."""
    end = time.perf_counter() + TIMEOUT
    while time.perf_counter() < end:
        session = json.loads(line.get(f"/api/sessions/app-{name}")[1])
        if all(session[key] == value for key, value in expected.items()):
            return time.perf_counter()
        time.sleep(0.002)
    raise TimeoutError(f"{name} was never shown with {dict(expected)}")
