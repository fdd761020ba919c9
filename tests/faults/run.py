"""`python -m tests.faults.run --rounds 100 --seed 1`: play rounds; a failing one prints how to replay it and everything that was done."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import have_tmux
from tests.faults import disk
from tests.faults.forge_server import IS_AVAILABLE
from tests.faults.invariants import check_all, one_daemon
from tests.faults.kinds import KINDS, InjectedFault
from tests.faults.play import FaultWorld

WORLD_ROUNDS = 8
"""Rounds per world."""
MAX_PROBLEM_SECONDS = 5.0
"""Seconds for work that nothing shows, such as an answer of a slow forge; a problem that lasts longer is a violation."""
STYLES = ("plain", "local", "github", "plain", "local")


@dataclass(slots=True)
class RoundResult:
    """A round and its result."""

    number: int
    world: str
    injected: list[str] = field(default_factory=list)
    effective_faults: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    refused: int = 0


@dataclass(slots=True)
class Totals:
    """The figures of a run."""

    seed: int
    rounds: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    sessions: int = 0
    refused: int = 0
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, round_result: RoundResult) -> None:
        self.rounds += 1
        self.cpu += round_result.cpu
        self.refused += round_result.refused
        for kind in set(round_result.injected):
            row = self.kinds.setdefault(kind, {"rounds": 0, "injected": 0, "bit": 0, "violations": 0})
            row["rounds"] += 1
            row["injected"] += round_result.injected.count(kind)
            row["bit"] += round_result.effective_faults.count(kind)
            row["violations"] += bool(round_result.problems)
        if round_result.problems:
            self.violations.append(asdict(round_result))

    def table(self) -> str:
        lines = ["| fault | rounds | injected | bit | violations |", "|---|---|---|---|---|"]
        rows = ((kind, self.kinds[kind]) for kind in KINDS if kind in self.kinds)
        lines += [f"| `{kind}` | {' | '.join(str(number) for number in row.values())} |" for kind, row in rows]
        return "\n".join(lines)


def play_world(
    seed: int, number: int, rounds: Sequence[int], kinds: Sequence[str], styles: Sequence[str], report: Any
) -> None:
    """Play the rounds of one world and report each; stop after a violation."""
    style = styles[number % len(styles)]
    if style == "github" and not IS_AVAILABLE:
        style = "local"
    runtimes = ["process", *(["tmux"] if have_tmux() else [])]
    runtime = runtimes[number // len(STYLES) % len(runtimes)] if style != "github" else "process"
    fresh = number % 5 == 4
    folder = Path(tempfile.mkdtemp(prefix="ao-f-"))
    world = None
    try:
        world = FaultWorld(folder, style, runtime, fresh=fresh, seed=f"{seed}:{number}", disk=disk.can_mount())
        world.begin()
        for index in rounds:
            result = play_round(world, seed, index, kinds)
            result.world = f"{style}, {runtime}{', fresh daemons' if fresh else ''}"
            if result.problems:
                result.done.append(f"kept in {_keep_folder(world, seed, index)}")
            report(result)
            if result.problems:
                return
    except BaseException:
        report(RoundResult(rounds[0], f"{style}, {runtime}", problems=[f"the simulator: {traceback.format_exc()}"]))
    finally:
        if world is not None:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)


def play_round(world: FaultWorld, seed: int, index: int, kinds: Sequence[str]) -> RoundResult:
    """Use the product, inject one or two faults, wait until nothing changes, and check the invariants."""
    result = RoundResult(index, "")
    started, cpu = time.monotonic(), _cpu()
    chance = random.Random(f"{seed}/{index}")
    fitting = [
        kind
        for kind in kinds
        if world.style in KINDS[kind].styles
        and world.runtime in KINDS[kind].runtimes
        and (world.disk is not None or not KINDS[kind].needs_disk)
    ]
    names = chance.sample(fitting, min(len(fitting), chance.choice((1, 1, 2))))
    faults: list[InjectedFault] = [KINDS[name](world, random.Random(chance.random())) for name in names]
    pauses = [chance.choice((0.0, chance.uniform(0.0, 0.2), chance.uniform(0.0, 0.6))) for _ in faults]
    refused_before, refusal_count = world.accepted.refused, len(world.refusals)
    log = len(world.log())
    player = world.run_actions(world.plan(), result.done)
    ends = []
    try:
        for name, fault, pause in zip(names, faults, pauses, strict=True):
            time.sleep(pause)
            result.injected.append(name)
            fault.inject()
            ends.append((time.monotonic() + fault.duration(), fault))
        while lasting := [fault for end, fault in ends if end > time.monotonic()]:
            for fault in lasting:
                fault.watch()
            time.sleep(0.003)
    finally:
        for _, fault in reversed(ends):
            fault.restore()
    player.join(120)
    world.user.retry_undo()
    try:
        world.wait_until_settled()
        text = "\n".join([*world.refusals[refusal_count:], world.log()[log:], *world.recent_failures()])
        for name, fault in zip(names, faults, strict=True):
            fault.detect_effect(text)
            result.effective_faults += [name] if fault.had_effect else []
        result.problems = _lasting_problems(world)
        if result.problems and any(fault.trigger_recovery() for fault in faults):
            world.wait_until_settled()
            result.problems = _lasting_problems(world)
        world.mark_log_read()
    except Exception as error:
        result.problems = [
            f"{type(error).__name__}: {error}",
            *(f"one daemon: {line}" for line in one_daemon(world, {}, [])),
        ]
    for name, fault in zip(names, faults, strict=True):
        result.done.append(f"{name}: {', '.join(fault.notes)}{'' if fault.had_effect else ' (did not bite)'}")
    result.refused = world.accepted.refused - refused_before
    result.seconds, result.cpu = time.monotonic() - started, _cpu() - cpu
    return result


def _lasting_problems(world: FaultWorld) -> list[str]:
    """Return the problems that last longer than `MAX_PROBLEM_SECONDS`."""
    until = time.monotonic() + MAX_PROBLEM_SECONDS
    while (wrong := check_all(world)) and time.monotonic() < until:
        time.sleep(0.2)
        world.wait_until_settled()
    return wrong


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _keep_folder(world: FaultWorld, seed: int, index: int) -> str:
    """Copy a world's folder for inspection and return its path."""
    target = Path(tempfile.gettempdir()) / f"ao-faults-{seed}-{index}"
    shutil.rmtree(target, ignore_errors=True)

    def unreadable(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()]

    try:
        shutil.copytree(world.folder, target, symlinks=True, ignore=unreadable)
    except (OSError, shutil.Error) as error:
        return f"{target} ({error})"
    return str(target)


def _work(wire: Connection, seed: int, kinds: Sequence[str], styles: Sequence[str]) -> None:
    """Play worlds in a worker process."""
    if disk.can_mount():
        disk.unshare_mounts()
    while True:
        try:
            number, rounds = wire.recv()
        except EOFError:
            os._exit(0)
        play_world(seed, number, rounds, kinds, styles, wire.send)
        wire.send(None)


def play(
    rounds: int,
    seed: int,
    *,
    jobs: int = 1,
    kinds: Sequence[str] = tuple(KINDS),
    styles: Sequence[str] = STYLES,
    minutes: float = 0.0,
    only_round: int | None = None,
    first: int = 1,
    say: bool = True,
    report: bool = False,
    until_wrong: bool = False,
) -> Totals:
    """Play the rounds, several worlds at a time; with `only_round` just the world of this round, up to it."""
    totals, started = Totals(seed), time.monotonic()
    numbers = range(first, first + rounds)
    worlds: dict[int, list[int]] = {}
    for index in numbers if only_round is None else range(1, only_round + 1):
        worlds.setdefault((index - 1) // WORLD_ROUNDS, []).append(index)
    if only_round is not None:
        worlds = {number: indexes for number, indexes in worlds.items() if only_round in indexes}
    waiting = sorted(worlds.items())
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, Any] = {}
    for _ in range(min(jobs, len(waiting))):
        own_end, worker_end = context.Pipe()
        process = context.Process(target=_work, args=(worker_end, seed, list(kinds), list(styles)))
        process.start()
        worker_end.close()
        workers[own_end] = process
        own_end.send(waiting.pop(0))
    reported_fifties = 0
    while workers:
        for wire in wait(list(workers)):
            assert isinstance(wire, Connection)
            try:
                result = wire.recv()
            except EOFError:
                workers.pop(wire).join()
                continue
            if result is not None:
                totals.add(result)
                if report or result.problems:
                    _print_round(seed, result)
                continue
            is_over = (minutes and time.monotonic() - started > minutes * 60) or (until_wrong and totals.violations)
            if waiting and not is_over:
                wire.send(waiting.pop(0))
            else:
                wire.close()
                workers.pop(wire).join()
        if say and totals.rounds // 50 > reported_fifties:
            reported_fifties = totals.rounds // 50
            spent = time.monotonic() - started
            sys.stderr.write(f"{totals.rounds} rounds, {len(totals.violations)} violated, {spent:.0f} s\n")
    totals.seconds = time.monotonic() - started
    return totals


def _print_round(seed: int, result: RoundResult) -> None:
    sys.stderr.write(
        f"round {result.number}, {result.world}, {result.seconds:.1f} s (again: --seed {seed} --replay {result.number}):\n"
    )
    sys.stderr.writelines(f"  did {line}\n" for line in result.done)
    sys.stderr.writelines(f"  WRONG {line}\n" for line in result.problems)


def main() -> int:
    """Play the requested rounds and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.faults.run")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 2, help="worlds at a time")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no more worlds after so long")
    parser.add_argument("--kinds", default=",".join(KINDS), help="only these faults")
    parser.add_argument("--styles", default=",".join(STYLES), help="the worlds there are, in turn")
    parser.add_argument("--replay", type=int, metavar="ROUND", help="the world of this round, up to it")
    parser.add_argument("--tell", action="store_true", help="say what was done in every round")
    parser.add_argument("--until-wrong", action="store_true", help="begin no more worlds after the first violation")
    parser.add_argument("--report", type=Path, help="write the figures there, as JSON")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(options.styles.split(",")) - set(STYLES):
        parser.error(f"there is no world {', '.join(sorted(unknown))}; there are {', '.join(sorted(set(STYLES)))}")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    totals = play(
        options.rounds,
        options.seed,
        jobs=options.jobs,
        kinds=kinds,
        styles=options.styles.split(","),
        minutes=options.minutes,
        only_round=options.replay,
        first=options.first,
        report=options.tell,
        until_wrong=options.until_wrong,
    )
    sys.stdout.write(
        f"{totals.table()}\n\n{totals.rounds} rounds with seed {totals.seed} in {totals.seconds:.0f} s, "
        f"{totals.refused} requests refused, {len(totals.violations)} rounds with a violation\n"
    )
    if options.report:
        options.report.write_text(json.dumps(asdict(totals), indent=1) + "\n")
    return 1 if totals.violations else 0


if __name__ == "__main__":
    sys.exit(main())
