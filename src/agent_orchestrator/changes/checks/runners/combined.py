"""Combine what all readers find in one output and its reports: `combine_readings(output, reports, exit_code=…)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.changes.checks import summary
from agent_orchestrator.changes.checks.outcome import Outcome, TestCounts
from agent_orchestrator.changes.checks.runners.common import FAILED, PASSED, SKIPPED, UNLOADED, RunnerReading, Test
from agent_orchestrator.changes.checks.runners.errors import read_errors, whole_output_failure
from agent_orchestrator.changes.checks.runners.go_and_cargo import read_cargo, read_go
from agent_orchestrator.changes.checks.runners.jest import read_jest, read_vitest
from agent_orchestrator.changes.checks.runners.node import read_ava, read_mocha, read_node
from agent_orchestrator.changes.checks.runners.other import read_automake, read_ctest, read_meson, read_prove
from agent_orchestrator.changes.checks.runners.python import read_pytest, read_unittest
from agent_orchestrator.changes.checks.runners.reports import read_reports
from agent_orchestrator.changes.checks.runners.tap import read_tap

_MAX_LINE_LENGTH = 4000
_RUNNERS_WITH_VARYING_NAMES = ("jest", "vitest")
_PNPM_STOPPED = "ERR_PNPM_RECURSIVE_RUN_FIRST_FAIL"
"""pnpm stops the tests of other packages after those of one have failed."""
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
_FAILURES_FIRST, _PASSES_FIRST = (FAILED, UNLOADED, PASSED, SKIPPED), (PASSED, FAILED, UNLOADED, SKIPPED)
"""Order in which states count if one test has several.

`_PASSES_FIRST` is for a command that ended with 0: a test that passes on a retry has passed then.
"""

TestStates = dict[str, tuple[str, str]]
"""State and message by test name."""


def combine_readings(
    output: str, reports: Sequence[Path], *, exit_code: int | None, top: Path | None = None
) -> Outcome:
    """Read a command's outcome from its reports and the end of its output; `top` is the folder that it ran in.

    A command that ended with 0 has no failures; any other command has at least one.
    """
    lines = read_lines(output, top)
    readings = _read_output(lines)
    if report_reading := read_reports(reports, top):
        readings = [report_reading, *_other_readings(report_reading, readings)]
    if any(_PNPM_STOPPED in line for line in lines):
        readings = [replace(reading, stopped=True) for reading in readings]
    states = _states_by_name(readings, _PASSES_FIRST if exit_code == 0 else _FAILURES_FIRST)
    failures = {name: message for name, (state, message) in states.items() if state in (FAILED, UNLOADED)}
    if exit_code == 0:
        return _outcome(readings, states, {}, {*failures})
    failures |= read_errors(
        lines, [(reading.begin, reading.end) for reading in readings if reading.end] if failures else []
    )
    if not failures:
        name, message = whole_output_failure(lines, exit_code)
        failures = {name: message}
    return _outcome(readings, states, failures, set())


def read_lines(output: str, top: Path | None = None) -> list[str]:
    """Return the output as plain lines, with paths relative to the repository."""
    text = summary.strip_escapes(output)
    for folder in sorted({str(top), str(top.resolve())}, key=len, reverse=True) if top else ():
        text = text.replace(f"file://{folder}/", "").replace(f"{folder}/", "").replace(folder, ".")
    return summary.group_by_package([line[:_MAX_LINE_LENGTH].rstrip() for line in text.split("\n")])


def _read_output(lines: Sequence[str]) -> list[RunnerReading]:
    """Return what each reader that recognizes the output finds in it."""
    readings = [new_reading for read_format in _READERS if (new_reading := read_format(lines))]
    if any(reading.runner == "prove" for reading in readings):
        return [reading for reading in readings if reading.runner != "tap"]  # prove shows the TAP output of the tests
    return readings


def _other_readings(report_reading: RunnerReading, readings: Sequence[RunnerReading]) -> list[RunnerReading]:
    """Return the readings of runs other than the one that wrote the reports.

    Also copies to `report_reading` what only pytest's output shows: where it is, and whether the run ended early.
    """
    others = []
    for reading in readings:
        if report_reading.runner == "pytest" and reading.runner == "pytest":
            report_reading.stopped = reading.stopped
            report_reading.begin, report_reading.end = reading.begin, reading.end
            if reading.runs > 1:
                others.append(reading)  # the report of an earlier run was overwritten by a later one
        elif report_reading.runner == "pytest":
            others.append(reading)
        elif any(test.state == FAILED for test in report_reading.tests):
            others.append(RunnerReading(reading.runner, stopped=reading.stopped, begin=reading.begin, end=reading.end))
        else:
            failed = [test for test in reading.tests if test.state in (FAILED, UNLOADED)]
            others.append(
                RunnerReading(
                    reading.runner,
                    failed,
                    None,
                    reading.has_unique_names,
                    reading.stopped,
                    begin=reading.begin,
                    end=reading.end,
                )
            )
    return others


def _states_by_name(readings: Iterable[RunnerReading], order: Sequence[str]) -> TestStates:
    """Return state and message of every test by name; tests that share a name are numbered, failures first."""
    states: TestStates = {}
    for tests in _by_runner(readings, order).values():
        named: dict[str, list[Test]] = {}
        for test in tests:
            named.setdefault(test.name, []).append(test)
        for name, same_name_tests in named.items():
            same_name_tests.sort(key=lambda test: order.index(test.state))
            number = 1
            for test in same_name_tests:
                numbered = name if number == 1 else f"{name} ({number})"
                while numbered in states:
                    number += 1
                    numbered = f"{name} ({number})"
                states[numbered] = test.state, test.message
                number += 1
    return states


def _by_runner(readings: Iterable[RunnerReading], order: Sequence[str]) -> dict[str, list[Test]]:
    """Return the tests by runner; if a runner's names are unique, a repeated test has its first state in `order`."""
    tests: dict[str, list[Test]] = {}
    unique = set()
    for reading in readings:
        tests.setdefault(reading.runner, []).extend(reading.tests)
        if reading.has_unique_names:
            unique.add(reading.runner)
    for runner in unique:
        merged: dict[str, Test] = {}
        for test in tests[runner]:
            previous = merged.get(test.name)
            if previous is None or order.index(test.state) < order.index(previous.state):
                merged[test.name] = test
        tests[runner] = list(merged.values())
    return tests


def _outcome(
    readings: Sequence[RunnerReading], states: TestStates, failures: dict[str, str], ignored: set[str]
) -> Outcome:
    """Return the outcome; failures in `ignored`, which the command ignores by ending with 0, count as skipped."""
    all_named = all(reading.has_passed_names() for reading in readings)
    passed = tuple(name for name, (state, _) in states.items() if state == PASSED) if all_named else ()
    skipped = (
        (*(name for name, (state, _) in states.items() if state == SKIPPED), *sorted(ignored)) if all_named else ()
    )
    unloaded = tuple(name for name, (state, _) in states.items() if state == UNLOADED and name in failures)
    stopped = any(reading.stopped for reading in readings)
    names_vary = any(reading.runner in _RUNNERS_WITH_VARYING_NAMES for reading in readings)
    return Outcome(_counts(readings), failures, passed, skipped, unloaded, stopped, names_vary)


def _counts(readings: Sequence[RunnerReading]) -> TestCounts | None:
    """Return the numbers of tests of all readings together, or None without readings."""
    totals: Counter[str] = Counter()
    for reading in readings:
        if reading.counts:
            totals.update(passed=reading.counts.passed, failed=reading.counts.failed, skipped=reading.counts.skipped)
        else:
            totals.update(_count_tests(reading))
    if not readings:
        return None
    passed, failed, skipped = (totals[state] for state in ("passed", "failed", "skipped"))
    return TestCounts(passed, failed, skipped, passed + failed + skipped)


def _count_tests(reading: RunnerReading) -> Counter[str]:
    """Return the number of tests by state for a reading without its own numbers."""
    tests = _by_runner([reading], _FAILURES_FIRST)[reading.runner]
    return Counter("failed" if test.state == UNLOADED else test.state for test in tests)
