"""The part of a check's output that says what went wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.protocols.text import UNSEEN

LONGEST = 4096
"""Bytes of a summary."""
LOOKED_AT = 512 << 10
"""Bytes from the end of the output that are looked through."""
_BEFORE, _AFTER = 2, 8
_WITHOUT_MARKER = 40
_LONGEST_LINE = 1000
_MANY = 400
"""Lines after which no more are collected: the summary is full long before."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_]|[ -/][0-~])"
)
_CONTROLS = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{UNSEEN}]")
_WRONG = re.compile(
    r"\berrors?\b|(?:Error|Exception)\b|\bfail(?:ed|ures?|s)?\b|\bpanic(?:ked)?\b|\bfatal\b|\bTraceback\b|\bnot ok\b"
    r"|\bnot found\b|\bundefined\b|\bsegmentation fault\b|\bassert(?:ion)?\b|^\s*[✕✗✘×❌]|^E  ",
    re.IGNORECASE | re.ASCII,
)
_ALL_WELL = re.compile(
    r"\b(?:0|no|without) (?:\w+ )?(?:errors?|fail\w*|problems?)\b|\b(?:errors?|fail\w*)\s*[:=]\s*0\b"
    r"|\bPASS(?:ED)?\b|^ok\b|\.\.\. ok$|^\s*[✓✔]",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"^(\S+ [\w:.-]+(?=\$ )|\S+:[\w.-]+(?=: cache (?:hit|miss|bypass)))")
_LONGEST_MARK = 200
_TEARDOWN = re.compile(
    r"^(?:make(?:\[\d+\])?: \*\*\*|g?make(?:\[\d+\])?: (?:Leaving|Entering)|npm (?:ERR!|error)|yarn run|info Visit|error Command failed"
    r"| ?ELIFECYCLE|##\[|error: Recipe |ninja: build stopped|Error: Process completed|[=\-_~*\s]*$)",
)
"""Tells only that something above has failed."""


def plain(text: str) -> str:
    """Text without colours, control characters and what a progress bar has overwritten."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return _CONTROLS.sub("", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def _lines(output: str) -> list[str]:
    return [line[:_LONGEST_LINE] for line in plain(output).split("\n")]


def relevant(output: str, room: int = LONGEST) -> str:
    """The part of a failed check's output that says what went wrong, as plain text of at most so many bytes."""
    lines = [line.rstrip() for line in _lines(output)]
    while lines and _TEARDOWN.match(lines[-1]):
        lines.pop()
    wrong = [number for number, line in enumerate(lines) if _tells(line)]
    if not wrong:
        return _clipped(lines[-_WITHOUT_MARKER:], room, first=0.0)
    return _clipped(_around(lines, wrong), room, first=0.6)


def _tells(line: str) -> bool:
    return bool(_WRONG.search(line)) and not _TEARDOWN.match(line) and not _ALL_WELL.search(line)


def by_package(lines: list[str]) -> list[str]:
    """Return lines without the names of a workspace's packages in front, the lines of each package together.

    pnpm and Turborepo run the packages at the same time and mark each line.
    """
    marks = {found[1] for line in lines if (found := _PACKAGE.match(line))}
    if not marks:
        return lines
    groups: dict[str, list[str]] = {"": []}
    for line in lines:
        mark = _marked(line, marks)
        groups.setdefault(mark, []).append(line[len(mark) + 2 :] if mark else line)
    return [line for group in groups.values() for line in group]


def _marked(line: str, marks: set[str]) -> str:
    """The mark that a line has in front, if it is one of these."""
    end = line.find(": ")
    while 0 <= end < _LONGEST_MARK:
        if line[:end] in marks:
            return line[:end]
        end = line.find(": ", end + 1)
    return ""


def telling_lines(lines: Sequence[str]) -> list[str]:
    """Those of the lines that say that something went wrong."""
    return [line for line in lines if _tells(line)]


def _around(lines: list[str], wrong: list[int]) -> list[str]:
    """The telling lines with what stands around them; gaps are shown as such."""
    some = wrong if len(wrong) <= _MANY else wrong[: _MANY // 2] + wrong[-_MANY // 2 :]
    wanted = sorted({near for number in some for near in range(max(0, number - _BEFORE), number + _AFTER + 1)})
    found: list[str] = []
    last = -1
    for number in wanted:
        if number >= len(lines):
            break
        if last >= 0 and number > last + 1:
            found.append("…")
        found.append(lines[number])
        last = number
    return found


def _clipped(lines: list[str], room: int, first: float) -> str:
    """As many lines as there is room for: a share for the first ones, where the cause is, the rest for the last ones."""
    text = "\n".join(lines).strip("\n")
    data = text.encode(errors="replace")
    if len(data) <= room:
        return data.decode()
    gap = "\n…\n"
    head = int((room - len(gap.encode())) * first)
    tail = room - len(gap.encode()) - head
    start = data[:head].decode(errors="ignore").rpartition("\n")[0]
    end = data[-tail:].decode(errors="ignore")
    end = end.partition("\n")[2] or end
    return (f"{start}{gap}{end}" if start else f"…\n{end}").strip("\n")
