"""`python -m tests.faults.statements`: kill -9 of the daemon at every statement that touches the outside, one after the other.

Each story of `scenarios/` is played once to see its statements, then twice for each of them, with a daemon that is killed when it
has come to it for the first time, and for the last time (`--every`: each time). What only a daemon does that makes good the death of
another is hit too, by a second death. `--lives`: with daemons that are all killed after so many statements.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.faults.scenarios import SCENARIOS as LOCAL
from tests.faults.scenarios.forge import FORGES
from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import Stage

SCENARIOS: dict[str, Callable[[str], Scenario]] = {**LOCAL, **FORGES}

SAMPLE = (
    ("messages-tmux", "104"),
    ("answers-process", "88"),
    ("landing-process", "560"),
    ("life-tmux", "250"),
    ("command-process", "1# start sh : command_action._run < command_action.run"),
    ("spawn-process", "1# ended: choices._check_base < choices.events < sessions._create < sessions.create"),
    ("judged-process", "1# insert: review-requested"),
    ("judged-process", "1# start git merge-base: agent_reviews._forget_branch"),
)
"""What every test run plays: in the midst of a delivery, of an answer, of a landing, of a clean-up, of what else rules do."""
LIVES = (30, 45, 60, 80, 110, 150)
DEATHS = 12
TOO_BUSY = "the daemon did not answer within"


@dataclass(frozen=True, slots=True)
class Played:
    """One story with its deaths."""

    name: str
    plan: Sequence[str]
    statements: Sequence[str]
    """What its daemons did, in words."""
    kills: Sequence[str]
    """Where they were killed."""
    wrong: Sequence[str]
    folder: Path


@dataclass(slots=True)
class Tally:
    """One scenario's figures."""

    name: str
    begun: float = field(default_factory=time.monotonic)
    plays: int = 0
    kills: int = 0
    seen: dict[str, Sequence[str]] = field(default_factory=dict)
    """Statement → the plan of the play that showed it first."""
    hit: set[str] = field(default_factory=set)
    wrong: int = 0

    def take(self, played: Played) -> None:
        """Count one more, and tell what is wrong with it."""
        self.plays += 1
        self.kills += len(played.kills)
        self.seen = dict.fromkeys(played.statements, played.plan) | self.seen
        self.hit.update(played.kills)
        if played.wrong:
            self.wrong += 1
            _say(f"WRONG {played.name}, killed at {'; '.join(played.kills) or 'nothing'}, {played.folder}:")
            for line in played.wrong:
                _say(f"    {line}")
            again = f"python -m tests.faults.statements --only {played.name} --at"
            _say(f"    again: {again} {shlex.join(played.plan)}")

    def told(self) -> Tally:
        """Say the figures."""
        took = time.monotonic() - self.begun
        _say(
            f"{self.name}: {self.plays} plays, {self.kills} kills, {len(self.hit)} of {len(self.seen)} different "
            f"statements hit, {self.wrong} wrong, {took:.0f} s"
        )
        return self


def play(name: str, plan: Sequence[str]) -> Played:
    """Play a scenario with daemons that are killed where the plan says; an empty plan: not at all."""
    kind, _, runtime = name.rpartition("-")
    scenario, folder = SCENARIOS[kind](runtime), Path(tempfile.mkdtemp(prefix="ao-crash-"))
    with Sandbox(folder, runtime, {"AO_DEMO_LOG": str(folder / "truth.jsonl")}) as box:
        stage = Stage(box)
        scenario.prepare(stage)
        stage.start(plan)
        try:
            scenario.play(stage)
            stage.until(lambda: scenario.settled(stage), "everything to come to its end")
            if not stage.traced()[1]:  # not killed yet: it may be while it ends
                stage.end()
                stage.until(lambda: scenario.settled(stage), "everything to be so after another start")
            wrong = [*scenario.wrong(stage), *stage.wrong()]
        except TimeoutError as error:
            wrong = [str(error), *stage.refused]
        stage.close()
        scenario.close()
        statements, kills = stage.traced()
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return Played(name, plan, statements, kills, wrong, folder)


def sweep(name: str, jobs: int, *, every: bool) -> Tally:
    """A scenario with a death at every statement; then those with two that make good a death, and are done by nobody else."""
    tally = Tally(name)
    calm = play(name, [])
    tally.take(calm)
    _say(f"{name}: {len(calm.statements)} statements, {len(tally.seen)} different ones")
    if calm.wrong:
        return tally.told()
    with _pool(jobs) as pool:
        _all(pool, tally, [[place] for place in _places(calm.statements, every)])
        later = [(words, plan) for words, plan in tally.seen.items() if words not in tally.hit]
        _all(pool, tally, [[*plan, f"1# {words}"] for words, plan in later])
    return tally.told()


def _places(statements: Sequence[str], every: bool) -> Iterator[str]:
    """Where to die, in the order of the play."""
    times, whole = Counter[str](), Counter(statements)
    for words in statements:
        times[words] += 1
        if every or times[words] in (1, whole[words]):
            yield f"{times[words]}# {words}"


def relentless(name: str, jobs: int) -> Tally:
    """A scenario whose daemons die young, one after the other."""
    tally = Tally(f"{name}, again and again")
    with _pool(jobs) as pool:
        _all(pool, tally, [[str(age)] * DEATHS for age in LIVES], name)
    return tally.told()


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"))


def _all(pool: ProcessPoolExecutor, tally: Tally, plans: Sequence[Sequence[str]], name: str = "") -> None:
    for number, played in enumerate(pool.map(functools.partial(_fairly, name or tally.name), plans), 1):
        tally.take(played)
        if number % 50 == 0:
            _say(f"{tally.name}: {number} of {len(plans)} plays, {time.monotonic() - tally.begun:.0f} s")


def _fairly(name: str, plan: Sequence[str]) -> Played:
    """A machine so busy that a command gives up on the daemon's start says nothing about the daemon: again, but not for ever."""
    for _ in range(3):
        played = play(name, plan)
        if not any(TOO_BUSY in line for line in played.wrong):
            break
    return played


def sample(jobs: int) -> Tally:
    """A few deaths, always the same."""
    tally = Tally("sample")
    with _pool(jobs) as pool:
        chosen = [one for one in SAMPLE if have_tmux() or not one[0].endswith("-tmux")]
        for played in pool.map(play, [name for name, _ in chosen], [[at] for _, at in chosen]):
            tally.take(played)
            if not played.kills:
                _say(f"WRONG {played.name} ended before statement {played.plan[0]}: choose another")
                tally.wrong += 1
    return tally.told()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def names() -> list[str]:
    """Every scenario on every runtime that is here."""
    runtimes = ["process", *(["tmux"] if have_tmux() else [])]
    return [f"{scenario}-{runtime}" for scenario in SCENARIOS for runtime in runtimes]


def main() -> int:
    """Kill at every statement of every scenario, or as asked."""
    parser = argparse.ArgumentParser(prog="tests.faults.statements")
    parser.add_argument("--only", nargs="+", default=names(), help="scenarios, such as messages-tmux")
    parser.add_argument("--at", nargs="+", help="one play: where its daemons are killed, one after the other")
    parser.add_argument("--trace", action="store_true", help="show the statements of a play without a death")
    parser.add_argument(
        "--every", action="store_true", help="each time that a statement comes, not only the first and last"
    )
    parser.add_argument("--lives", action="store_true", help="only daemons that die again and again")
    parser.add_argument("--sample", action="store_true", help="a few deaths, always the same")
    parser.add_argument("--jobs", type=int, default=2, help="how many are played at once")
    options = parser.parse_args()
    if options.sample:
        return bool(sample(options.jobs).wrong)
    failed = 0
    for name in options.only:
        if options.trace or options.at:
            tally = Tally(name)
            tally.take(played := play(name, options.at or []))
            if options.at and not played.kills:
                _say(f"WRONG {name} ended before {options.at[0]}: choose another")
                tally.wrong += 1
            for number, words in enumerate(played.statements if options.trace else (), 1):
                _say(f"{number:4} {words}")
        else:
            tally = relentless(name, options.jobs) if options.lives else sweep(name, options.jobs, every=options.every)
        failed += tally.wrong
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
