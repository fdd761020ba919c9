"""How soon an agent's exit, and a line in its spool, are shown to whoever asks."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import Line
from benchmarks.fleet import CONFIG, asked_for, waiting
from benchmarks.measure import Figure, Result, quartiles

COUNT = 15
PATIENCE = 30.0


def seeing(folder: Path) -> Iterator[Result]:
    """One agent after the other says something, and is killed."""
    with Sandbox(folder / "box", "tmux") as box:
        box.repository(config=CONFIG)
        box.start()
        names = [f"x{number}" for number in range(COUNT)]
        asked_for(box, names)
        waiting(box, COUNT)
        exits, lines = [], []
        with Line.unix(box) as line:
            for number, name in enumerate(names):
                pid = int(box.session(f"app-{name}")["pid"])
                lines.append(_said(box, line, name, number + 1))
                begun = time.perf_counter()
                os.kill(pid, 9)
                exits.append(_shown(line, name, {"exitCode": 137}) - begun)
    for title, times, must, stretch in (
        ("agent's exit → shown", exits, 0.5, 0.1),
        ("spool line → shown", lines, 0.1, 0.05),
    ):
        note = f"worst of {COUNT} {max(times):.3f} s"
        middle, spread = statistics.median(times), quartiles(times)
        yield Figure(title, middle, must, "s", note=note, stretch=stretch, spread=spread)


def _said(box: Sandbox, line: Line, name: str, count: int) -> float:
    report = json.dumps({"event": "usage", "input": count}) + "\n"
    with (box.home.session(f"app-{name}") / "spool.1.jsonl").open("a") as spool:
        begun = time.perf_counter()
        spool.write(report)
    return _shown(line, name, {"usage": {"input": count, "output": 0, "usd": None}}) - begun


def _shown(line: Line, name: str, wanted: Mapping[str, object]) -> float:
    """When the session was first shown so."""
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        shown = json.loads(line.get(f"/api/sessions/app-{name}")[1])
        if all(shown[key] == value for key, value in wanted.items()):
            return time.perf_counter()
        time.sleep(0.002)
    raise TimeoutError(f"{name} was never shown with {dict(wanted)}")
