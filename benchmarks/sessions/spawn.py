"""From the request for a session to its agent's first own line, beside Git, tmux and the same agent without anything of ours around it."""

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
from benchmarks.fleet import asked_for, at_rest
from benchmarks.measure import Figure, Growth, Result, ratios, timed

TURNS = {1: 11, 20: 5, 50: 3, 200: 1}
"""How many are started at once, and how often that is measured."""
MUST, STRETCH = {1: 3.0, 20: 3.5, 50: 3.0, 200: 3.5}, 1.7
"""Few turns are measured of twenty, whose first ones have an idle daemon, and of two hundred: these are to notice what grows."""
PATIENCE = 300.0
AGENT = """#!/bin/sh
echo "${{PWD##*/}} $(date +%s.%N)" >>{log}
exec sleep 7200
"""
CONFIG = """
defaults: {{agent: small, runtime: tmux}}
orchestrator: {{maxParallelAgents: 1000}}
agents: {{small: {{tool: command, prompt: file, command: [{agent}]}}}}
"""


def spawning(folder: Path) -> Iterator[Result]:
    """One, twenty, fifty and two hundred at once: ours and bare ones in turns, on the same cores. All of them stay."""
    with Sandbox(folder / "box", "tmux") as box:
        births = Births(folder / "born.log")
        agent = births.agent(folder / "agent.sh")
        box.repository("bare")
        bare = Bare(box, box.repo, agent)
        box.repository(config=CONFIG.format(agent=agent))
        pid = box.start()
        try:
            parts, used = bare.parts(), _used(pid)
            measured = {count: _in_turns(box, bare, births, count, turns) for count, turns in TURNS.items()}
            used = [now - before for now, before in zip(_used(pid), used, strict=True)]
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
    """Beside bare ones, because Git looks at every worktree that there is when it adds one."""
    times = {n: [statistics.median(row) / n * 1e3 for row in both] for n, both in measured.items() if n > 1}
    points = [(float(n), ours / bare) for n, (ours, bare) in times.items()]
    note = "ms for each: " + ", ".join(f"{ours:.0f} ÷ {bare:.0f}" for ours, bare in times.values())
    return Growth("spawns at once ÷ bare ones", "sessions", points, "×", "constant", note=note)


def _in_turns(box: Sandbox, bare: Bare, births: Births, count: int, turns: int) -> tuple[list[float], list[float]]:
    """Seconds until the last of so many runs, for each turn: ours, and bare ones."""
    ours, theirs = [], []
    for turn in range(turns):
        names = [f"s{count}-{turn}-{number}" for number in range(count)]
        begun = time.time()
        asked_for(box, names)
        ours.append(births.last(names) - begun)
        at_rest(box)
        names = [f"b{count}-{turn}-{number}" for number in range(count)]
        begun = time.time()
        bare.start(names)
        theirs.append(births.last(names) - begun)
    return (ours[1:], theirs[1:]) if count == 1 else (ours, theirs)  # the very first is to get warm


def _used(pid: int) -> list[float]:
    """CPU seconds of a process, and of those that it started and has seen end."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return [(int(fields[11]) + int(fields[12])) / tick, (int(fields[13]) + int(fields[14])) / tick]


class Births:
    """What agents wrote down when they began, each with the name of its folder."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()

    def agent(self, path: Path) -> Path:
        """A program that notes that it runs, and waits."""
        path.write_text(AGENT.format(log=shlex.quote(str(self.log))))
        path.chmod(0o755)
        return path

    def last(self, names: Sequence[str]) -> float:
        """When the last of them began."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            lines = [line.split() for line in self.log.read_text().splitlines()]
            born = {line[0]: float(line[1]) for line in lines if len(line) == 2}
            if born.keys() >= set(names):
                return max(born[name] for name in names)
            time.sleep(0.01)
        raise TimeoutError(f"{len(set(names) - born.keys())} of {len(names)} agents never began")


class Bare:
    """Worktrees and tmux sessions made by a shell that knows nothing else, in a repository of their own."""

    def __init__(self, box: Sandbox, repo: Path, agent: Path) -> None:
        self.box = box
        self.repo = repo
        self.agent = agent
        self.tmux = f"tmux -S {shlex.quote(str(repo))}.sock -f /dev/null"

    def start(self, names: Sequence[str]) -> None:
        """As many hands as cores, which is the fastest. Git may fail where two worktrees are made at once; then it is asked again."""
        script = ""
        for hand in range(hands := len(os.sched_getaffinity(0))):
            made = [
                f"until {self._worktree(one)}; do rm -rf ../trees/{one}; done; {self._session(one)} &\n"
                for one in names[hand::hands]
            ]
            script += f"( {''.join(made)} wait ) &\n" if made else ""
        self._shell(f"exec 2>/dev/null\n{script} wait\n")

    def parts(self) -> str:
        """What a worktree and a terminal take by themselves, in words."""
        names = [f"part{number}" for number in range(9)]
        trees = [timed(partial(self._shell, f"exec {self._worktree(name)}\n")) for name in names]
        terminals = [timed(partial(self._shell, f"exec {self._session(name)}\n")) for name in names]
        return (
            f"; `git worktree add` {statistics.median(trees) * 1e3:.0f} ms, "
            f"`tmux new-session` {statistics.median(terminals) * 1e3:.0f} ms by themselves"
        )

    def end(self) -> None:
        """End what was started."""
        subprocess.run(["/bin/sh", "-c", f"{self.tmux} kill-server"], env=self.box.env, check=False)

    def _worktree(self, name: str) -> str:
        return f"git worktree add -q -f --no-track -B bare/{name} ../trees/{name} main"

    def _session(self, name: str) -> str:
        return f"{self.tmux} new-session -d -s {name} -c {self.repo.parent}/trees/{name} {shlex.quote(str(self.agent))}"

    def _shell(self, script: str) -> None:
        subprocess.run(["/bin/sh"], input=script, text=True, cwd=self.repo, env=self.box.env, check=True)
