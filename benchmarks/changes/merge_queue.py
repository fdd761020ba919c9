"""Twenty changes that are to land, each with a check that waits two seconds: through the merge queue, and one after the other."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import Figure, timed

COMMAND = "sleep 2; ! ls | grep -q bad"
CONFIG = f"""
defaults: {{agent: demo, runtime: process}}
orchestrator: {{maxParallelAgents: 50}}
ci: {{command: "{COMMAND}", parallel: 8, on: manual}}
"""
PATIENCE = 600.0


def landing(folder: Path) -> Iterator[Figure]:
    """How long it takes until all that is good has landed, beside bare Git and the same command one after the other."""
    yield from _landings(folder, 12, (3, 8), 0.6, 0.4)


def landing_twenty(folder: Path) -> Iterator[Figure]:
    """More of them, with nothing bad among them and with some."""
    yield from _landings(folder / "good", 20, (), 0.35, 0.25)
    yield from _landings(folder / "bad", 20, (5, 12), 0.6, 0.3)


def _landings(folder: Path, count: int, bad: Sequence[int], must: float, stretch: float) -> Iterator[Figure]:
    what = f"{count} landings" + (f", {len(bad)} of them bad" if bad else "")
    with Sandbox(folder / "box", "process") as box:
        box.repository(config=CONFIG)
        _branches(box, count, set(bad))
        alone = timed(lambda: _one_after_the_other(box, count))
        box.start()
        names = [f"c{number:02}" for number in range(count)]
        _sessions(box, names)
        begun = time.perf_counter()
        landed, dropped = _landed(box, names)
        took = time.perf_counter() - begun
    note = f"{took:.1f} s ÷ {alone:.1f} s"
    yield Figure(f"{what} ÷ one after the other", took / alone, must, note=note, stretch=stretch)
    wrong = dropped ^ {names[number] for number in bad}
    yield Figure(f"{what}: wrongly landed or dropped", len(wrong), 0, unit="changes", note=f"{len(landed)} landed")


def _branches(box: Sandbox, count: int, bad: set[int]) -> None:
    """A branch a change, all from the same commit."""
    stream = ""
    for number in range(count):
        name = f"bad{number}.txt" if number in bad else f"good{number}.txt"
        stream += f"commit refs/heads/c{number:02}\ncommitter P <p@example.invalid> 1700000000 +0000\n"
        stream += f"data 4\nwork\nfrom refs/heads/main\nM 100644 inline {name}\ndata 1\nx\n\n"
    command = ["git", "fast-import", "--quiet"]
    subprocess.run(command, input=stream.encode(), cwd=box.repo, env=box.env, check=True)


def _one_after_the_other(box: Sandbox, count: int) -> None:
    """Merge, check, keep or take back; in a worktree of its own, with nothing but Git and the command."""
    place = box.folder / "alone"
    box.git("worktree", "add", "-q", "--detach", str(place), "main")
    for number in range(count):
        box.git("merge", "-q", "--no-edit", "--no-ff", f"c{number:02}", cwd=place)
        if subprocess.run(COMMAND, shell=True, cwd=place, env=box.env).returncode:
            box.git("reset", "-q", "--hard", "HEAD^", cwd=place)
    box.git("worktree", "remove", "--force", str(place))


def _sessions(box: Sandbox, names: list[str]) -> None:
    """A session for each branch, with a pull request and without an agent."""
    for name in names:
        wanted = {"name": name, "title": f"Work on {name}", "branch": name, "base": "main", "defer": True}
        box.request("POST", "/api/sessions", wanted)
    box.until(lambda: all(one["pr"] for one in box.sessions()), "every pull request", 120)


def _landed(box: Sandbox, names: list[str]) -> tuple[set[str], set[str]]:
    """Ask for all at once, and wait for all; returns who landed, and who did not."""
    ask = [threading.Thread(target=box.request, args=("POST", f"/api/sessions/app-{name}/merge", {})) for name in names]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    box.until(lambda: not box.request("GET", "/api/queue?all=1")["entries"], "the end of the queue", PATIENCE)
    states = {one["name"]: one["status"] for one in box.sessions()}
    return {name for name in names if states[name] == "merged"}, {name for name in names if states[name] != "merged"}
