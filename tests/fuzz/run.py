"""Look for inputs that break something, for a while: `python -m tests.fuzz.run --minutes 10 [--only spool] [--seed 1]`.

What is found is printed and written to `.cache/fuzz-found`; copied into the target's corpus it is replayed with the other tests for good.
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

from tests.fuzz.target import CORPORA, Broken, Target
from tests.fuzz.targets import every

FOUND = Path(".cache/fuzz-found")
AT_ONCE = 100
"""Inputs of one target before it is another one's turn."""


def main() -> int:
    """Explore; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", action="append", default=[], metavar="TARGET")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    with ExitStack() as stack:
        targets = every(stack, given.only)
        if not targets:
            parser.error(f"there is no target {', '.join(given.only)}")
        return _explore(targets, given.minutes * 60, given.seed)


def _explore(targets: list[Target], seconds: float, seed: int) -> int:
    _say(f"seed {seed}, {len(targets)} targets, {seconds / 60:g} min")
    end, number, tried, broken = time.monotonic() + seconds, seed, Counter[str](), dict[str, Exception]()
    for target in targets:
        try:
            target.replay()
        except Exception as error:
            broken[target.name] = error
            _say("".join(traceback.format_exception(error)))
    while time.monotonic() < end and len(broken) < len(targets):
        number += 1
        for target in targets:
            if target.name in broken or time.monotonic() > end:
                continue
            try:
                target.explore(min(AT_ONCE, target.examples * 4), number)
            except Broken as found:
                broken[target.name] = found
                _tell(found, number)
            tried[target.name] += min(AT_ONCE, target.examples * 4)
    for name, count in sorted(tried.items()):
        _say(f"{name:24} {count:8} inputs{'  BROKEN' if name in broken else ''}")
    return 1 if broken else 0


def _tell(found: Broken, number: int) -> None:
    place = FOUND / found.target / found.file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(found.data)
    _say("".join(traceback.format_exception(found)))
    _say(f"{found.target}: seed {number}. Keep it: cp {place} {CORPORA.relative_to(Path.cwd()) / found.target}/\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
