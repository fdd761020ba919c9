"""Readers for ctest, Meson, Automake and Perl's prove."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners.common import (
    FAILED,
    PASSED,
    SKIPPED,
    RunnerReading,
    Test,
    one_line,
    stable_name,
    without_time,
)

_CTEST_LINE = re.compile(r"^\s*\d+/\d+ Test +#\d+: (?P<name>\S.*?) \.{2,}(?P<state>.*)$")
_CTEST_LISTED = re.compile(r"^\t +\d+ - (?P<name>.*) \((?P<state>[^()]*)\)$")
_CTEST_END = re.compile(r"^\d+% tests passed, (?P<failed>\d{1,9}) tests? failed out of (?P<total>\d{1,9})$")


def read_ctest(lines: Sequence[str]) -> RunnerReading | None:
    """Read `ctest`."""
    ends = [
        (line_number, match)
        for line_number, line in enumerate(lines)
        if "% tests passed" in line and (match := _CTEST_END.match(line))
    ]
    if not ends:
        return None
    reading = RunnerReading("ctest", has_unique_names=True, begin=ends[0][0], end=ends[-1][0] + 1)
    for number, line in enumerate(lines):
        if " Test " in line and (match := _CTEST_LINE.match(line)):
            state = _ctest_state(match["state"])
            message = (
                one_line(without_time(match["state"].strip()).replace("***", "").strip(" :")) if state == FAILED else ""
            )
            reading.tests.append(Test(stable_name(match["name"]), state, message))
            reading.begin = min(reading.begin, number)
        elif line[:1] == "\t" and (match := _CTEST_LISTED.match(line)):
            state = SKIPPED if match["state"] in ("Disabled", "Skipped") else FAILED
            reading.tests.append(Test(stable_name(match["name"]), state, one_line(match["state"])))
            reading.end = max(reading.end, number + 1)
    failed, total = (sum(int(match[word]) for _, match in ends) for word in ("failed", "total"))
    skipped = len({test.name for test in reading.tests if test.state == SKIPPED})
    reading.counts = TestCounts(max(0, total - failed), failed, skipped, total + skipped)
    return reading


def _ctest_state(text: str) -> str:
    """Return the state of a test from the end of its line."""
    if "Disabled" in text or "Skipped" in text:
        return SKIPPED
    return PASSED if "Passed" in text and "***" not in text else FAILED


_MESON_LINE = re.compile(
    r"^ *\d+/\d+ (?P<name>\S.*?) +(?P<state>OK|FAIL|SKIP|ERROR|TIMEOUT|INTERRUPT|EXPECTEDFAIL|UNEXPECTEDPASS) +[\d.]+ ?s(?P<more>.*)$"
)
_MESON_END = re.compile(r"^Ok: +\d+ *$")
_MESON_STATES = {"OK": PASSED, "SKIP": SKIPPED, "EXPECTEDFAIL": SKIPPED}


def read_meson(lines: Sequence[str]) -> RunnerReading | None:
    """Read `meson test`."""
    ends = [number for number, line in enumerate(lines) if line[:3] == "Ok:" and _MESON_END.match(line)]
    matches = [
        (line_number, match)
        for line_number, line in enumerate(lines)
        if "/" in line[:12] and (match := _MESON_LINE.match(line))
    ]
    if not ends or not matches:
        return None
    tests = [
        Test(stable_name(match["name"]), _MESON_STATES.get(match["state"], FAILED), one_line(match["more"]))
        for _, match in matches
    ]
    return RunnerReading("meson", tests, begin=matches[0][0], end=ends[-1] + 7)


_AUTOMAKE_LINE = re.compile(r"^(?P<state>PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): (?P<name>\S.*)$")
_AUTOMAKE_END = re.compile(r"^# TOTAL: +\d+$")
_AUTOMAKE_STATES = {"PASS": PASSED, "SKIP": SKIPPED, "XFAIL": SKIPPED}


def read_automake(lines: Sequence[str]) -> RunnerReading | None:
    """Read Automake's `make check`."""
    ends = [number for number, line in enumerate(lines) if line[:8] == "# TOTAL:" and _AUTOMAKE_END.match(line)]
    matches = [
        (line_number, match)
        for line_number, line in enumerate(lines)
        if ": " in line[:8] and (match := _AUTOMAKE_LINE.match(line))
    ]
    if not ends or not matches:
        return None
    tests = [Test(stable_name(match["name"]), _AUTOMAKE_STATES.get(match["state"], FAILED)) for _, match in matches]
    return RunnerReading("automake", tests, has_unique_names=True, begin=matches[0][0], end=ends[-1] + 1)


_PROVE_END = re.compile(r"^Files=\d+, Tests=\d+,")
_PROVE_FILE = re.compile(r"^(?P<file>\S+) \.{2,} ?(?P<state>ok|skipped: .*)?$")
_PROVE_FAILED = re.compile(r"^(?P<file>\S+) +\(Wstat: .*\)$")
_PROVE_TEST = re.compile(r"^\s*# +Failed test '(?P<name>.*)'(?: at (?P<file>\S+) line \d+\.)?$")
_PROVE_LOCATION = re.compile(r"^\s*# +at (?P<file>\S+) line \d+\.$")


def read_prove(lines: Sequence[str]) -> RunnerReading | None:
    """Read Perl's `prove`: passed tests are files; failed tests are named inside their files."""
    ends = [number for number, line in enumerate(lines) if line[:6] == "Files=" and _PROVE_END.match(line)]
    if not ends:
        return None
    reading = RunnerReading("prove", has_unique_names=True, begin=ends[0], end=ends[-1] + 2)
    file, files, failed_files, failed_tests = "", dict[str, str](), list[str](), list[Test]()
    for number, line in enumerate(lines[: reading.end]):
        if "Failed test" in line and (match := _PROVE_TEST.match(line)):
            test_file = match["file"] or _failure_file(lines, number + 1)
            message = one_line([text.strip("# ") for text in lines[number + 2 : number + 4] if text.startswith("# ")])
            failed_tests.append(Test(stable_name(f"{test_file} > {match['name']}"), FAILED, message))
            reading.begin = min(reading.begin, number)
        elif " .." in line and (match := _PROVE_FILE.match(line)):
            file, reading.begin = match["file"], min(reading.begin, number)
            files[file] = match["state"] or ""
        elif line == "ok" and file:
            files[file] = "ok"
        elif "(Wstat" in line and (match := _PROVE_FAILED.match(line)):
            failed_files.append(match["file"])
    files_with_tests = {test.name.partition(" > ")[0] for test in failed_tests}
    reading.tests = failed_tests + [Test(name, FAILED) for name in failed_files if name not in files_with_tests]
    states = {"ok": PASSED}
    reading.tests += [
        Test(name, states.get(state, SKIPPED)) for name, state in files.items() if state and name not in failed_files
    ]
    return reading


def _failure_file(lines: Sequence[str], number: int) -> str:
    """Return the file of a failed test from the line below it, or ""."""
    match = _PROVE_LOCATION.match(lines[number]) if number < len(lines) else None
    return match["file"] if match else ""
