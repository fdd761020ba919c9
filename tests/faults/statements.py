"""`python -m tests.faults.statements`: kill -9 of the daemon at every statement with an external effect, one after the other.

Each scenario is played once to record its statements, then twice per statement, with a daemon that is killed at its first and at its
last execution (`--every`: at each). Statements that only a recovering daemon executes are reached by a second kill. `--lives`: all
daemons are killed after a number of statements.
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
from tests.faults.scenarios.stage import CrashStage

SCENARIOS: dict[str, Callable[[str], Scenario]] = {**LOCAL, **FORGES}

SAMPLE_CASES = (
    ("messages-tmux", "104"),
    ("answers-process", "88"),
    ("landing-process", "560"),
    ("life-tmux", "250"),
    ("command-process", "1# start sh : command_action._run < command_action.run"),
    ("spawn-process", "1# ended: choices._check_base < choices.creation_events < sessions._create < sessions.create"),
    ("judged-process", "1# insert: review-requested"),
    ("judged-process", "1# start git merge-base: agent_reviews._delete_branch"),
)
"""The cases of every test run: in the middle of a delivery, an answer, a merge, a clean-up, and actions of rules."""
EARLY_STATEMENTS = (30, 45, 60, 80, 110, 150)
EARLY_KILLS = 12
BUSY_MACHINE_TEXT = "the daemon did not answer within"


@dataclass(frozen=True, slots=True)
class PlayedScenario:
    """A played scenario with its kills."""

    name: str
    plan: Sequence[str]
    statements: Sequence[str]
    """The names of the statements that its daemons executed."""
    kills: Sequence[str]
    """The statements at which they were killed."""
    wrong: Sequence[str]
    folder: Path


@dataclass(slots=True)
class ScenarioTally:
    """The figures of one scenario."""

    name: str
    begun: float = field(default_factory=time.monotonic)
    plays: int = 0
    kills: int = 0
    statements_seen: dict[str, Sequence[str]] = field(default_factory=dict)
    """Statement → the plan of the play in which it first occurred."""
    hit: set[str] = field(default_factory=set)
    wrong: int = 0

    def add(self, played: PlayedScenario) -> None:
        """Count a play and print its problems."""
        self.plays += 1
        self.kills += len(played.kills)
        self.statements_seen = dict.fromkeys(played.statements, played.plan) | self.statements_seen
        self.hit.update(played.kills)
        if played.wrong:
            self.wrong += 1
            _print_line(f"WRONG {played.name}, killed at {'; '.join(played.kills) or 'nothing'}, {played.folder}:")
            for line in played.wrong:
                _print_line(f"    {line}")
            again = f"python -m tests.faults.statements --only {played.name} --at"
            _print_line(f"    again: {again} {shlex.join(played.plan)}")

    def print_figures(self) -> ScenarioTally:
        """Print the figures."""
        seconds = time.monotonic() - self.begun
        _print_line(
            f"{self.name}: {self.plays} plays, {self.kills} kills, {len(self.hit)} of {len(self.statements_seen)} different "
            f"statements hit, {self.wrong} wrong, {seconds:.0f} s"
        )
        return self


def play(name: str, plan: Sequence[str]) -> PlayedScenario:
    """Play a scenario with daemons that are killed where the plan says; with an empty plan none is killed."""
    kind, _, runtime = name.rpartition("-")
    scenario, folder = SCENARIOS[kind](runtime), Path(tempfile.mkdtemp(prefix="ao-crash-"))
    with Sandbox(folder, runtime, {"AO_DEMO_LOG": str(folder / "truth.jsonl")}) as box:
        stage = CrashStage(box)
        scenario.prepare(stage)
        stage.start(plan)
        try:
            scenario.play(stage)
            stage.wait_until(lambda: scenario.is_settled(stage), "everything to come to its end")
            if not stage.statements_and_kills()[1]:  # not killed yet: it may be killed while it ends
                stage.end()
                stage.wait_until(lambda: scenario.is_settled(stage), "everything to be so after another start")
            wrong = [*scenario.problems(stage), *stage.problems()]
        except TimeoutError as error:
            wrong = [str(error), *stage.refused]
        stage.close()
        scenario.close()
        statements, kills = stage.statements_and_kills()
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return PlayedScenario(name, plan, statements, kills, wrong, folder)


def sweep(name: str, jobs: int, *, every: bool) -> ScenarioTally:
    """Play a scenario with a kill at every statement, then with a second kill at statements that only recovery executes."""
    tally = ScenarioTally(name)
    calm = play(name, [])
    tally.add(calm)
    _print_line(f"{name}: {len(calm.statements)} statements, {len(tally.statements_seen)} different ones")
    if calm.wrong:
        return tally.print_figures()
    with _pool(jobs) as pool:
        _play_all(pool, tally, [[place] for place in _kill_points(calm.statements, every)])
        later = [(words, plan) for words, plan in tally.statements_seen.items() if words not in tally.hit]
        _play_all(pool, tally, [[*plan, f"1# {words}"] for words, plan in later])
    return tally.print_figures()


def _kill_points(statements: Sequence[str], every: bool) -> Iterator[str]:
    """Yield the statements to kill at, in order."""
    times, totals = Counter[str](), Counter(statements)
    for words in statements:
        times[words] += 1
        if every or times[words] in (1, totals[words]):
            yield f"{times[words]}# {words}"


def sweep_early_kills(name: str, jobs: int) -> ScenarioTally:
    """Play a scenario whose daemons are all killed early, one after the other."""
    tally = ScenarioTally(f"{name}, again and again")
    with _pool(jobs) as pool:
        _play_all(pool, tally, [[str(age)] * EARLY_KILLS for age in EARLY_STATEMENTS], name)
    return tally.print_figures()


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"))


def _play_all(pool: ProcessPoolExecutor, tally: ScenarioTally, plans: Sequence[Sequence[str]], name: str = "") -> None:
    for number, played in enumerate(pool.map(functools.partial(_play_again_if_busy, name or tally.name), plans), 1):
        tally.add(played)
        if number % 50 == 0:
            _print_line(f"{tally.name}: {number} of {len(plans)} plays, {time.monotonic() - tally.begun:.0f} s")


def _play_again_if_busy(name: str, plan: Sequence[str]) -> PlayedScenario:
    """Play a case again, a few times, if the machine was too busy for the daemon's start."""
    for _ in range(3):
        played = play(name, plan)
        if not any(BUSY_MACHINE_TEXT in line for line in played.wrong):
            break
    return played


def sample(jobs: int) -> ScenarioTally:
    """Play a few fixed cases."""
    tally = ScenarioTally("sample")
    with _pool(jobs) as pool:
        chosen = [case for case in SAMPLE_CASES if have_tmux() or not case[0].endswith("-tmux")]
        for played in pool.map(play, [name for name, _ in chosen], [[at] for _, at in chosen]):
            tally.add(played)
            if not played.kills:
                _print_line(f"WRONG {played.name} ended before statement {played.plan[0]}: choose another")
                tally.wrong += 1
    return tally.print_figures()


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def scenario_names() -> list[str]:
    """Return every scenario with every available runtime."""
    runtimes = ["process", *(["tmux"] if have_tmux() else [])]
    return [f"{scenario}-{runtime}" for scenario in SCENARIOS for runtime in runtimes]


def main() -> int:
    """Kill at every statement of every scenario, or as the options say."""
    parser = argparse.ArgumentParser(prog="tests.faults.statements")
    parser.add_argument("--only", nargs="+", default=scenario_names(), help="scenarios, such as messages-tmux")
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
            tally = ScenarioTally(name)
            tally.add(played := play(name, options.at or []))
            if options.at and not played.kills:
                _print_line(f"WRONG {name} ended before {options.at[0]}: choose another")
                tally.wrong += 1
            for number, words in enumerate(played.statements if options.trace else (), 1):
                _print_line(f"{number:4} {words}")
        else:
            tally = (
                sweep_early_kills(name, options.jobs)
                if options.lives
                else sweep(name, options.jobs, every=options.every)
            )
        failed += tally.wrong
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
