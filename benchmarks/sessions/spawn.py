"""The time from the request for a session until its agent runs, compared with bare Git, tmux and the same agent."""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.fleet import request_sessions, wait_until_at_rest
from benchmarks.measure import Figure, Growth, Result, ratios, timed

TURNS = {1: 11, 20: 5, 50: 3, 200: 1}
"""Sessions started at once → how often that is measured."""
MUST, STRETCH = {1: 3.0, 20: 3.5, 50: 3.0, 200: 3.5}, 1.7
"""Bounds by the number of sessions: those of 20 and 200 have few turns, and are there for the growth."""
TIMEOUT = 300.0
AGENT_SCRIPT = """#!/bin/sh
echo "${{PWD##*/}} $(date +%s.%N)" >>{log}
exec sleep 7200
"""
CONFIG = """
defaults: {{agent: small, runtime: tmux}}
orchestrator: {{maxParallelAgents: 1000}}
agents: {{small: {{tool: command, prompt: file, command: [{agent}]}}}}
"""


def measure_spawn(folder: Path) -> Iterator[Result]:
    """Measure 1, 20, 50 and 200 sessions at once, ours and bare ones in turns; all of them stay."""
    with Sandbox(folder / "box", "tmux") as box:
        starts = AgentStarts(folder / "born.log")
        agent = starts.agent(folder / "agent.sh")
        box.repository("bare")
        bare = BareGitAndTmux(box, box.repo, agent)
        box.repository(config=CONFIG.format(agent=agent))
        pid = box.start()
        try:
            parts, used = bare.parts(), _cpu_seconds(pid)
            measured = {count: _in_turns(box, bare, starts, count, turns) for count, turns in TURNS.items()}
            used = [now - before for now, before in zip(_cpu_seconds(pid), used, strict=True)]
        finally:
            bare.end()
    every = sum(count * turns for count, turns in TURNS.items())
    why = f"the daemon computes {used[0] / every * 1e3:.0f} ms for each, and what it starts {used[1] / every * 1e3:.0f} ms"
    for count, (ours, least) in measured.items():
        yield _figure(count, ours, least, parts if count == 1 else "", why)
    yield _growth(measured)


def _figure(count: int, ours: Sequence[float], bare: Sequence[float], more: str, why: str) -> Figure:
    ratio, spread = ratios(ours, bare)
    note = f"{statistics.median(ours) * 1e3:.0f} ms ÷ {statistics.median(bare) * 1e3:.0f} ms" + more
    title = f"{'one spawn' if count == 1 else f'{count} spawns at once'} → agent runs ÷ bare Git + tmux"
    return Figure(title, ratio, MUST[count], note=note, stretch=STRETCH, spread=spread, why=why)


def _growth(measured: Mapping[int, tuple[Sequence[float], Sequence[float]]]) -> Growth:
    """Return the growth relative to bare ones, because Git reads all worktrees when it adds one."""
    times = {n: [statistics.median(row) / n * 1e3 for row in both] for n, both in measured.items() if n > 1}
    points = [(float(n), ours / bare) for n, (ours, bare) in times.items()]
    note = "ms for each: " + ", ".join(f"{ours:.0f} ÷ {bare:.0f}" for ours, bare in times.values())
    return Growth("spawns at once ÷ bare ones", "sessions", points, "×", "constant", note=note)


def _in_turns(
    box: Sandbox, bare: BareGitAndTmux, starts: AgentStarts, count: int, turns: int
) -> tuple[list[float], list[float]]:
    """Return the seconds until the last agent runs, for each turn: ours, and bare ones."""
    ours, bare_times = [], []
    for turn in range(turns):
        names = [f"s{count}-{turn}-{number}" for number in range(count)]
        begun = time.time()
        request_sessions(box, names)
        ours.append(starts.last(names) - begun)
        wait_until_at_rest(box)
        names = [f"b{count}-{turn}-{number}" for number in range(count)]
        begun = time.time()
        bare.start(names)
        bare_times.append(starts.last(names) - begun)
    return (ours[1:], bare_times[1:]) if count == 1 else (ours, bare_times)  # the very first is to get warm


def _cpu_seconds(pid: int) -> list[float]:
    """Return the CPU seconds of a process, and of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return [(int(fields[11]) + int(fields[12])) / tick, (int(fields[13]) + int(fields[14])) / tick]


class AgentStarts:
    """The log of agents' start times, each with the name of its folder."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()

    def agent(self, path: Path) -> Path:
        """Write the program that logs its start and waits; return its path."""
        path.write_text(AGENT_SCRIPT.format(log=shlex.quote(str(self.log))))
        path.chmod(0o755)
        return path

    def last(self, names: Sequence[str]) -> float:
        """Wait until all these agents have started; return the last start time."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            lines = [line.split() for line in self.log.read_text().splitlines()]
            started = {line[0]: float(line[1]) for line in lines if len(line) == 2}
            if started.keys() >= set(names):
                return max(started[name] for name in names)
            time.sleep(0.01)
        raise TimeoutError(f"{len(set(names) - started.keys())} of {len(names)} agents never began")


class BareGitAndTmux:
    """Worktrees and tmux sessions made by a shell, in another repository."""

    def __init__(self, box: Sandbox, repo: Path, agent: Path) -> None:
        self.box = box
        self.repo = repo
        self.agent = agent
        self.tmux = f"tmux -S {shlex.quote(str(repo))}.sock -f /dev/null"

    def start(self, names: Sequence[str]) -> None:
        """Start agents, with a shell per core. Git may fail if two worktrees are made at once; then it is retried."""
        script = ""
        for worker in range(workers := len(os.sched_getaffinity(0))):
            commands = [
                f"until {self._worktree(name)}; do rm -rf ../trees/{name}; done; {self._session(name)} &\n"
                for name in names[worker::workers]
            ]
            script += f"( {''.join(commands)} wait ) &\n" if commands else ""
        self._shell(f"exec 2>/dev/null\n{script} wait\n")

    def parts(self) -> str:
        """Return a text with the times of a worktree and of a terminal alone."""
        names = [f"part{number}" for number in range(9)]
        trees = [timed(partial(self._shell, f"exec {self._worktree(name)}\n")) for name in names]
        terminals = [timed(partial(self._shell, f"exec {self._session(name)}\n")) for name in names]
        return (
            f"; `git worktree add` {statistics.median(trees) * 1e3:.0f} ms, "
            f"`tmux new-session` {statistics.median(terminals) * 1e3:.0f} ms by themselves"
        )

    def end(self) -> None:
        """End the tmux server."""
        subprocess.run(["/bin/sh", "-c", f"{self.tmux} kill-server"], env=self.box.env, check=False)

    def _worktree(self, name: str) -> str:
        return f"git worktree add -q -f --no-track -B bare/{name} ../trees/{name} main"

    def _session(self, name: str) -> str:
        return f"{self.tmux} new-session -d -s {name} -c {self.repo.parent}/trees/{name} {shlex.quote(str(self.agent))}"

    def _shell(self, script: str) -> None:
        subprocess.run(["/bin/sh"], input=script, text=True, cwd=self.repo, env=self.box.env, check=True)
