"""Reader for TAP 12 to 14 with nested subtests: node:test, ava, node-tap, Perl; and tape, whose tests are groups of assertions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

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
)

_PLAN = re.compile(r"^1\.\.\d+\s*(?:#.*)?$")
_RESULT = re.compile(r"^(?P<no>not )?ok\b(?: +\d+)?(?P<dash> +-)? *(?P<name>.*?) *\{?$")
_DIRECTIVE = re.compile(r"(?:^|\s)# *(?P<word>skip|todo|time)\b\S*(?P<rest>.*)$", re.IGNORECASE)
_TOTAL = re.compile(r"^# (?P<word>tests|pass|fail|skip|skipped|todo) +(?P<number>\d{1,9})$")
_NO_GROUP = re.compile(
    r"^# (?:tests|suites|pass|fail|cancelled|skip|skipped|todo|duration_ms|ok|time|Subtest:|failed|not ok)\b"
)
_ERROR = re.compile(r"^(?:error|message): *(?P<text>.*)$")
_END = re.compile(r"^(?:\.\.\.|\w+: )")
_EXITED = re.compile(
    r"^(?P<file>\S+\.\w+) exited with a non-zero exit code: \d+$|^No tests found in (?P<empty>\S+\.\w+),"
)


@dataclass(slots=True)
class _TapState:
    """What has been read so far."""

    pending: dict[int, list[Test]] = field(default_factory=dict)
    """Results by depth that wait for the result of the test that they belong to."""
    group: str = ""
    in_groups: bool = False
    numbers: dict[str, int] = field(default_factory=dict)


def read_tap(lines: Sequence[str]) -> RunnerReading | None:
    """Read TAP; a version or a plan is required, because a line with `ok` can occur in any output."""
    mark_numbers = [
        line_number
        for line_number, line in enumerate(lines)
        if line.startswith(("TAP version ", "1..")) and (line[0] == "T" or _PLAN.match(line))
    ]
    if not mark_numbers:
        return None
    state, reading = _TapState(), RunnerReading("tap")
    number, last = 0, mark_numbers[-1]
    first = mark_numbers[0]
    while number < len(lines):
        line = lines[number].lstrip(" ")
        if line == "---":
            number = _end_of_details(lines, number)
            continue
        if line.startswith(("ok", "not ok")) and (match := _RESULT.match(line)):
            _add_result(state, match, indent(lines[number]) // 4, lines, number)
            first, last = min(first, number), max(last, number)
        elif line.startswith("Bail out!"):
            state.pending.setdefault(0, []).append(Test("Bail out!", FAILED, one_line(line[9:])))
            reading.stopped = True
        elif line.startswith("# "):
            last = max(last, _read_comment(state, line) and number)
        number += 1
    tests = [test for depth in sorted(state.pending) for test in state.pending[depth]]
    reading.tests = _merge_groups(tests) if state.in_groups else tests
    reading.begin, reading.end = first, last + 1
    if state.in_groups and "tests" in state.numbers:
        passed, failed = state.numbers.get("pass", 0), state.numbers.get("fail", 0)
        skipped = state.numbers.get("skip", 0) + state.numbers.get("todo", 0)
        reading.counts = TestCounts(passed, failed, skipped, passed + failed + skipped)
    return reading


def _read_comment(state: _TapState, line: str) -> bool:
    """Read a comment and return whether it belongs to the protocol."""
    if match := _TOTAL.match(line):
        state.numbers[match["word"]] = state.numbers.get(match["word"], 0) + int(match["number"])
        return True
    if not _NO_GROUP.match(line):
        state.group = stable_name(line[2:])
    return False


def _add_result(state: _TapState, match: re.Match[str], depth: int, lines: Sequence[str], number: int) -> None:
    """Add a result: with subtests, these are added under its name; without, the result itself."""
    text, outcome = match["name"], FAILED if match["no"] else PASSED
    if directive := _DIRECTIVE.search(text):
        text = text[: directive.start()]
        if directive["word"].lower() != "time":
            outcome = SKIPPED
        text = text or directive["rest"].strip(" :")
    children = [test for deeper in sorted(state.pending) if deeper > depth for test in state.pending[deeper]]
    for deeper in [level for level in state.pending if level > depth]:
        del state.pending[deeper]
    name = stable_name(text.replace(" › ", " > ").replace("\\#", "#"))
    if not match["dash"] and state.group and not depth:
        state.in_groups = True
        state.pending.setdefault(0, []).append(Test(state.group, outcome, one_line(text)))
        return
    tests = [Test(f"{name} > {test.name}", test.state, test.message) for test in children]
    has_failed_subtest = any(test.state == FAILED for test in tests)
    if not tests or (outcome == FAILED and not has_failed_subtest):
        message = _error_message(lines, number) if outcome == FAILED else ""
        if exited := _EXITED.match(text):
            name, outcome = exited["file"] or exited["empty"], UNLOADED
            message = message or one_line(text)
        tests.append(Test(name, outcome, message))
    state.pending.setdefault(depth, []).extend(tests)


def _merge_groups(tests: Sequence[Test]) -> list[Test]:
    """Return one test for each group of assertions without a failure, and one for each failed assertion."""
    failed = [test for test in tests if test.state == FAILED]
    names = {test.name for test in failed}
    others = {test.name: test for test in tests if test.name not in names}
    return [*failed, *others.values()]


def _end_of_details(lines: Sequence[str], number: int) -> int:
    """Return the number of the line after a block of details, or of the next one if the block does not end."""
    depth = indent(lines[number])
    for after in range(number + 1, min(len(lines), number + 2000)):
        line = lines[after]
        if line.strip() == "..." and indent(line) == depth:
            return after + 1
        if line.strip() and indent(line) < depth:
            break
    return number + 1


def _error_message(lines: Sequence[str], number: int) -> str:
    """Return the error message in the details below a result, or ""."""
    if number + 1 >= len(lines) or lines[number + 1].strip() != "---":
        return ""
    for after in range(number + 2, min(len(lines), number + 40)):
        text = lines[after].strip()
        if text == "...":
            break
        if match := _ERROR.match(text):
            value = match["text"]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            if value and value[0] not in "|>":
                return one_line(value)
            text_lines = next_lines(lines, after + 1, _END, 3)
            if text_lines:
                return one_line(text_lines)
    return ""
