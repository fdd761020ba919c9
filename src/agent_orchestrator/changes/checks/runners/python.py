"""pytest and unittest, as they print; Django's runner is unittest's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners.common import (
    FAILED,
    PASSED,
    SKIPPED,
    UNLOADED,
    Reading,
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


def read_pytest(lines: Sequence[str]) -> Reading | None:
    """Read what pytest prints, in any verbosity."""
    ends = [number for number, line in enumerate(lines) if " in " in line and _CLOSING.match(line)]
    failed = [found for line in lines if line[:1] in "FESX" and (found := _SUMMARY.match(line)) and ".py" in found[2]]
    conftest = next((found for line in lines if line[:5] == "Impor" and (found := _CONFTEST.match(line))), None)
    if not ends and not failed and not conftest:
        return None
    reading = Reading("pytest", unique=True, runs=len(ends))
    begin = next((n for n, line in enumerate(lines) if line and _BEGINNING.match(line)), ends[0] if ends else 0)
    reading.begin, reading.end = begin, (ends[-1] if ends else len(lines) - 1) + 1
    reading.stopped = any(line[:1] == "!" and _STOPPED.match(line) for line in lines)
    reading.tests = [_summarized(found) for found in failed]
    if conftest:
        reading.tests.append(Test(stable_name(conftest[1]), UNLOADED, _first_error(lines)))
    reading.begin = min(begin, _verbose(reading, lines[: reading.end]))
    if ends:
        reading.counts = _sum([lines[number] for number in ends])
        if reading.counts.failed and not any(test.state in (FAILED, UNLOADED) for test in reading.tests):
            reading.tests += [Test(name, FAILED) for name in _headings(lines[begin : reading.end])]
    return reading


def _summarized(found: re.Match[str]) -> Test:
    name, message = _cut(found[2])
    state = UNLOADED if found[1] == "ERROR" and "::" not in name else FAILED
    return Test(stable_name(name), state, one_line(message))


def _cut(text: str) -> tuple[str, str]:
    """Return the name and the message of a summary line; a parameter's value may contain the dash that separates them."""
    depth = 0
    for number, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth = max(0, depth - 1)
        elif letter == "-" and not depth and text[number - 1 : number + 2] == " - ":
            return text[: number - 1], text[number + 2 :]
    name, _, message = text.partition(" - ") if depth else (text, "", "")
    return name, message


def _verbose(reading: Reading, lines: Sequence[str]) -> int:
    """Read the lines of a verbose run; returns the first one."""
    known, first = {test.name for test in reading.tests}, len(lines)
    for number, line in enumerate(lines):
        if "::" in line and (found := _VERBOSE.match(line)):
            first = min(first, number)
            name = stable_name(found["name"] or found["spread"])
            if name not in known:
                reading.tests.append(Test(name, _STATES.get(found["state"] or found["worker"], SKIPPED)))
    return first


def _headings(lines: Sequence[str]) -> list[str]:
    return [stable_name(found[1]) for line in lines if line[:3] == "___" and (found := _HEADING.match(line))]


def _first_error(lines: Sequence[str]) -> str:
    return next((one_line(found[1]) for line in lines if line[:3] == "E  " and (found := _ERROR.match(line))), "")


def _sum(closings: Sequence[str]) -> TestCounts:
    numbers = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for line in closings:
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


def read_unittest(lines: Sequence[str]) -> Reading | None:
    """Read what unittest prints, verbose or not."""
    ran = [number for number, line in enumerate(lines) if line[:4] == "Ran " and _RAN.match(line)]
    if not ran:
        return None
    reading = Reading("unittest", unique=True)
    problems = [number for number, line in enumerate(lines) if line[:1] in "FEU" and _PROBLEM.match(line)]
    for number in problems:
        if number and lines[number - 1].startswith("====="):
            reading.tests.append(_problem(lines, number))
    known = {test.name for test in reading.tests}
    verbose, first = _results(lines, known)
    reading.tests += verbose
    reading.begin, reading.end = min([ran[0], first, *problems]), min(ran[-1] + 4, len(lines))
    reading.counts = _unittest_counts(lines, ran, reading.tests)
    return reading


def _problem(lines: Sequence[str], number: int) -> Test:
    found = _PROBLEM.match(lines[number])
    assert found
    name, unloaded = _unittest_name(found["test"])
    message = "unexpected success" if found["state"] == "UNEXPECTED SUCCESS" else _last_error(lines, number)
    return Test(name, UNLOADED if unloaded else FAILED, message)


def _unittest_name(text: str) -> tuple[str, bool]:
    """Return a test as `module.Class.test`, whichever Python printed it, and whether it is a module that could not be loaded."""
    found = _NAMED.match(text)
    if not found:
        return stable_name(text), False
    method, where, more = found["method"], found["where"], found["more"] or ""
    if where.startswith(_LOADER):
        return stable_name(method), True
    if not where.endswith(f".{method}"):
        where = f"{where}.{method}"
    return stable_name(where + more), False


def _last_error(lines: Sequence[str], number: int) -> str:
    """The line that says what was raised: the first one after a traceback that is not indented."""
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


def _results(lines: Sequence[str], known: set[str]) -> tuple[list[Test], int]:
    """The tests of a verbose run that did not fail, and the line where they begin; a test's state may come a few lines below its name."""
    tests: list[Test] = []
    waiting, first = "", len(lines)
    for number, line in enumerate(lines):
        state = ""
        if " (" in line and (found := _LINE.match(line)):
            waiting, first = found["test"], min(first, number)
            state = found["state"] or ""
        elif waiting and (found := _DOCUMENTED.match(line)):
            state = found["state"]
        elif waiting and line[:1] in "oFEseu" and _ALONE.match(line):
            state = line
        if waiting and state and _ALONE.match(state):
            name, _ = _unittest_name(waiting)
            if name not in known and state not in ("FAIL", "ERROR", "unexpected success"):
                tests.append(Test(name, PASSED if state == "ok" else SKIPPED))
            waiting = ""
    return tests, first


def _unittest_counts(lines: Sequence[str], ran: Sequence[int], tests: Sequence[Test]) -> TestCounts:
    total = failed = skipped = 0
    for number in ran:
        found = _RAN.match(lines[number])
        total += int(found[1]) if found else 0
        for line in lines[number + 1 : number + 4]:
            if (result := _RESULT.match(line)) and result[1]:
                numbers = dict(re.findall(r"([a-z ]+)=(\d{1,9})", result[1]))
                words = {word.strip(): int(count) for word, count in numbers.items()}
                failed += sum(words.get(word, 0) for word in ("failures", "errors", "unexpected successes"))
                skipped += words.get("skipped", 0) + words.get("expected failures", 0)
    outside = sum(1 for test in tests if test.state == FAILED and test.name.rpartition(".")[2] in _FIXTURES)
    subtests = {test.name.partition(" ")[0] for test in tests if test.state == FAILED and " " in test.name}
    repeated = sum(1 for test in tests if test.state == FAILED and " " in test.name) - len(subtests)
    named = len(
        {test.name for test in tests if test.state == PASSED}
    )  # Python 3.12.1 does not count skipped tests as run
    passed = max(named, total - max(0, failed - outside - repeated) - skipped)
    return TestCounts(passed, failed, skipped, passed + failed + skipped)


_FIXTURES = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")
"""Failures that unittest does not count among the tests that it ran."""
