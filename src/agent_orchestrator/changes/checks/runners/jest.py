"""Readers for jest and vitest."""

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
    indent,
    next_lines,
    one_line,
    stable_name,
    without_time,
)

_NUMBER = re.compile(r"(\d{1,9}) (passed|failed|skipped|todo|pending)\b")
_STOP = re.compile(r"^(?:at |❯ |[>|]? *\d* *\||⎯|●|Require stack:|Details:)")

# -- jest --------------------------------------------------------------------------------------------------------------

_JEST_TOTAL = re.compile(r"^Tests: +(?P<numbers>\d.* total)$")
_JEST_SUITES = re.compile(r"^Test Suites: +\d.* total$")
_JEST_FILE = re.compile(r"^(?P<state>PASS|FAIL) +(?:[^\s/.]+ )?(?P<file>\S+\.\w+)(?: \([\d.,]+ [^)]*\))*$")
_JEST_FAILED = re.compile(r"^  ● (?P<title>\S.*)$")
_JEST_LINE = re.compile(r"^(?P<mark>[✓✕○✎√×]) (?:(?:skipped|todo) )?(?P<name>.*)$")
_JEST_STATES = {"✓": PASSED, "√": PASSED, "✕": FAILED, "×": FAILED}
_NOT_RUN = "Test suite failed to run"


def read_jest(lines: Sequence[str]) -> RunnerReading | None:
    """Read jest's default reporter, verbose or not; a test's name has its file and titles."""
    totals = [
        (line_number, match)
        for line_number, line in enumerate(lines)
        if line[:6] == "Tests:" and (match := _JEST_TOTAL.match(line))
    ]
    if not totals:
        return None
    reading = RunnerReading("jest", has_unique_names=True, begin=len(lines), end=totals[-1][0] + 1)
    file, stack = "", list[tuple[int, str]]()
    in_test_list = False
    for number, line in enumerate(lines[: reading.end]):
        if line[:4] in ("PASS", "FAIL") and (match := _JEST_FILE.match(line)):
            file, stack, in_test_list = match["file"], [], True
            reading.begin = min(reading.begin, number)
        elif line[:4] == "  ● " and (match := _JEST_FAILED.match(line)):
            in_test_list = False
            _add_jest_failure(reading.tests, file, match["title"], lines, number)
        elif not line.strip():
            in_test_list = in_test_list and not stack
        elif in_test_list and file:
            _read_jest_tree_line(reading.tests, file, stack, line)
    unloaded = len({test.name for test in reading.tests if test.state == UNLOADED})
    reading.counts = _sum_counts([match["numbers"] for _, match in totals], unloaded)
    return reading


def _add_jest_failure(tests: list[Test], file: str, title: str, lines: Sequence[str], number: int) -> None:
    """Add the failure with this title; a file that could not be run is `UNLOADED`."""
    message = one_line(next_lines(lines, number + 1, _STOP, 3))
    if title.strip() == _NOT_RUN or (not title.strip() and file):
        tests.append(Test(stable_name(file or title), UNLOADED, message))
    elif title != "Console" and "process.exit called" not in title:
        tests.append(Test(stable_name(" > ".join([file, *title.split(" › ")]) if file else title), FAILED, message))


def _read_jest_tree_line(tests: list[Test], file: str, stack: list[tuple[int, str]], line: str) -> None:
    """Add the test of a verbose line, or push a suite's title to the stack."""
    depth, text = indent(line), line.strip()
    while stack and stack[-1][0] >= depth:
        stack.pop()
    match = _JEST_LINE.match(text)
    if not match:
        stack.append((depth, text))
    elif _JEST_STATES.get(match["mark"]) != FAILED:
        path = [file, *(title for _, title in stack), without_time(match["name"]).removesuffix(" (")]
        tests.append(Test(stable_name(" > ".join(path)), _JEST_STATES.get(match["mark"], SKIPPED)))


def _sum_counts(closing_lines: Sequence[str], unloaded: int) -> TestCounts:
    """Return the sum of the numbers in closing lines; files that could not be run count as failed."""
    numbers = {"passed": 0, "failed": unloaded, "skipped": 0}
    for text in closing_lines:
        for number, word in _NUMBER.findall(text):
            numbers[word if word in numbers else "skipped"] += int(number)
    return TestCounts(numbers["passed"], numbers["failed"], numbers["skipped"], sum(numbers.values()))


# -- vitest ------------------------------------------------------------------------------------------------------------

_VITEST_TOTAL = re.compile(r"^ +(?:Tests|Type Errors) {2}(?P<numbers>\d.*|no tests|no errors)$")
_VITEST_FILES = re.compile(r"^ +Test Files {2}\d.*$")
_VITEST_FAILED = re.compile(r"^ ?FAIL  (?:\|[^|]+\| )?(?P<name>\S.*)$")
_VITEST_UNLOADED = re.compile(r"^(?P<file>\S+) \[ .* \]$")
_VITEST_LINE = re.compile(r"^ (?P<mark>[✓×↓]) (?:\|[^|]+\| )?(?P<name>\S+ > .*)$")
_VITEST_ERROR = re.compile(
    r"^(?:⎯+ )?(?:Unhandled (?:Rejection|Error)s?|Uncaught Exception)(?: ⎯+)?$|^⎯+ Unhandled (?:Rejection|Errors?|Source Error) ⎯+$"
)


def read_vitest(lines: Sequence[str]) -> RunnerReading | None:
    """Read vitest's reporters; only `verbose` names passing tests."""
    totals = [
        (line_number, match)
        for line_number, line in enumerate(lines)
        if "Tests  " in line and (match := _VITEST_TOTAL.match(line))
    ]
    files = [
        line_number for line_number, line in enumerate(lines) if "Test Files  " in line and _VITEST_FILES.match(line)
    ]
    if not totals or not files:
        return None
    reading = RunnerReading("vitest", has_unique_names=True, begin=files[0], end=totals[-1][0] + 1)
    for number, line in enumerate(lines[: reading.end]):
        if line.startswith((" RUN  ", "RUN  ")):
            reading.begin = min(reading.begin, number)
        elif line.lstrip(" ")[:4] == "FAIL" and (match := _VITEST_FAILED.match(line)):
            reading.tests.append(_vitest_failure(match["name"], lines, number))
        elif line[1:2] in "✓×↓" and (match := _VITEST_LINE.match(line)) and match["mark"] != "×":
            name = stable_name(without_time(match["name"]))
            reading.tests.append(Test(name, PASSED if match["mark"] == "✓" else SKIPPED))
        elif "Unhandled" in line and _VITEST_ERROR.match(line):
            message = one_line(next_lines(lines, number + 1, _STOP, 2))
            reading.tests.append(Test("unhandled error", FAILED, message))
    unloaded = len({test.name for test in reading.tests if test.state == UNLOADED})
    reading.counts = _sum_counts([match["numbers"] for _, match in totals], unloaded)
    return reading


def _vitest_failure(name: str, lines: Sequence[str], number: int) -> Test:
    """Return the failed test or file with its message."""
    after = number + 1
    while after < len(lines) and lines[after].lstrip(" ").startswith("FAIL"):
        after += 1  # tests with the same failure are listed together above the message
    message = one_line(next_lines(lines, after, _STOP, 2))
    if match := _VITEST_UNLOADED.match(name):
        return Test(stable_name(match["file"]), UNLOADED, message)
    return Test(stable_name(name), FAILED, message)
