"""How many tests passed, read from the runners' output, independently of the product."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def _sum(pattern: str) -> Callable[[str], int]:
    regex = re.compile(pattern, re.M)
    return lambda text: sum(int(number) for number in regex.findall(text))


def _unittest(text: str) -> int:
    total = _sum(r"^Ran (\d+) tests? in")(text)
    return (
        total
        - _sum(r"^(?:FAILED|OK) \(.*?failures=(\d+)")(text)
        - sum(
            _sum(rf"^(?:FAILED|OK) \(.*?\b{outcome}=(\d+)")(text)
            for outcome in ("errors", "skipped", "expected failures")
        )
    )


def _go(text: str) -> int:
    return len(re.findall(r"^\s*--- PASS", text, re.M)) or len(re.findall(r"^ok\s+\S", text, re.M))


def _ctest(text: str) -> int:
    return sum(int(total) - int(bad) for bad, total in re.findall(r"(\d+) tests failed out of (\d+)", text))


RUNNERS: Mapping[str, Callable[[str], int]] = {
    "pytest": _sum(r"^=*[^\n]*?\b(\d+) passed\b[^\n]* in [\d.]+ ?s"),
    "unittest": _unittest,
    "tap": _sum(r"^\s*(?:#|ℹ) pass\s+(\d+)"),
    "mocha": _sum(r"^\s*(\d+) passing"),
    "ava": _sum(r"^\s*(\d+) tests? passed"),
    "jest": _sum(r"^Tests:[^\n]*?(\d+) passed"),
    "vitest": _sum(r"^\s*Tests\s[^\n]*?(\d+) passed"),
    "go": _go,
    "cargo": _sum(r"^test result: \w+\. (\d+) passed"),
    "ctest": _ctest,
    "meson": _sum(r"^Ok:\s+(\d+)"),
    "printed": _sum(r"^\s*(?:PASSED|passing):\s+(\d+)"),
    "automake": _sum(r"^# PASS:\s+(\d+)"),
}
"""Counting functions by the runner's name; node:test and tape are `tap`; `printed` is the last line of tap-spec and similar programs."""


def count_passed(runner: str, output: str) -> int:
    """Return the number of tests that passed according to a runner's output; 0 if it shows none."""
    return RUNNERS[runner](_COLOUR.sub("", output))
