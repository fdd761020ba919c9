"""Readers for the output of pytest and unittest; Django's runner prints like unittest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners.common import (
    FAILED,
    PASSED,
    SKIPPED,
    UNLOADED,
    RunnerReading,
    Test,
    one_line,
    stable_name,
)

# -- pytest ------------------------------------------------------------------------------------------------------------

_CLOSING = re.compile(
    r"^=*\s*((?:\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)\b[^=]*|no tests ran)) in [\d.]+s"
)
_NUMBER = re.compile(r"(\d{1,9}) (passed|failed|errors?|skipped|xfailed|xpassed)\b")
_KINDS = {"passed": PASSED, "xpassed": PASSED, "failed": FAILED, "error": FAILED, "errors": FAILED}
_BEGINNING = re.compile(
    r"^=+ (?:test session starts|FAILURES|ERRORS|short test summary info) =+$|^[.FEsxXpP]{1,200}\s+\[ *\d+%\]$"
)
_SUMMARY = re.compile(r"^(FAILED|ERROR|XPASS|SUBFAILED(?:\([^)]*\))?|SUBFAIL) (\S.*)$")
_VERBOSE = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] (?P<worker>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?P<spread>\S+\.\w+::.+?)"
    r"|(?P<name>[^\s:]+\.\w+::.+?) (?P<state>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?)\s*(?:\[ *\d+%\])?$"
)
_HEADING = re.compile(r"^_{3,} (?:ERROR (?:at (?:setup|teardown) of|collecting) )?(\S.*?) _{3,}$")
_ERROR = re.compile(r"^E {2,3}\s*(\S.*)$")
_STATES = {"PASSED": PASSED, "XPASS": PASSED, "FAILED": FAILED, "ERROR": FAILED}
_STOPPED = re.compile(r"^!+ (?:Interrupted: |stopping after |_pytest\.outcomes\.Exit: |xdist\.dsession\.Interrupted: )")
_CONFTEST = re.compile(r"^ImportError while loading conftest '([^']+)'")


def read_pytest(lines: Sequence[str]) -> RunnerReading | None:
    """Read the output of pytest, at any verbosity."""
    ends = [number for number, line in enumerate(lines) if " in " in line and _CLOSING.match(line)]
    summary_matches = [
        match for line in lines if line[:1] in "FESX" and (match := _SUMMARY.match(line)) and ".py" in match[2]
    ]
    conftest = next((match for line in lines if line[:5] == "Impor" and (match := _CONFTEST.match(line))), None)
    if not ends and not summary_matches and not conftest:
        return None
    reading = RunnerReading("pytest", has_unique_names=True, runs=len(ends))
    begin = next(
        (line_number for line_number, line in enumerate(lines) if line and _BEGINNING.match(line)),
        ends[0] if ends else 0,
    )
    reading.begin, reading.end = begin, (ends[-1] if ends else len(lines) - 1) + 1
    reading.stopped = any(line[:1] == "!" and _STOPPED.match(line) for line in lines)
    reading.tests = [_summary_test(match) for match in summary_matches]
    if conftest:
        reading.tests.append(Test(stable_name(conftest[1]), UNLOADED, _first_error(lines)))
    reading.begin = min(begin, _read_verbose_tests(reading, lines[: reading.end]))
    if ends:
        reading.counts = _sum_counts([lines[number] for number in ends])
        if reading.counts.failed and not any(test.state in (FAILED, UNLOADED) for test in reading.tests):
            reading.tests += [Test(name, FAILED) for name in _failure_headings(lines[begin : reading.end])]
    return reading


def _summary_test(match: re.Match[str]) -> Test:
    """Return the test of a line in pytest's short summary."""
    name, message = _split_summary(match[2])
    state = UNLOADED if match[1] == "ERROR" and "::" not in name else FAILED
    return Test(stable_name(name), state, one_line(message))


def _split_summary(text: str) -> tuple[str, str]:
    """Split a summary line into name and message; a parameter's value may contain the dash that separates them."""
    depth = 0
    for number, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth = max(0, depth - 1)
        elif character == "-" and not depth and text[number - 1 : number + 2] == " - ":
            return text[: number - 1], text[number + 2 :]
    name, _, message = text.partition(" - ") if depth else (text, "", "")
    return name, message


def _read_verbose_tests(reading: RunnerReading, lines: Sequence[str]) -> int:
    """Add the tests of a verbose run and return the number of its first line."""
    known_names, first = {test.name for test in reading.tests}, len(lines)
    for number, line in enumerate(lines):
        if "::" in line and (match := _VERBOSE.match(line)):
            first = min(first, number)
            name = stable_name(match["name"] or match["spread"])
            if name not in known_names:
                reading.tests.append(Test(name, _STATES.get(match["state"] or match["worker"], SKIPPED)))
    return first


def _failure_headings(lines: Sequence[str]) -> list[str]:
    """Return the names in the headings of the failures."""
    return [stable_name(match[1]) for line in lines if line[:3] == "___" and (match := _HEADING.match(line))]


def _first_error(lines: Sequence[str]) -> str:
    """Return the first error line of pytest's output, or ""."""
    return next((one_line(match[1]) for line in lines if line[:3] == "E  " and (match := _ERROR.match(line))), "")


def _sum_counts(closing_lines: Sequence[str]) -> TestCounts:
    """Return the sum of the numbers in pytest's closing lines."""
    numbers = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for line in closing_lines:
        for number, word in _NUMBER.findall(line):
            numbers[_KINDS.get(word, SKIPPED)] += int(number)
    return TestCounts(numbers[PASSED], numbers[FAILED], numbers[SKIPPED], sum(numbers.values()))


# -- unittest ----------------------------------------------------------------------------------------------------------

_RAN = re.compile(r"^Ran (\d{1,9}) tests? in ")
_RESULT = re.compile(r"^(?:FAILED|OK)(?: \((.*)\))?$|^NO TESTS RAN")
_PROBLEM = re.compile(r"^(?P<state>FAIL|ERROR|UNEXPECTED SUCCESS): (?P<test>\S.*)$")
_NAMED = re.compile(r"^(?P<method>\S+) \((?P<where>[\w.<>]+)\)(?P<more> [\[(].*?)?$")
_LINE = re.compile(r"^(?P<test>\S+ \([\w.<>]+\))(?: \.\.\. ?(?P<state>.*))?$")
_DOCUMENTED = re.compile(r"^.* \.\.\. (?P<state>ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")
_ALONE = re.compile(r"^(?:ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")
_LOADER = "unittest.loader._FailedTest"


def read_unittest(lines: Sequence[str]) -> RunnerReading | None:
    """Read the output of unittest, verbose or not."""
    total_numbers = [number for number, line in enumerate(lines) if line[:4] == "Ran " and _RAN.match(line)]
    if not total_numbers:
        return None
    reading = RunnerReading("unittest", has_unique_names=True)
    problems = [number for number, line in enumerate(lines) if line[:1] in "FEU" and _PROBLEM.match(line)]
    for number in problems:
        if number and lines[number - 1].startswith("====="):
            reading.tests.append(_read_problem(lines, number))
    failed_names = {test.name for test in reading.tests}
    verbose_tests, first = _read_verbose_results(lines, failed_names)
    reading.tests += verbose_tests
    reading.begin, reading.end = min([total_numbers[0], first, *problems]), min(total_numbers[-1] + 4, len(lines))
    reading.counts = _unittest_counts(lines, total_numbers, reading.tests)
    return reading


def _read_problem(lines: Sequence[str], number: int) -> Test:
    """Return the failed test whose heading is on this line."""
    match = _PROBLEM.match(lines[number])
    assert match
    name, unloaded = _unittest_name(match["test"])
    message = "unexpected success" if match["state"] == "UNEXPECTED SUCCESS" else _last_error(lines, number)
    return Test(name, UNLOADED if unloaded else FAILED, message)


def _unittest_name(text: str) -> tuple[str, bool]:
    """Return a test as `module.Class.test`, for any Python version, and whether it is a module that could not be loaded."""
    match = _NAMED.match(text)
    if not match:
        return stable_name(text), False
    method, where, more = match["method"], match["where"], match["more"] or ""
    if where.startswith(_LOADER):
        return stable_name(method), True
    if not where.endswith(f".{method}"):
        where = f"{where}.{method}"
    return stable_name(where + more), False


def _last_error(lines: Sequence[str], number: int) -> str:
    """Return the exception line: the first line after a traceback that is not indented."""
    message, in_traceback = "", False
    for line in lines[number + 1 : number + 400]:
        if line.startswith("====="):
            break
        if line.startswith("Ran "):
            break
        if line.startswith("Traceback ("):
            in_traceback = True
        elif in_traceback and line and not line.startswith(" "):
            message, in_traceback = line, False
    return one_line(message)


def _read_verbose_results(lines: Sequence[str], failed_names: set[str]) -> tuple[list[Test], int]:
    """Return the tests of a verbose run that did not fail, and the line where they begin.

    A test's state may come a few lines below its name.
    """
    tests: list[Test] = []
    pending_name, first = "", len(lines)
    for number, line in enumerate(lines):
        state = ""
        if " (" in line and (match := _LINE.match(line)):
            pending_name, first = match["test"], min(first, number)
            state = match["state"] or ""
        elif pending_name and (match := _DOCUMENTED.match(line)):
            state = match["state"]
        elif pending_name and line[:1] in "oFEseu" and _ALONE.match(line):
            state = line
        if pending_name and state and _ALONE.match(state):
            name, _ = _unittest_name(pending_name)
            if name not in failed_names and state not in ("FAIL", "ERROR", "unexpected success"):
                tests.append(Test(name, PASSED if state == "ok" else SKIPPED))
            pending_name = ""
    return tests, first


def _unittest_counts(lines: Sequence[str], total_numbers: Sequence[int], tests: Sequence[Test]) -> TestCounts:
    """Return the numbers of tests, corrected for what unittest counts differently: fixtures, subtests and skipped tests."""
    total = failed = skipped = 0
    for number in total_numbers:
        match = _RAN.match(lines[number])
        total += int(match[1]) if match else 0
        for line in lines[number + 1 : number + 4]:
            if (result := _RESULT.match(line)) and result[1]:
                numbers = dict(re.findall(r"([a-z ]+)=(\d{1,9})", result[1]))
                words = {word.strip(): int(count) for word, count in numbers.items()}
                failed += sum(words.get(word, 0) for word in ("failures", "errors", "unexpected successes"))
                skipped += words.get("skipped", 0) + words.get("expected failures", 0)
    outside = sum(1 for test in tests if test.state == FAILED and test.name.rpartition(".")[2] in _FIXTURES)
    subtests = {test.name.partition(" ")[0] for test in tests if test.state == FAILED and " " in test.name}
    repeated = sum(1 for test in tests if test.state == FAILED and " " in test.name) - len(subtests)
    passed_count = len(
        {test.name for test in tests if test.state == PASSED}
    )  # Python 3.12.1 does not count skipped tests as run
    passed = max(passed_count, total - max(0, failed - outside - repeated) - skipped)
    return TestCounts(passed, failed, skipped, passed + failed + skipped)


_FIXTURES = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")
"""Fixtures whose failures unittest does not count among the tests that it ran."""
