"""Search for inputs that break a target: `python -m tests.fuzz.run --minutes 10 [--only spool] [--seed 1]`.

Failing inputs are printed and written to `.cache/fuzz-found`; copied into the target's corpus they are replayed with the other tests.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.target import CORPORA, BrokenTarget, FuzzTarget
from tests.fuzz.targets import all_targets

FOUND_FOLDER = Path(".cache/fuzz-found")
EXAMPLES_PER_TURN = 100
"""Inputs of one target before the next target."""


def main() -> int:
    """Explore the targets and return 1 if one is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", action="append", default=[], metavar="TARGET")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    with ExitStack() as stack:
        targets = all_targets(stack, options.only)
        if not targets:
            parser.error(f"there is no target {', '.join(options.only)}")
        return _explore(targets, options.minutes * 60, options.seed)


def _explore(targets: list[FuzzTarget], seconds: float, seed: int) -> int:
    _print_line(f"seed {seed}, {len(targets)} targets, {seconds / 60:g} min")
    end, number, tried, broken = time.monotonic() + seconds, seed, Counter[str](), dict[str, Exception]()
    for target in targets:
        try:
            target.replay()
        except Exception as error:
            broken[target.name] = error
            _print_line("".join(traceback.format_exception(error)))
    while time.monotonic() < end and len(broken) < len(targets):
        number += 1
        for target in targets:
            if target.name in broken or time.monotonic() > end:
                continue
            try:
                target.explore(min(EXAMPLES_PER_TURN, target.examples * 4), number)
            except BrokenTarget as failure:
                broken[target.name] = failure
                _report(failure, number)
            tried[target.name] += min(EXAMPLES_PER_TURN, target.examples * 4)
    for name, count in sorted(tried.items()):
        _print_line(f"{name:24} {count:8} inputs{'  BROKEN' if name in broken else ''}")
    return 1 if broken else 0


def _report(failure: BrokenTarget, number: int) -> None:
    file = FOUND_FOLDER / failure.target / failure.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(failure.data)
    _print_line("".join(traceback.format_exception(failure)))
    _print_line(
        f"{failure.target}: seed {number}. Keep it: cp {file} {CORPORA.relative_to(Path.cwd()) / failure.target}/\n"
    )


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
