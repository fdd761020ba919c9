"""Changes to merge, each with a check that waits two seconds: through the merge queue, and one by one."""

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
TIMEOUT = 600.0


def measure_merge_queue(folder: Path) -> Iterator[Figure]:
    """Measure the time until all good changes are merged, compared with bare Git and the same command one by one."""
    yield from _compare_merges(folder, 12, (3, 8), 0.6, 0.4)


def measure_merge_queue_twenty(folder: Path) -> Iterator[Figure]:
    """Measure twenty changes, without and with failing ones."""
    yield from _compare_merges(folder / "good", 20, (), 0.35, 0.25)
    yield from _compare_merges(folder / "bad", 20, (5, 12), 0.6, 0.3)


def _compare_merges(folder: Path, count: int, bad: Sequence[int], must: float, stretch: float) -> Iterator[Figure]:
    title = f"{count} landings" + (f", {len(bad)} of them bad" if bad else "")
    with Sandbox(folder / "box", "process") as box:
        box.repository(config=CONFIG)
        _branches(box, count, set(bad))
        one_by_one = timed(lambda: _merge_one_by_one(box, count))
        box.start()
        names = [f"c{number:02}" for number in range(count)]
        _sessions(box, names)
        begun = time.perf_counter()
        merged, dropped = _merge_all(box, names)
        queue_seconds = time.perf_counter() - begun
    note = f"{queue_seconds:.1f} s ÷ {one_by_one:.1f} s"
    yield Figure(f"{title} ÷ one after the other", queue_seconds / one_by_one, must, note=note, stretch=stretch)
    wrong_names = dropped ^ {names[number] for number in bad}
    yield Figure(
        f"{title}: wrongly landed or dropped", len(wrong_names), 0, unit="changes", note=f"{len(merged)} landed"
    )


def _branches(box: Sandbox, count: int, bad: set[int]) -> None:
    """Make a branch per change, all from the same commit."""
    stream = ""
    for number in range(count):
        name = f"bad{number}.txt" if number in bad else f"good{number}.txt"
        stream += f"commit refs/heads/c{number:02}\ncommitter P <p@example.invalid> 1700000000 +0000\n"
        stream += f"data 4\nwork\nfrom refs/heads/main\nM 100644 inline {name}\ndata 1\nx\n\n"
    command = ["git", "fast-import", "--quiet"]
    subprocess.run(command, input=stream.encode(), cwd=box.repo, env=box.env, check=True)


def _merge_one_by_one(box: Sandbox, count: int) -> None:
    """Merge, check, and keep or reset each change in a separate worktree, with Git and the command alone."""
    worktree = box.folder / "alone"
    box.git("worktree", "add", "-q", "--detach", str(worktree), "main")
    for number in range(count):
        box.git("merge", "-q", "--no-edit", "--no-ff", f"c{number:02}", cwd=worktree)
        if subprocess.run(COMMAND, shell=True, cwd=worktree, env=box.env).returncode:
            box.git("reset", "-q", "--hard", "HEAD^", cwd=worktree)
    box.git("worktree", "remove", "--force", str(worktree))


def _sessions(box: Sandbox, names: list[str]) -> None:
    """Start a session for each branch, with a pull request and without an agent."""
    for name in names:
        request = {"name": name, "title": f"Work on {name}", "branch": name, "base": "main", "defer": True}
        box.request("POST", "/api/sessions", request)
    box.wait_until(lambda: all(session["pr"] for session in box.sessions()), "every pull request", 120)


def _merge_all(box: Sandbox, names: list[str]) -> tuple[set[str], set[str]]:
    """Request all merges at once and wait for the queue; return the merged names and the others."""
    ask = [threading.Thread(target=box.request, args=("POST", f"/api/sessions/app-{name}/merge", {})) for name in names]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    box.wait_until(lambda: not box.request("GET", "/api/queue?all=1")["entries"], "the end of the queue", TIMEOUT)
    states = {session["name"]: session["status"] for session in box.sessions()}
    return {name for name in names if states[name] == "merged"}, {name for name in names if states[name] != "merged"}
