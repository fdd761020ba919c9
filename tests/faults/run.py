"""`python -m tests.faults.run --rounds 100 --seed 1`: a failing round prints its seed and everything that was done in it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.faults.invariants import check, settle
from tests.faults.play import World

WORLD_ROUNDS = 10
"""Rounds that one world lives through; then a new one begins, on the other runtime."""


def play(rounds: int, seed: int, say: bool = True) -> list[str]:
    """Play the rounds; returns what was wrong."""
    begun, done = time.monotonic(), 0
    kinds: Counter[str] = Counter()
    runtimes = ["process", *(["tmux"] if have_tmux() else [])]
    while done < rounds:
        number = done // WORLD_ROUNDS
        runtime = runtimes[number % len(runtimes)]
        folder = Path(tempfile.mkdtemp(prefix="ao-faults-"))
        with Sandbox(folder, runtime, {"AO_DEMO_LOG": str(folder / "truth.jsonl")}) as box:
            box.repository()
            box.start()
            world = World(box, seed + number)
            for _ in range(min(WORLD_ROUNDS, rounds - done)):
                history = world.round()
                kinds.update(
                    line.split()[0] + (" " + line.split()[1] if line.startswith("kill") else "") for line in history
                )
                try:
                    settle(world)
                    wrong = check(world)
                except TimeoutError as error:
                    wrong = [str(error)]
                done += 1
                if wrong:
                    sys.stderr.write(f"round {done}, seed {seed + number}, {runtime}, {folder}:\n")
                    sys.stderr.writelines(f"  did {line}\n" for line in history)
                    sys.stderr.writelines(f"  WRONG {line}\n" for line in wrong)
                    return wrong
                if say and done % 10 == 0:
                    sys.stderr.write(
                        f"{done} rounds, {len(world.known.sessions)} sessions, {time.monotonic() - begun:.0f} s\n"
                    )
        shutil.rmtree(folder, ignore_errors=True)
    if say:
        sys.stdout.write(
            f"{done} rounds, no invariant violated, {time.monotonic() - begun:.0f} s; "
            + ", ".join(f"{n} × {k}" for k, n in sorted(kinds.items()))
            + "\n"
        )
    return []


def main() -> int:
    """Play rounds as asked."""
    parser = argparse.ArgumentParser(prog="tests.faults.run")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return 1 if play(options.rounds, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
