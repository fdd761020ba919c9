"""What all readers say of one output and its reports, put together: `read(output, reports, exit_code=…)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.changes.checks import summary
from agent_orchestrator.changes.checks.outcome import Outcome, TestCounts
from agent_orchestrator.changes.checks.runners.common import FAILED, PASSED, SKIPPED, UNLOADED, Reading, Test
from agent_orchestrator.changes.checks.runners.compiled import read_cargo, read_go
from agent_orchestrator.changes.checks.runners.errors import read_errors, whole
from agent_orchestrator.changes.checks.runners.jest import read_jest, read_vitest
from agent_orchestrator.changes.checks.runners.node import read_ava, read_mocha, read_node
from agent_orchestrator.changes.checks.runners.other import read_automake, read_ctest, read_meson, read_prove
from agent_orchestrator.changes.checks.runners.python import read_pytest, read_unittest
from agent_orchestrator.changes.checks.runners.reports import read_reports
from agent_orchestrator.changes.checks.runners.tap import read_tap

_LONGEST_LINE = 4000
_NAMES_VARY = ("jest", "vitest")
_OTHERS_ENDED = "ERR_PNPM_RECURSIVE_RUN_FIRST_FAIL"
"""pnpm ends the tests of other packages once those of one have failed."""
_READERS = (
    read_pytest,
    read_unittest,
    read_node,
    read_mocha,
    read_ava,
    read_jest,
    read_vitest,
    read_go,
    read_cargo,
    read_ctest,
    read_meson,
    read_automake,
    read_prove,
    read_tap,
)
_WORST, _BEST = (FAILED, UNLOADED, PASSED, SKIPPED), (PASSED, FAILED, UNLOADED, SKIPPED)
"""Which state counts where one test has several: a test that passes when it is tried again passes, if the command says so."""

States = dict[str, tuple[str, str]]
"""State and message by name."""


def read(output: str, reports: Sequence[Path], *, exit_code: int | None, top: Path | None = None) -> Outcome:
    """Read what a command said from its reports and the end of its output; `top` is the folder that it ran in.

    A command that ended with 0 has no failures, and one that did not has at least one.
    """
    lines = read_lines(output, top)
    readings = _of_output(lines)
    if reported := read_reports(reports, top):
        readings = [reported, *_beside(reported, readings)]
    if any(_OTHERS_ENDED in line for line in lines):
        readings = [replace(one, stopped=True) for one in readings]
    states = _states(readings, _BEST if exit_code == 0 else _WORST)
    failures = {name: message for name, (state, message) in states.items() if state in (FAILED, UNLOADED)}
    if exit_code == 0:
        return _outcome(readings, states, {}, {*failures})
    failures |= read_errors(lines, [(one.begin, one.end) for one in readings if one.end] if failures else [])
    if not failures:
        name, message = whole(lines, exit_code)
        failures = {name: message}
    return _outcome(readings, states, failures, set())


def read_lines(output: str, top: Path | None = None) -> list[str]:
    """Return output as plain lines, with paths as they are in the repository."""
    text = summary.plain(output)
    for place in sorted({str(top), str(top.resolve())}, key=len, reverse=True) if top else ():
        text = text.replace(f"file://{place}/", "").replace(f"{place}/", "").replace(place, ".")
    return summary.by_package([line[:_LONGEST_LINE].rstrip() for line in text.split("\n")])


def _of_output(lines: Sequence[str]) -> list[Reading]:
    readings = [found for read in _READERS if (found := read(lines))]
    if any(one.runner == "prove" for one in readings):
        return [one for one in readings if one.runner != "tap"]  # it shows what the tests print
    return readings


def _beside(reported: Reading, readings: Sequence[Reading]) -> list[Reading]:
    """What the output says of other runs than the one that wrote the reports."""
    others = []
    for one in readings:
        if reported.runner == "pytest" and one.runner == "pytest":
            reported.stopped = one.stopped
            reported.begin, reported.end = one.begin, one.end
            if one.runs > 1:
                others.append(one)  # a later run has overwritten the report of an earlier one
        elif reported.runner == "pytest":
            others.append(one)
        elif any(test.state == FAILED for test in reported.tests):
            others.append(Reading(one.runner, stopped=one.stopped, begin=one.begin, end=one.end))
        else:
            failed = [test for test in one.tests if test.state in (FAILED, UNLOADED)]
            others.append(Reading(one.runner, failed, None, one.unique, one.stopped, begin=one.begin, end=one.end))
    return others


def _states(readings: Iterable[Reading], order: Sequence[str]) -> States:
    """State and message of every test by name; tests that share one are numbered, failures first."""
    states: States = {}
    for tests in _by_runner(readings, order).values():
        named: dict[str, list[Test]] = {}
        for test in tests:
            named.setdefault(test.name, []).append(test)
        for name, same in named.items():
            same.sort(key=lambda test: order.index(test.state))
            number = 1
            for test in same:
                numbered = name if number == 1 else f"{name} ({number})"
                while numbered in states:
                    number += 1
                    numbered = f"{name} ({number})"
                states[numbered] = test.state, test.message
                number += 1
    return states


def _by_runner(readings: Iterable[Reading], order: Sequence[str]) -> dict[str, list[Test]]:
    tests: dict[str, list[Test]] = {}
    unique = set()
    for reading in readings:
        tests.setdefault(reading.runner, []).extend(reading.tests)
        if reading.unique:
            unique.add(reading.runner)
    for runner in unique:
        merged: dict[str, Test] = {}
        for test in tests[runner]:
            known = merged.get(test.name)
            if known is None or order.index(test.state) < order.index(known.state):
                merged[test.name] = test
        tests[runner] = list(merged.values())
    return tests


def _outcome(readings: Sequence[Reading], states: States, failures: dict[str, str], ignored: set[str]) -> Outcome:
    """Put it together; a failure that the command does not count, by ending with 0, is as good as skipped."""
    named = all(one.names_passed() for one in readings)
    passed = tuple(name for name, (state, _) in states.items() if state == PASSED) if named else ()
    skipped = (*(name for name, (state, _) in states.items() if state == SKIPPED), *sorted(ignored)) if named else ()
    unloaded = tuple(name for name, (state, _) in states.items() if state == UNLOADED and name in failures)
    stopped = any(one.stopped for one in readings)
    names_vary = any(one.runner in _NAMES_VARY for one in readings)
    return Outcome(_counts(readings), failures, passed, skipped, unloaded, stopped, names_vary)


def _counts(readings: Sequence[Reading]) -> TestCounts | None:
    numbers: Counter[str] = Counter()
    for reading in readings:
        if reading.counts:
            numbers.update(passed=reading.counts.passed, failed=reading.counts.failed, skipped=reading.counts.skipped)
        else:
            numbers.update(_counted(reading))
    if not readings:
        return None
    passed, failed, skipped = (numbers[word] for word in ("passed", "failed", "skipped"))
    return TestCounts(passed, failed, skipped, passed + failed + skipped)


def _counted(reading: Reading) -> Counter[str]:
    states = _by_runner([reading], _WORST)[reading.runner]
    return Counter("failed" if test.state == UNLOADED else test.state for test in states)
