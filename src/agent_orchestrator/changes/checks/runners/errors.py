"""Read errors of linters, type checkers and compilers, one per file and message, or the whole output as one failure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from agent_orchestrator.changes.checks.outcome import WHOLE_OUTPUT
from agent_orchestrator.changes.checks.runners.common import indent, one_line, stable_name, stable_text
from agent_orchestrator.changes.checks.summary import problem_lines

MAX_ERRORS = 2000
"""Maximum number of errors of one run that are named."""
_ERROR_WORDS = (
    "fatal error|error|erreur fatale|erreur|schwerwiegender Fehler|Fehler|errore irreversibile|errore|erro|błąd|ошибка|エラー|错误"
    "|fel|fout|hata|오류"
)
"""The word "error" in the languages of GCC's messages."""
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
    """Return the errors by a name without line numbers; errors with the same file and message are numbered.

    If tests fail too, `of_tests` has the ranges of their lines: then only errors with a file outside of these ranges count.
    """
    errors: dict[str, str] = {}
    occurrences: Counter[str] = Counter()
    for number, (file, message) in _errors(lines):
        if of_tests and (not file or any(begin <= number < end for begin, end in of_tests)):
            continue
        name = stable_name(f"{file}: {stable_text(message)}" if file else stable_text(message))
        occurrences[name] += 1
        numbered = name if occurrences[name] == 1 else f"{name} ({occurrences[name]})"
        line = lines[number].strip()
        errors[numbered] = one_line(line if file in line else f"{file}: {line}")
        if len(errors) >= MAX_ERRORS:
            break
    return errors


def _errors(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the line number, the file and the message of each error; warnings only if there are no errors."""
    file, warnings = "", list[tuple[int, tuple[str, str]]]()
    has_errors = False
    for number, line in enumerate(lines):
        if not line:
            continue
        error = _error_with_file_below(lines, number) or _error_without_place(lines, number) or _error_with_file(line)
        if error:
            has_errors = True
            yield number, error
        elif listed_error := _LISTED.match(line) if line[:1] == " " and file else None:
            entry = number, (file, _CODE.sub("", listed_error["message"]))
            if listed_error["level"] in ("warning", "⚠"):
                warnings.append(entry)
            else:
                has_errors = True
                yield entry
        elif file_heading := _LISTED_IN.match(line):
            file = file_heading["file"]
        elif indent(line) == 0 and not line.startswith(" "):
            file = ""
    if not has_errors:
        yield from warnings  # the command failed without an error, so there were too many warnings


def _error_with_file(line: str) -> tuple[str, str] | None:
    """Return the file and the message of an error whose line starts with its file, or None."""
    match = _PLACED.match(line) if ":" in line else None
    if match is None and "(" in line:
        match = _TSC.match(line)
    if match is None or _NO_ERROR.match(match["message"]) or match["message"].startswith(("in ", "At ", "from ")):
        return None
    message = re.sub(rf"^(?:{_ERROR_WORDS}) ?: ?", "", match["message"], flags=re.IGNORECASE)
    return match["file"].removeprefix("./"), message


def _error_with_file_below(lines: Sequence[str], number: int) -> tuple[str, str] | None:
    """Return the file and the message of an error whose file is in one of the next two lines, or None."""
    line = lines[number]
    if line[:1].isspace() or number + 1 >= len(lines) or _NO_ERROR.match(line):
        return None
    for next_line in lines[number + 1 : number + 3]:
        if match := _HEADED.match(next_line):
            return match["file"], line.removeprefix("error: ")
    return None


def _error_without_place(lines: Sequence[str], number: int) -> tuple[str, str] | None:
    """Return the file or "" and the message of an error without a line number, or None."""
    line = lines[number]
    if match := _UNFORMATTED.match(line):
        return match["file"], match["rest"].strip(" :") or "not formatted"
    match = _BARE.match(line)
    if not match:
        return None
    if match["cmake"] and (cmake_match := _CMAKE.match(line)):
        text = next((next_line.strip() for next_line in lines[number + 1 : number + 4] if next_line.strip()), "")
        return cmake_match["file"] or "CMake", f"{cmake_match['what'] or ''} {cmake_match['rest'] or text}".strip()
    return ("coverage" if match["coverage"] else ""), _PERCENT.sub("…", line.strip())


def whole_output_failure(lines: Sequence[str], exit_code: int | None) -> tuple[str, str]:
    """Return one failure for the whole output: a name with a digest of the output, and the most informative line."""
    informative_lines = problem_lines(lines)
    text = "\n".join(
        sorted({stable_text(line) for line in informative_lines or [line for line in lines if line.strip()][-40:]})
    )
    ending = "did not end" if exit_code is None else f"exit code {exit_code}"
    if not text:
        return f"{WHOLE_OUTPUT}, {ending}", ending
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    shown_lines = informative_lines or [line for line in lines if line.strip()][-1:]
    return f"{WHOLE_OUTPUT}, {ending}, output {digest}", one_line(shown_lines[-1])
