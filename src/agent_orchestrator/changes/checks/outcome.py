"""The outcome of a check, test by test, and its comparison with another run: `Outcome`, `compare_outcomes(here, base)`,
`common_failures(first, second)`.

`runners.read_outcome(...)` reads an outcome from reports and output. Pure functions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

WHOLE_OUTPUT = "the command"
"""Prefix of the name of a failure that is the whole output, used when no single failures can be read from it."""
UNNAMED_FAILURES = "failed tests without a name of their own"
"""Name for failures that are counted but share their names with others."""
_PARAMETERS = re.compile(r"(?:\[[^\]]*\]|\s\(\d+\))$")
_PART_SEPARATOR = re.compile(r"::| > |[./]| [\[(]")
"""Positions where a test's name can be cut to get the file, the suite or the test that it belongs to."""


@dataclass(frozen=True, slots=True)
class TestCounts:
    """The numbers of tests from the command's own report."""

    __test__ = False

    passed: int
    failed: int
    skipped: int
    total: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run of a check."""

    counts: TestCounts | None = None
    """The numbers of tests, or None if the output does not contain them."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """One line of message by failure name; the names are the same in every run."""
    passed: tuple[str, ...] = ()
    """Names of the passed tests, if all of them are named."""
    skipped: tuple[str, ...] = ()
    """Names of the skipped tests, where they are named."""
    not_loaded: tuple[str, ...] = ()
    """The failures that are files or packages whose tests could not be run at all."""
    stopped: bool = False
    """Whether the run ended early, so that tests missing from it still exist."""
    names_vary: bool = False
    """Whether the runner names passing tests in some runs only: jest and vitest do so when one file is run."""

    @property
    def executed_count(self) -> int:
        """The number of tests that were run, passed or failed."""
        return max(0, self.counts.passed + self.counts.failed - len(self.not_loaded)) if self.counts else 0

    @property
    def has_passed_names(self) -> bool:
        """Whether every passed test is named."""
        return bool(self.passed) or not (self.counts and self.counts.passed)

    @property
    def has_only_failures(self) -> bool:
        """Whether tests were executed and every one of them failed."""
        return self.executed_count > 0 and self.counts is not None and not self.counts.passed

    @property
    def unnamed_failures(self) -> int:
        """The number of failed tests that are counted but have no name of their own."""
        return max(0, self.counts.failed - len(self.failures)) if self.counts and self.failures else 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a run and one of the base branch."""

    new: Mapping[str, str]
    """Failures that the base does not have: message by name."""
    vanished: tuple[str, ...] = ()
    """Tests that pass on the base and no longer exist."""
    newly_skipped: tuple[str, ...] = ()
    """Tests that pass on the base and are skipped."""
    fewer: int = 0
    """The number of tests fewer than on the base, where they cannot be named."""


def compare_outcomes(here: Outcome, base: Outcome) -> Comparison:
    """Compare a run with one of the base branch.

    Tests that are missing because the run ended early, or because their file cannot be loaded, do not count as vanished. If this run names
    no passing test although the base names them, all of the base's passed tests count as vanished: otherwise a change could hide removed
    tests by hiding the names.
    """
    new = {name: message for name, message in here.failures.items() if name not in base.failures}
    if base.failures and (extra_failures := here.unnamed_failures - base.unnamed_failures) > 0 and not new:
        new = {UNNAMED_FAILURES: f"{extra_failures} more than on the base branch, with the names of others"}
    if here.failures and (not here.executed_count or (new and here.stopped)):
        return Comparison(new)
    if not (here.has_passed_names and base.has_passed_names):
        if base.has_passed_names and base.passed and not here.names_vary and not new:
            return Comparison(new, tuple(sorted({*base.passed} - {*here.skipped, *here.failures})))
        return Comparison(new, fewer=0 if new else max(0, base.executed_count - here.executed_count))
    skipped = set(here.skipped).intersection(base.passed)
    return Comparison(new, _vanished(here, base), tuple(sorted(skipped)))


def common_failures(first: Outcome, second: Outcome) -> Outcome:
    """Return what two runs of the same content agree on; a test that failed in only one of them failed by chance."""
    failures = {name: message for name, message in second.failures.items() if name in first.failures}
    if not failures:
        return replace(second, failures=_without_digest(first.failures, second.failures))
    chance_failures = (first.failures.keys() ^ second.failures.keys()) - set(second.passed)
    passed = (*second.passed, *sorted(chance_failures)) if second.passed else ()
    unloaded = tuple(name for name in second.not_loaded if name in failures)
    return replace(second, failures=failures, passed=passed, not_loaded=unloaded)


def _vanished(here: Outcome, base: Outcome) -> tuple[str, ...]:
    """Return the tests that passed on the base and are missing here, sorted.

    Not counted: tests in a file or package that could not be loaded, names of which a part fails now (`TestX` if `TestX/case`
    fails), and tests that only have other parameters.
    """
    current_names = {*here.passed, *here.skipped, *here.failures}
    missing_names = [name for name in base.passed if name not in current_names]
    if not missing_names:
        return ()
    parents = {parent for name in here.failures for parent in _parents(name)}
    unloaded = set(here.not_loaded)
    missing_names = [name for name in missing_names if name not in parents and unloaded.isdisjoint(_parents(name))]
    return tuple(sorted(set(missing_names) - _renamed(missing_names, current_names, base)))


def _renamed(missing_names: Iterable[str], current_names: Iterable[str], base: Outcome) -> set[str]:
    """Return the missing tests that only have other parameters now, if their test has at least as many variants as before."""
    stems = {_stem(name) for name in missing_names}
    counts_before = Counter(
        stem for name in (*base.passed, *base.skipped, *base.failures) if (stem := _stem(name)) in stems
    )
    counts_now = Counter(stem for name in current_names if (stem := _stem(name)) in stems)
    return {
        name for name in missing_names if _stem(name) != name and counts_now[_stem(name)] >= counts_before[_stem(name)]
    }


def _stem(name: str) -> str:
    """Return a test's name without its parameters."""
    return _PARAMETERS.sub("", name)


def _parents(name: str) -> Iterable[str]:
    """Return the names of the files, suites and tests that a test belongs to."""
    return (name[: separator.start()] for separator in _PART_SEPARATOR.finditer(name))


def _without_digest(first: Mapping[str, str], second: Mapping[str, str]) -> Mapping[str, str]:
    """Return the failures, without the output's digest if both runs have one whole-output failure that differs only there.

    Output that is different in every run is the same failure.
    """
    if len(first) == len(second) == 1:
        (first_name,), (second_name,) = first, second
        if (
            first_name.startswith(WHOLE_OUTPUT)
            and second_name.startswith(WHOLE_OUTPUT)
            and first_name.partition(", output")[0] == second_name.partition(", output")[0]
        ):
            return {second_name.partition(", output")[0]: second[second_name]}
    return second
