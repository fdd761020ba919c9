"""What a check's output means: the part that says what went wrong, and how many tests there were."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.plain import UNSEEN
from agent_orchestrator.services.checks.outcome import TestCounts

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


# -- numbers -----------------------------------------------------------------------------------------------------------

_NUMBERS = re.compile(
    r"(\d+) (passed|passing|failed|failing|errors?|skipped|pending|ignored|todo|xfailed|xpassed|total)\b"
)
_KINDS = {
    "passed": "passed",
    "passing": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "failing": "failed",
    "error": "failed",
    "errors": "failed",
    "skipped": "skipped",
    "pending": "skipped",
    "ignored": "skipped",
    "todo": "skipped",
    "xfailed": "skipped",
}
_PYTEST = re.compile(
    r"^=*\s*(\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b.*) in [\d.]+s"
)
_JEST = re.compile(r"^\s*Tests:?\s+(\d+ (?:passed|failed|skipped|todo)\b.*)")
_CARGO = re.compile(r"^test result: \w+\. (.*)")
_MOCHA = re.compile(r"^\s+(\d+ (?:passing|failing|pending))\b")
_GO = re.compile(r"^--- (PASS|FAIL|SKIP): ")
_UNITTEST = re.compile(r"^Ran (\d+) tests? in ")
_UNITTEST_END = re.compile(r"^(?:FAILED|OK) \((.*)\)$")


def counted(output: str) -> TestCounts | None:
    """How many tests there were, by the closing lines of well-known test runners; none where nothing tells."""
    lines = _lines(output)
    for pattern, every in ((_PYTEST, False), (_JEST, False), (_CARGO, True), (_MOCHA, True)):
        texts = [found[1] for line in lines if (found := pattern.match(line))]
        if texts:
            return _sum(texts if every else texts[-1:])
    words = [found[1] for line in lines if (found := _GO.match(line))]
    if words:
        return _counts(words.count("PASS"), words.count("FAIL"), words.count("SKIP"))
    return _unittest(lines)


def _sum(texts: list[str]) -> TestCounts:
    numbers = {"passed": 0, "failed": 0, "skipped": 0}
    for text in texts:
        for number, word in _NUMBERS.findall(text):
            if word in _KINDS:
                numbers[_KINDS[word]] += int(number[:9])
    return _counts(**numbers)


def _unittest(lines: list[str]) -> TestCounts | None:
    totals = [int(found[1][:9]) for line in lines if (found := _UNITTEST.match(line))]
    if not totals:
        return None
    ends = [found[1] for line in lines if (found := _UNITTEST_END.match(line))]
    numbers = dict(re.findall(r"([a-z ]+)=(\d{1,9})", ends[-1])) if ends else {}
    failed = sum(int(numbers.get(word, 0)) for word in ("failures", " errors", "errors"))
    skipped = sum(int(numbers.get(word, 0)) for word in ("skipped", " skipped"))
    return _counts(max(0, totals[-1] - failed - skipped), failed, skipped)


def _counts(passed: int, failed: int, skipped: int) -> TestCounts:
    return TestCounts(passed, failed, skipped, passed + failed + skipped)
