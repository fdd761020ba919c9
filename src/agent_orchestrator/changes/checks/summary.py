"""Extract the part of a check's output that shows what went wrong: `relevant_output(output)`; and clean up output: `strip_escapes`,
`group_by_package`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.protocols.text import INVISIBLE_CHARACTERS

MAX_SUMMARY_BYTES = 4096
"""Maximum size of a summary, in bytes."""
MAX_SEARCHED_BYTES = 512 << 10
"""Number of bytes at the end of the output that are searched."""
_LINES_BEFORE, _LINES_AFTER = 2, 8
_LINES_WITHOUT_PROBLEM = 40
_MAX_LINE_LENGTH = 1000
_MAX_PROBLEM_LINES = 400
"""Maximum number of lines with a problem that are collected: the summary is full long before."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_]|[ -/][0-~])"
)
_CONTROLS = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{INVISIBLE_CHARACTERS}]")
_PROBLEM = re.compile(
    r"\berrors?\b|(?:Error|Exception)\b|\bfail(?:ed|ures?|s)?\b|\bpanic(?:ked)?\b|\bfatal\b|\bTraceback\b|\bnot ok\b"
    r"|\bnot found\b|\bundefined\b|\bsegmentation fault\b|\bassert(?:ion)?\b|^\s*[✕✗✘×❌]|^E  ",
    re.IGNORECASE | re.ASCII,
)
_NO_PROBLEM = re.compile(
    r"\b(?:0|no|without) (?:\w+ )?(?:errors?|fail\w*|problems?)\b|\b(?:errors?|fail\w*)\s*[:=]\s*0\b"
    r"|\bPASS(?:ED)?\b|^ok\b|\.\.\. ok$|^\s*[✓✔]",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"^(\S+ [\w:.-]+(?=\$ )|\S+:[\w.-]+(?=: cache (?:hit|miss|bypass)))")
_MAX_PACKAGE_NAME_LENGTH = 200
_TEARDOWN = re.compile(
    r"^(?:make(?:\[\d+\])?: \*\*\*|g?make(?:\[\d+\])?: (?:Leaving|Entering)|npm (?:ERR!|error)|yarn run|info Visit|error Command failed"
    r"| ?ELIFECYCLE|##\[|error: Recipe |ninja: build stopped|Error: Process completed|[=\-_~*\s]*$)",
)
"""Lines that only repeat that something above has failed."""


def strip_escapes(text: str) -> str:
    """Return text without colours, control characters and what a progress bar has overwritten."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def _lines(output: str) -> list[str]:
    """Return the plain lines of the output, each cut to a maximum length."""
    return [line[:_MAX_LINE_LENGTH] for line in strip_escapes(output).split("\n")]


def relevant_output(output: str, room: int = MAX_SUMMARY_BYTES) -> str:
    """Return the part of a failed check's output that shows what went wrong, as plain text of at most `room` bytes."""
    lines = [line.rstrip() for line in _lines(output)]
    while lines and _TEARDOWN.match(lines[-1]):
        lines.pop()
    problem_numbers = [number for number, line in enumerate(lines) if _reports_problem(line)]
    if not problem_numbers:
        return _clip(lines[-_LINES_WITHOUT_PROBLEM:], room, first_share=0.0)
    return _clip(_with_context(lines, problem_numbers), room, first_share=0.6)


def _reports_problem(line: str) -> bool:
    """Return whether a line reports a problem."""
    return bool(_PROBLEM.search(line)) and not _TEARDOWN.match(line) and not _NO_PROBLEM.search(line)


def group_by_package(lines: list[str]) -> list[str]:
    """Return lines without a package's name in front, with the lines of each package together.

    pnpm and Turborepo run the packages of a workspace at the same time and put the package's name before each line.
    """
    marks = {match[1] for line in lines if (match := _PACKAGE.match(line))}
    if not marks:
        return lines
    groups: dict[str, list[str]] = {"": []}
    for line in lines:
        mark = _package_name(line, marks)
        groups.setdefault(mark, []).append(line[len(mark) + 2 :] if mark else line)
    return [line for group in groups.values() for line in group]


def _package_name(line: str, marks: set[str]) -> str:
    """Return the package name in front of a line if it is one of `marks`, or ""."""
    end = line.find(": ")
    while 0 <= end < _MAX_PACKAGE_NAME_LENGTH:
        if line[:end] in marks:
            return line[:end]
        end = line.find(": ", end + 1)
    return ""


def problem_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines that report a problem."""
    return [line for line in lines if _reports_problem(line)]


def _with_context(lines: list[str], problem_numbers: list[int]) -> list[str]:
    """Return the lines that report a problem with their neighbours; gaps are marked with "…"."""
    kept_numbers = (
        problem_numbers
        if len(problem_numbers) <= _MAX_PROBLEM_LINES
        else problem_numbers[: _MAX_PROBLEM_LINES // 2] + problem_numbers[-_MAX_PROBLEM_LINES // 2 :]
    )
    shown_numbers = sorted(
        {
            nearby
            for number in kept_numbers
            for nearby in range(max(0, number - _LINES_BEFORE), number + _LINES_AFTER + 1)
        }
    )
    excerpt: list[str] = []
    last = -1
    for number in shown_numbers:
        if number >= len(lines):
            break
        if last >= 0 and number > last + 1:
            excerpt.append("…")
        excerpt.append(lines[number])
        last = number
    return excerpt


def _clip(lines: list[str], max_bytes: int, first_share: float) -> str:
    """Return as many lines as fit in `room` bytes: the share `first` from the start, where the cause is, and the rest from the end."""
    text = "\n".join(lines).strip("\n")
    data = text.encode(errors="replace")
    if len(data) <= max_bytes:
        return data.decode()
    gap = "\n…\n"
    head = int((max_bytes - len(gap.encode())) * first_share)
    tail = max_bytes - len(gap.encode()) - head
    start = data[:head].decode(errors="ignore").rpartition("\n")[0]
    end = data[-tail:].decode(errors="ignore")
    end = end.partition("\n")[2] or end
    return (f"{start}{gap}{end}" if start else f"…\n{end}").strip("\n")
