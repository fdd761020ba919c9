"""`python -m tests.faults.run --rounds 100 --seed 1`: a failing round says how to play it again, and everything that was done in it."""

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
from tests.faults.forge_server import PRESENT
from tests.faults.invariants import check, one_daemon
from tests.faults.kinds import KINDS, Fault
from tests.faults.play import World

WORLD_ROUNDS = 8
"""Rounds that one world lives through; then a new one begins."""
ON_ITS_WAY = 5.0
"""Seconds that something which nothing shows may still be on its way, as an answer of a slow forge; what is wrong after them is wrong."""
STYLES = ("plain", "local", "github", "plain", "local")


@dataclass(slots=True)
class Round:
    """What one round was, and what came of it."""

    number: int
    world: str
    injected: list[str] = field(default_factory=list)
    bit: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    refused: int = 0


@dataclass(slots=True)
class Totals:
    """A run's figures."""

    seed: int
    rounds: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    sessions: int = 0
    refused: int = 0
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, one: Round) -> None:
        self.rounds += 1
        self.cpu += one.cpu
        self.refused += one.refused
        for kind in set(one.injected):
            row = self.kinds.setdefault(kind, {"rounds": 0, "injected": 0, "bit": 0, "violations": 0})
            row["rounds"] += 1
            row["injected"] += one.injected.count(kind)
            row["bit"] += one.bit.count(kind)
            row["violations"] += bool(one.wrong)
        if one.wrong:
            self.violations.append(asdict(one))

    def table(self) -> str:
        lines = ["| fault | rounds | injected | bit | violations |", "|---|---|---|---|---|"]
        rows = ((kind, self.kinds[kind]) for kind in KINDS if kind in self.kinds)
        lines += [f"| `{kind}` | {' | '.join(str(number) for number in row.values())} |" for kind, row in rows]
        return "\n".join(lines)


def play_world(
    seed: int, number: int, rounds: Sequence[int], kinds: Sequence[str], styles: Sequence[str], tell: Any
) -> None:
    """Play the rounds of one world; each is told when it is over. A world in which something was wrong ends there."""
    style = styles[number % len(styles)]
    if style == "github" and not PRESENT:
        style = "local"
    runtimes = ["process", *(["tmux"] if have_tmux() else [])]
    runtime = runtimes[number // len(STYLES) % len(runtimes)] if style != "github" else "process"
    fresh = number % 5 == 4
    folder = Path(tempfile.mkdtemp(prefix="ao-f-"))
    world = None
    try:
        world = World(folder, style, runtime, fresh=fresh, seed=f"{seed}:{number}", disk=disk.possible())
        world.begin()
        for index in rounds:
            one = play_round(world, seed, index, kinds)
            one.world = f"{style}, {runtime}{', fresh daemons' if fresh else ''}"
            if one.wrong:
                one.done.append(f"kept in {_keep(world, seed, index)}")
            tell(one)
            if one.wrong:
                return
    except BaseException:
        tell(Round(rounds[0], f"{style}, {runtime}", wrong=[f"the simulator: {traceback.format_exc()}"]))
    finally:
        if world is not None:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)


def play_round(world: World, seed: int, index: int, kinds: Sequence[str]) -> Round:
    """Use the product, inject one or two faults, let everything come to rest, compare."""
    one = Round(index, "")
    begun, cpu = time.monotonic(), _cpu()
    chance = random.Random(f"{seed}/{index}")
    fitting = [
        kind
        for kind in kinds
        if world.style in KINDS[kind].styles
        and world.runtime in KINDS[kind].runtimes
        and (world.disk is not None or not KINDS[kind].needs_disk)
    ]
    names = chance.sample(fitting, min(len(fitting), chance.choice((1, 1, 2))))
    faults: list[Fault] = [KINDS[name](world, random.Random(chance.random())) for name in names]
    pauses = [chance.choice((0.0, chance.uniform(0.0, 0.2), chance.uniform(0.0, 0.6))) for _ in faults]
    refused, said = world.known.refused, len(world.said)
    log = len(world.log())
    player = world.use(world.plan(), one.done)
    ends = []
    try:
        for name, fault, pause in zip(names, faults, pauses, strict=True):
            time.sleep(pause)
            one.injected.append(name)
            fault.inject()
            ends.append((time.monotonic() + fault.last(), fault))
        while lasting := [fault for end, fault in ends if end > time.monotonic()]:
            for fault in lasting:
                fault.watch()
            time.sleep(0.003)
    finally:
        for _, fault in reversed(ends):
            fault.mend()
    player.join(120)
    world.user.tidy()
    try:
        world.settle()
        heard = "\n".join([*world.said[said:], world.log()[log:], *world.reasons()])
        for name, fault in zip(names, faults, strict=True):
            fault.read(heard)
            one.bit += [name] if fault.bit else []
        one.wrong = _checked(world)
        if one.wrong and any(fault.outlast() for fault in faults):
            world.settle()
            one.wrong = _checked(world)
        world.round_is_over()
    except Exception as error:
        one.wrong = [f"{type(error).__name__}: {error}", *(f"one daemon: {line}" for line in one_daemon(world, {}, []))]
    for name, fault in zip(names, faults, strict=True):
        one.done.append(f"{name}: {', '.join(fault.notes)}{'' if fault.bit else ' (did not bite)'}")
    one.refused = world.known.refused - refused
    one.seconds, one.cpu = time.monotonic() - begun, _cpu() - cpu
    return one


def _checked(world: World) -> list[str]:
    """What is wrong, and stays so."""
    until = time.monotonic() + ON_ITS_WAY
    while (wrong := check(world)) and time.monotonic() < until:
        time.sleep(0.2)
        world.settle()
    return wrong


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _keep(world: World, seed: int, index: int) -> str:
    """What a person needs to see what happened."""
    kept = Path(tempfile.gettempdir()) / f"ao-faults-{seed}-{index}"
    shutil.rmtree(kept, ignore_errors=True)

    def ours(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()]

    try:
        shutil.copytree(world.folder, kept, symlinks=True, ignore=ours)
    except (OSError, shutil.Error) as error:
        return f"{kept} ({error})"
    return str(kept)


def _work(wire: Connection, seed: int, kinds: Sequence[str], styles: Sequence[str]) -> None:
    """One of the processes that play worlds."""
    if disk.possible():
        disk.alone()
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
    only: int | None = None,
    first: int = 1,
    say: bool = True,
    tell: bool = False,
    until_wrong: bool = False,
) -> Totals:
    """Play the rounds, several worlds at a time; `only`: the world of this round, up to it."""
    totals, begun = Totals(seed), time.monotonic()
    numbers = range(first, first + rounds)
    worlds: dict[int, list[int]] = {}
    for index in numbers if only is None else range(1, only + 1):
        worlds.setdefault((index - 1) // WORLD_ROUNDS, []).append(index)
    if only is not None:
        worlds = {number: indexes for number, indexes in worlds.items() if only in indexes}
    waiting = sorted(worlds.items())
    context = multiprocessing.get_context("spawn")
    busy: dict[Connection, Any] = {}
    for _ in range(min(jobs, len(waiting))):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, seed, list(kinds), list(styles)))
        process.start()
        theirs.close()
        busy[ours] = process
        ours.send(waiting.pop(0))
    told = 0
    while busy:
        for wire in wait(list(busy)):
            assert isinstance(wire, Connection)
            try:
                one = wire.recv()
            except EOFError:
                busy.pop(wire).join()
                continue
            if one is not None:
                totals.add(one)
                if tell or one.wrong:
                    _say(seed, one)
                continue
            late = (minutes and time.monotonic() - begun > minutes * 60) or (until_wrong and totals.violations)
            if waiting and not late:
                wire.send(waiting.pop(0))
            else:
                wire.close()
                busy.pop(wire).join()
        if say and totals.rounds // 50 > told:
            told = totals.rounds // 50
            spent = time.monotonic() - begun
            sys.stderr.write(f"{totals.rounds} rounds, {len(totals.violations)} violated, {spent:.0f} s\n")
    totals.seconds = time.monotonic() - begun
    return totals


def _say(seed: int, one: Round) -> None:
    sys.stderr.write(
        f"round {one.number}, {one.world}, {one.seconds:.1f} s (again: --seed {seed} --replay {one.number}):\n"
    )
    sys.stderr.writelines(f"  did {line}\n" for line in one.done)
    sys.stderr.writelines(f"  WRONG {line}\n" for line in one.wrong)


def main() -> int:
    """Play rounds as asked."""
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
    if strange := set(options.styles.split(",")) - set(STYLES):
        parser.error(f"there is no world {', '.join(sorted(strange))}; there are {', '.join(sorted(set(STYLES)))}")
    if strange := set(kinds) - set(KINDS):
        parser.error(f"there is no fault {', '.join(sorted(strange))}; there are {', '.join(KINDS)}")
    totals = play(
        options.rounds,
        options.seed,
        jobs=options.jobs,
        kinds=kinds,
        styles=options.styles.split(","),
        minutes=options.minutes,
        only=options.replay,
        first=options.first,
        tell=options.tell,
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
