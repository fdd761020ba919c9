"""Errors of linters, type checkers and compilers, one per file and message, and whatever else there is as a whole."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from agent_orchestrator.changes.checks.outcome import WHOLE
from agent_orchestrator.changes.checks.runners.common import indent, one_line, stable_name, stable_text
from agent_orchestrator.changes.checks.summary import telling_lines

MOST = 2000
"""Errors of one run that are still named."""
_ERROR_WORDS = (
    "fatal error|error|erreur fatale|erreur|schwerwiegender Fehler|Fehler|errore irreversibile|errore|erro|błąd|ошибка|エラー|错误"
    "|fel|fout|hata|오류"
)
"""What GCC says for "error" in the languages that it speaks."""
_NO_ERROR = re.compile(
    r"^(?:warning|note|info|remark|hint|help|refactor|convention|Warnung|avertissement|attenzione|aviso|предупреждение|警告)\b",
    re.IGNORECASE,
)
_PLACED = re.compile(
    r"^ {0,2}(?:vet: |ERROR in )?(?P<file>[^\s:()]{1,300}\.\w{1,10}|(?:[^\s:()]{1,200}/)?(?:Makefile|Dockerfile))"
    r":\d+(?::\d+)?(?:-\d+(?::\d+)?)?:?(?: -)? (?P<message>\S.*)$"
)
_TSC = re.compile(r"^(?P<file>[^\s(][^(]{0,300})\(\d+,\d+\): (?P<message>(?:error )?[A-Z]*\d* ?:? ?\S.*)$")
_HEADED = re.compile(r"^\s*(?:-->|╭─\[|┌─) ?(?P<file>[^\s:]+):\d+(?::\d+)?")
_LISTED = re.compile(r"^\s+(?:[✖×✘]\s+)?\d+:\d+(?:-\d+:\d+)?\s+(?P<level>error|warning|✖|⚠|×)?\s*(?P<message>\S.*)$")
_LISTED_IN = re.compile(r"^(?:\./)?(?P<file>(?:[^\s:]+/)?[^\s/:]+\.\w{1,10}):?$")
_UNFORMATTED = re.compile(
    r"^(?:[Ww]ould reformat:? |\[(?:warn|error)\] |Diff in |ERROR: |error: cannot format )(?P<file>[^\s:]+\.\w{1,10})(?::\d+)?:?"
    r"(?P<rest>.*)$"
)
_NOT_BARE = r"could not compile|test failed|aborting due|process didn't|failed to run custom|Recipe |\d+ target"
_BARE = re.compile(
    r"^(?:(?P<coverage>.*\bcoverage\b.*\b(?:not met|not reached|does not meet|less than)\b.*)"
    rf"|error(?:\[\w+\])?: (?!{_NOT_BARE})(?P<error>.+)|(?P<cmake>CMake Error.*)|(?P<link>.*\bundefined reference to .*))$",
    re.IGNORECASE,
)
_CMAKE = re.compile(r"^CMake Error(?: at (?P<file>\S+?):\d+)?(?: \((?P<what>\w+)\))?:?(?P<rest>.*)$")
_PERCENT = re.compile(r"\b\d+(?:\.\d+)?%")
_CODE = re.compile(r"^(?:[✖×]\s+)?(?:\[(?:error|E)\]\s*)?")


def read_errors(lines: Sequence[str], of_tests: Sequence[tuple[int, int]] = ()) -> dict[str, str]:
    """Return errors by a name without place, those of one file and message numbered.

    Beside tests that fail, whose lines are given, only errors with a file are taken, and none that the tests print.
    """
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for number, (file, message) in _errors(lines):
        if of_tests and (not file or any(begin <= number < end for begin, end in of_tests)):
            continue
        name = stable_name(f"{file}: {stable_text(message)}" if file else stable_text(message))
        seen[name] += 1
        numbered = name if seen[name] == 1 else f"{name} ({seen[name]})"
        line = lines[number].strip()
        found[numbered] = one_line(line if file in line else f"{file}: {line}")
        if len(found) >= MOST:
            break
    return found


def _errors(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    file, warnings = "", list[tuple[int, tuple[str, str]]]()
    some = False
    for number, line in enumerate(lines):
        if not line:
            continue
        one = _headed(lines, number) or _bare(lines, number) or _placed(line)
        if one:
            some = True
            yield number, one
        elif listed := _LISTED.match(line) if line[:1] == " " and file else None:
            entry = number, (file, _CODE.sub("", listed["message"]))
            if listed["level"] in ("warning", "⚠"):
                warnings.append(entry)
            else:
                some = True
                yield entry
        elif found := _LISTED_IN.match(line):
            file = found["file"]
        elif indent(line) == 0 and not line.startswith(" "):
            file = ""
    if not some:
        yield from warnings  # it failed, so they are too many


def _placed(line: str) -> tuple[str, str] | None:
    found = _PLACED.match(line) if ":" in line else None
    if found is None and "(" in line:
        found = _TSC.match(line)
    if found is None or _NO_ERROR.match(found["message"]) or found["message"].startswith(("in ", "At ", "from ")):
        return None
    message = re.sub(rf"^(?:{_ERROR_WORDS}) ?: ?", "", found["message"], flags=re.IGNORECASE)
    return found["file"].removeprefix("./"), message


def _headed(lines: Sequence[str], number: int) -> tuple[str, str] | None:
    """An error whose place is in one of the next lines."""
    line = lines[number]
    if line[:1].isspace() or number + 1 >= len(lines) or _NO_ERROR.match(line):
        return None
    for after in lines[number + 1 : number + 3]:
        if found := _HEADED.match(after):
            return found["file"], line.removeprefix("error: ")
    return None


def _bare(lines: Sequence[str], number: int) -> tuple[str, str] | None:
    line = lines[number]
    if found := _UNFORMATTED.match(line):
        return found["file"], found["rest"].strip(" :") or "not formatted"
    found = _BARE.match(line)
    if not found:
        return None
    if found["cmake"] and (said := _CMAKE.match(line)):
        text = next((one.strip() for one in lines[number + 1 : number + 4] if one.strip()), "")
        return said["file"] or "CMake", f"{said['what'] or ''} {said['rest'] or text}".strip()
    return ("coverage" if found["coverage"] else ""), _PERCENT.sub("…", line.strip())


def whole(lines: Sequence[str], exit_code: int | None) -> tuple[str, str]:
    """Return one failure for the whole output: its name, different for different output, and the line that tells most."""
    telling = telling_lines(lines)
    text = "\n".join(sorted({stable_text(line) for line in telling or [line for line in lines if line.strip()][-40:]}))
    how = "did not end" if exit_code is None else f"exit code {exit_code}"
    if not text:
        return f"{WHOLE}, {how}", how
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    said = telling or [line for line in lines if line.strip()][-1:]
    return f"{WHOLE}, {how}, output {digest}", one_line(said[-1])
