"""What a check says, test by test, and how that compares with another run: `Outcome`, `compare(here, base)`, `both(first, second)`.

`runners.read_outcome(...)` reads it from reports and output. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

WHOLE = "the command"
"""How the name of a failure begins that is the whole output, because nothing in it could be told apart."""
MORE = "failed tests without a name of their own"
"""The name of failures that are counted, but share their names with others."""
_PARAMETERS = re.compile(r"(?:\[[^\]]*\]|\s\(\d+\))$")
_PART = re.compile(r"::| > |[./]| [\[(]")
"""Where a test's name may be cut to get the file, the suite or the test that it belongs to."""


@dataclass(frozen=True, slots=True)
class TestCounts:
    """How many tests there were, as the command's own report tells."""

    __test__ = False

    passed: int
    failed: int
    skipped: int
    total: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a check says."""

    counts: TestCounts | None = None
    """How many tests there were; none if nothing tells."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What fails: a name that is the same in every run, and one line of message."""
    passed: tuple[str, ...] = ()
    """The tests that passed, where all of them are named."""
    skipped: tuple[str, ...] = ()
    """The tests that were skipped, where they are named."""
    unloaded: tuple[str, ...] = ()
    """Those of the failures that are files or packages whose tests could not be run at all."""
    stopped: bool = False
    """The run ended early: the tests that are not in it are not gone."""
    names_vary: bool = False
    """Its runner names the passing tests in some runs only: jest and vitest, where one file is run."""

    @property
    def executed(self) -> int:
        """How many tests were run, whatever came of them."""
        return max(0, self.counts.passed + self.counts.failed - len(self.unloaded)) if self.counts else 0

    @property
    def names_passed(self) -> bool:
        """Whether every test that passed is named."""
        return bool(self.passed) or not (self.counts and self.counts.passed)

    @property
    def none_passes(self) -> bool:
        """Whether tests were executed and every one of them failed."""
        return self.executed > 0 and self.counts is not None and not self.counts.passed

    @property
    def unnamed_failures(self) -> int:
        """How many failed tests more are counted than have a name of their own."""
        return max(0, self.counts.failed - len(self.failures)) if self.counts and self.failures else 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a run differs from one of the base branch."""

    new: Mapping[str, str]
    """Failures that the base does not have: name and message."""
    vanished: tuple[str, ...] = ()
    """Tests that pass on the base and are not there any more."""
    newly_skipped: tuple[str, ...] = ()
    """Tests that pass on the base and are skipped."""
    fewer: int = 0
    """How many tests fewer were run, where they cannot be named."""


def compare(here: Outcome, base: Outcome) -> Comparison:
    """Compare a run with one of the base branch.

    Tests are missing from a run that ended early, and from a file that cannot be loaded, without being gone. A run that names no passing
    test where the base branch names them has none of them: who takes the names away could hide which tests are gone.
    """
    new = {name: message for name, message in here.failures.items() if name not in base.failures}
    if base.failures and (more := here.unnamed_failures - base.unnamed_failures) > 0 and not new:
        new = {MORE: f"{more} more than on the base branch, with the names of others"}
    if here.failures and (not here.executed or (new and here.stopped)):
        return Comparison(new)
    if not (here.names_passed and base.names_passed):
        if base.names_passed and base.passed and not here.names_vary and not new:
            return Comparison(new, tuple(sorted({*base.passed} - {*here.skipped, *here.failures})))
        return Comparison(new, fewer=0 if new else max(0, base.executed - here.executed))
    skipped = set(here.skipped).intersection(base.passed)
    return Comparison(new, _vanished(here, base), tuple(sorted(skipped)))


def both(first: Outcome, second: Outcome) -> Outcome:
    """Return what two runs of the same content agree on: what failed only once fails by chance."""
    failures = {name: message for name, message in second.failures.items() if name in first.failures}
    if not failures:
        return replace(second, failures=_without_digest(first.failures, second.failures))
    by_chance = (first.failures.keys() ^ second.failures.keys()) - set(second.passed)
    passed = (*second.passed, *sorted(by_chance)) if second.passed else ()
    unloaded = tuple(name for name in second.unloaded if name in failures)
    return replace(second, failures=failures, passed=passed, unloaded=unloaded)


def _vanished(here: Outcome, base: Outcome) -> tuple[str, ...]:
    there = {*here.passed, *here.skipped, *here.failures}
    gone = [name for name in base.passed if name not in there]
    if not gone:
        return ()
    parents = {parent for name in here.failures for parent in _parents(name)}
    unloaded = set(here.unloaded)
    gone = [name for name in gone if name not in parents and unloaded.isdisjoint(_parents(name))]
    return tuple(sorted(set(gone) - _renamed(gone, there, base)))


def _renamed(gone: Iterable[str], there: Iterable[str], base: Outcome) -> set[str]:
    """Those with other parameters than before, of a test that has not become fewer."""
    stems = {_stem(name) for name in gone}
    before = Counter(stem for name in (*base.passed, *base.skipped, *base.failures) if (stem := _stem(name)) in stems)
    now = Counter(stem for name in there if (stem := _stem(name)) in stems)
    return {name for name in gone if _stem(name) != name and now[_stem(name)] >= before[_stem(name)]}


def _stem(name: str) -> str:
    return _PARAMETERS.sub("", name)


def _parents(name: str) -> Iterable[str]:
    return (name[: found.start()] for found in _PART.finditer(name))


def _without_digest(first: Mapping[str, str], second: Mapping[str, str]) -> Mapping[str, str]:
    """Output that is never the same twice is one failure, whatever it says."""
    if len(first) == len(second) == 1:
        (one,), (other,) = first, second
        if (
            one.startswith(WHOLE)
            and other.startswith(WHOLE)
            and one.partition(", output")[0] == other.partition(", output")[0]
        ):
            return {other.partition(", output")[0]: second[other]}
    return second
