"""Readers for Node test runners that print a tree or a list: node:test's `spec`, mocha and ava."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

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

_STACK = re.compile(r"^(?:at |\+ expected - actual|generatedMessage|\d+ passing)")

# -- node:test ---------------------------------------------------------------------------------------------------------

_NODE_TOTAL = re.compile(r"^ℹ (?P<word>tests|pass|fail|cancelled|skipped|todo) (?P<number>\d{1,9})$")
_NODE_LINE = re.compile(
    r"^(?P<mark>[▶✔✖﹣⚠]) (?P<name>.*?)(?: \(\d[\d.]*ms\))?(?P<more> # (?:SKIP|TODO|EXPECTED).*| # .*)?$"
)
_NODE_STATES = {"✔": PASSED, "✖": FAILED, "﹣": SKIPPED, "⚠": SKIPPED}
_NODE_STOP = re.compile(r"^(?:at |[▶✔✖﹣⚠ℹ] |generatedMessage|node:)")


def read_node(lines: Sequence[str]) -> RunnerReading | None:
    """Read the `spec` reporter of node:test."""
    totals = [
        (number, match) for number, line in enumerate(lines) if line[:1] == "ℹ" and (match := _NODE_TOTAL.match(line))
    ]
    if not totals:
        return None
    reading = RunnerReading("node", begin=len(lines), end=totals[-1][0] + 1)
    numbers: dict[str, int] = {}
    for _, match in totals:
        numbers[match["word"]] = numbers.get(match["word"], 0) + int(match["number"])
    failed, skipped = (
        numbers.get("fail", 0) + numbers.get("cancelled", 0),
        numbers.get("skipped", 0) + numbers.get("todo", 0),
    )
    reading.counts = TestCounts(numbers.get("pass", 0), failed, skipped, numbers.get("pass", 0) + failed + skipped)
    stack: list[tuple[int, str, int]] = []
    in_list, messages = False, dict[str, str]()
    for number, line in enumerate(lines):
        text = line.lstrip(" ")
        if text[:1] not in "▶✔✖﹣⚠ℹ" or not text:
            continue
        if line.startswith("✖ failing tests:"):
            in_list = True
        elif line.startswith("ℹ tests "):
            in_list = False
        if not (match := _NODE_LINE.match(text)):
            continue
        if in_list:  # the failures are repeated here; newer versions print the message only here
            reading.end = max(reading.end, number + 1)
            messages.setdefault(stable_name(match["name"]), one_line(next_lines(lines, number + 1, _NODE_STOP, 3)))
            continue
        reading.begin = min(reading.begin, number)
        _add_node_result(reading.tests, stack, match, indent(line), lines, number)
    reading.tests = [
        replace(test, message=test.message or messages.get(test.name.rpartition(" > ")[2], ""))
        for test in reading.tests
    ]
    return reading


def _add_node_result(
    tests: list[Test],
    stack: list[tuple[int, str, int]],
    match: re.Match[str],
    depth: int,
    lines: Sequence[str],
    number: int,
) -> None:
    """Add a test, or push a suite to the stack; a suite's own result counts only if it failed and none of its tests did."""
    name = stable_name(match["name"])
    while stack and (
        stack[-1][0] > depth or (stack[-1][0] == depth and (match["mark"] == "▶" or stack[-1][1] != name))
    ):
        stack.pop()
    if match["mark"] == "▶":
        stack.append((depth, name, len(tests)))
        return
    state = SKIPPED if (match["more"] or "").startswith((" # SKIP", " # TODO")) else _NODE_STATES[match["mark"]]
    suite = stack.pop() if stack and stack[-1][:2] == (depth, name) else None
    if suite and (state != FAILED or any(test.state == FAILED for test in tests[suite[2] :])):
        return  # the result of a suite only repeats that of its tests
    path = " > ".join([title for _, title, _ in stack] + [name])
    message = one_line(next_lines(lines, number + 1, _NODE_STOP, 3)) if state == FAILED else ""
    tests.append(Test(stable_name(path), state, message))


# -- mocha -------------------------------------------------------------------------------------------------------------

_MOCHA_TOTAL = re.compile(r"^\s+(?P<number>\d{1,9}) (?P<word>passing|failing|pending)\b")
_MOCHA_FAILED = re.compile(r"^ {2}(?P<number>\d{1,6})\) (?P<title>\S.*)$")
_MOCHA_TEST = re.compile(r"^(?:(?P<passed>[✔✓√] )|(?P<pending>- )|(?P<failed>\d{1,6}\) ))(?P<name>\S.*)$")
_MOCHA_TIME = re.compile(r" \(\d+(?:\.\d+)?m?s\)$")


def read_mocha(lines: Sequence[str]) -> RunnerReading | None:
    """Read mocha's reporters that end with `3 passing`; only `spec` names passing tests."""
    totals = [
        (number, match) for number, line in enumerate(lines) if line[:1] == " " and (match := _MOCHA_TOTAL.match(line))
    ]
    if not any(match["word"] == "passing" for _, match in totals):
        return None
    reading = RunnerReading("mocha", begin=len(lines), end=totals[-1][0] + 1)
    numbers = {"passing": 0, "failing": 0, "pending": 0}
    start = 0
    for number, match in totals:
        numbers[match["word"]] += int(match["number"])
        if match["word"] == "passing":
            _read_mocha_tree(reading, lines, start, number)
            start = number
        elif match["word"] == "failing":
            start = _read_mocha_failures(reading, lines, number + 1, int(match["number"]))
            reading.end = max(reading.end, start)
    passed, failed, skipped = numbers["passing"], numbers["failing"], numbers["pending"]
    reading.counts = TestCounts(passed, failed, skipped, passed + failed + skipped)
    return reading


def _read_mocha_tree(reading: RunnerReading, lines: Sequence[str], start: int, end: int) -> None:
    """Add the passed and pending tests of the tree between two lines."""
    stack: list[tuple[int, str]] = []
    for number in range(start, end):
        line = lines[number]
        depth = indent(line)
        if depth < 2 or depth % 2 or depth == len(line):
            continue
        match = _MOCHA_TEST.match(line[depth:])
        if not match and not _has_children(lines, number, end, depth):
            continue
        while stack and stack[-1][0] >= depth:
            stack.pop()
        reading.begin = min(reading.begin, number)
        if not match:
            stack.append((depth, line.strip()))
        elif not match["failed"]:
            name = _MOCHA_TIME.sub("", match["name"])
            path = " > ".join([title for _, title in stack] + [name])
            reading.tests.append(Test(stable_name(path), PASSED if match["passed"] else SKIPPED))


def _has_children(lines: Sequence[str], number: int, end: int, depth: int) -> bool:
    """Return whether the next line with text is indented one level deeper, as below a suite's title."""
    for after in range(number + 1, min(end, number + 4)):
        if lines[after].strip():
            return indent(lines[after]) == depth + 2
    return False


def _read_mocha_failures(reading: RunnerReading, lines: Sequence[str], start: int, count: int) -> int:
    """Read the numbered failures below `2 failing` and return the number of the line after them."""
    expected, number = 1, start
    while number < len(lines) and expected <= count:
        match = _MOCHA_FAILED.match(lines[number])
        if match and int(match["number"]) == expected:
            titles, number = _read_titles(lines, number, match["title"])
            message = one_line(next_lines(lines, number, _STACK, 3))
            reading.tests.append(Test(stable_name(" > ".join(titles)), FAILED, message))
            expected += 1
        elif lines[number].startswith("npm ") or _MOCHA_TOTAL.match(lines[number]):
            break
        else:
            number += 1
    while number < len(lines) and (not lines[number].strip() or lines[number].startswith("      ")):
        number += 1
    return number


def _read_titles(lines: Sequence[str], number: int, first: str) -> tuple[list[str], int]:
    """Return the titles of the suites and the test, one per line with a colon after the last, and the following line's number."""
    titles = [first]
    number += 1
    while not titles[-1].endswith(":") and number < len(lines) and lines[number].strip() and len(titles) < 40:
        titles.append(lines[number].strip())
        number += 1
    titles[-1] = titles[-1].removesuffix(":")
    return titles, number


# -- ava ---------------------------------------------------------------------------------------------------------------

_AVA_TOTAL = re.compile(
    r"^  (?P<number>\d{1,9}) (?P<word>tests? passed|tests? failed|tests? skipped|tests? todo|tests? remained|known failures?"
    r"|hooks? failed|uncaught exceptions?|unhandled rejections?)\b"
)
_AVA_LINE = re.compile(
    r"^  (?P<mark>[✔✘✖] |- (?=\[))(?:\[(?:fail|skip|todo|expected fail|unexpected pass)\]:? )?(?P<name>\S.*)$"
)
_AVA_FILE = re.compile(
    r"^  (?:(?:Uncaught exception|Unhandled rejection) in (?P<thrown>\S+)|[✘✖] (?P<exited>\S+\.\w+) exited "
    r"|[✘✖] (?:No tests found in|Failed to load) (?P<empty>[^\s,]+))"
)
_AVA_CODE = re.compile(r"^(?:\d+:|\S+:\d+$|›|at )")


def read_ava(lines: Sequence[str]) -> RunnerReading | None:
    """Read ava's own reporter."""
    totals = [
        (number, match) for number, line in enumerate(lines) if line[:2] == "  " and (match := _AVA_TOTAL.match(line))
    ]
    files = [line_number for line_number, line in enumerate(lines) if line[:2] == "  " and _AVA_FILE.match(line)]
    if not totals and not any("No tests found in" in lines[number] for number in files):
        return None
    reading = RunnerReading(
        "ava", has_unique_names=True, begin=len(lines), end=max([number for number, _ in totals] + files) + 1
    )
    numbers: dict[str, int] = {}
    for _, match in totals:
        word = match["word"].removeprefix("tests ").removeprefix("test ")
        numbers[word] = numbers.get(word, 0) + int(match["number"])
    for number, line in enumerate(lines[: reading.end]):
        if line[:2] != "  " or line[2:3] not in "✔✘✖-UL":
            continue
        if match := _AVA_FILE.match(line):
            name = match["thrown"] or match["exited"] or match["empty"]
            message = one_line(next_lines(lines, number + 1, _AVA_CODE, 1)) if match["thrown"] else one_line(line)
            reading.tests.append(Test(stable_name(name), UNLOADED, message))
        elif (match := _AVA_LINE.match(line)) and not match["name"].startswith(("Exiting due", "Timed out", "Couldn")):
            reading.tests.append(_ava_test(match, lines))
        else:
            continue
        reading.begin = min(reading.begin, number)
    failed = numbers.get("failed", 0) + sum(
        1 for test in {test.name: test for test in reading.tests}.values() if test.state == UNLOADED
    )
    skipped = numbers.get("skipped", 0) + numbers.get("todo", 0)
    passed = max(numbers.get("passed", 0), len({test.name for test in reading.tests if test.state == PASSED}))
    reading.counts = TestCounts(passed, failed, skipped, passed + failed + skipped)
    return reading


def _ava_test(match: re.Match[str], lines: Sequence[str]) -> Test:
    """Return the test of a result line, with the message printed below its heading if it failed."""
    title = without_time(match["name"]).removesuffix(" (")
    state = {"- ": SKIPPED, "✔ ": PASSED}.get(match["mark"], FAILED)
    message = ""
    if state == FAILED:
        heading = f"  {title}"
        heading_number = next((number for number, line in enumerate(lines) if line == heading), None)
        detail_lines = (
            next_lines(lines, heading_number + 1, re.compile(r"^─"), 12) if heading_number is not None else []
        )
        message = one_line([text for text in detail_lines if not _AVA_CODE.match(text)][:4])
    return Test(stable_name(title.replace(" › ", " > ")), state, message)
