"""The output of a command that is not known: its JUnit report, else tests and well-known lines in its text, else its exit code."""

from __future__ import annotations

import re
from pathlib import Path

from agent_orchestrator.changes.checks.junit import read_cases
from agent_orchestrator.changes.checks.outcome import WHOLE
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.changes.checks.runners.combined import read_lines
from agent_orchestrator.changes.checks.runners.errors import read_errors
from agent_orchestrator.changes.checks.summary import relevant
from agent_orchestrator.fleet.fixes.model import Failure, Frame, stable_id
from agent_orchestrator.fleet.fixes.parsers import node, python
from agent_orchestrator.fleet.fixes.parsers.common import Found, Said, complaint, is_own, test_failure

PYTEST_REPORT = "pytest.xml"
"""The name of the report that pytest writes, whatever runs it."""
_NOT_RUN = (126, 127)
_PLACE = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*\.\w{1,8}):(?P<line>\d+)(?::\d+)?:? (?:(?:fatal )?(?:error|Error|E)\b:? ?)?"
    r"(?:(?P<rule>[A-Z]{1,4}\d{2,5})\b:?)? ?(?:\[\*\] )?(?P<message>.+)$"
)
_IS_ERROR = re.compile(r":\d+(?::\d+)?:? (?:(?:fatal )?[Ee]rror\b|[A-Z]{1,4}\d{2,5}\b)")
_REFORMAT = re.compile(r"^(?:Would reformat:?|would reformat) (?P<file>\S+)$")
_TRACEBACK = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?$', re.MULTILINE)
_FILE_OF = re.compile(r"^(?P<file>[^\s:>]+\.\w{1,5})(?:::|:| > |$)")
_SEPARATOR = re.compile(r"^\s*[=\-_*]{10,}\s*$")
MOST = 2000
LONGEST_EXCERPT = 40
"""Lines."""


def command(said: Said) -> Found:
    """Read whatever says most."""
    found = Found()
    if said.code in _NOT_RUN:
        lines = [line.strip() for line in said.lines if line.strip()]
        found.problem = (lines or ["the command was not found"])[-1][:300]
        return found
    _junit(said, found)
    if found.failures:
        return found
    _outcome(said, found)
    if said.code:
        found.failures = found.failures[:MOST] or [as_a_whole(said)]
    return found


def _junit(said: Said, found: Found) -> None:
    for report in said.reports:
        try:
            cases = read_cases(report)
        except ValueError:
            continue
        for case in cases:
            if report.name == PYTEST_REPORT:
                python.read_case(said, case, found)
                continue
            file = said.path(case.file)
            name = "::".join(part for part in (file or case.classname, case.name) if part)
            found.tests[name] = case.state
            if case.state == "failed":
                message = case.message or next((line for line in case.text.split("\n") if line.strip()), "it fails")
                frames = python.frames_in(said, case.text)
                found.failures.append(
                    test_failure(said, name, file, message, case.text or message, "", frames, case.line)
                )


def _outcome(said: Said, found: Found) -> None:
    """By what the check's own reading of the output makes of it: tests that fail, and errors of linters and compilers."""
    top = Path(said.top) if said.top else None
    text = "\n".join(said.lines)
    outcome = read_outcome(text, (), exit_code=said.code, top=top)
    if outcome.passed:
        states = ((outcome.passed, "passed"), (outcome.skipped, "skipped"))
        found.tests.update({name: state for names, state in states for name in names})
    else:
        found.executed = outcome.executed
    errors = read_errors(read_lines(text, top))
    found.hidden += outcome.unloaded
    others: list[Failure] = []
    for name, message in outcome.failures.items() if said.code else ():
        if name.startswith(WHOLE):
            continue
        match = _FILE_OF.match(name)
        file = said.path(match["file"]) if match else ""
        if name in errors:
            others.append(Failure(said.tool.name, name, message, file, rule="error", detail=message))
            continue
        if outcome.passed and name not in outcome.unloaded:
            found.tests[name] = "failed"
        detail = _excerpt(said.lines, name) or message
        found.failures.append(test_failure(said, name, file, message, detail, "", _frames(said, detail)))
    found.failures += (_known(said) or others) if others else []


def _excerpt(lines: list[str], name: str) -> str:
    """What is said of a test where it is named last."""
    words = re.split(r"::|\.| > | › ", name)[-1].strip()
    places = [number for number, line in enumerate(lines) if words and words in line]
    if not places:
        return ""
    chosen = lines[places[-1] : places[-1] + 1]
    for line in lines[places[-1] + 1 : places[-1] + LONGEST_EXCERPT]:
        if _SEPARATOR.match(line) and len(chosen) > 2:
            break
        chosen.append(line)
    return "\n".join(chosen).strip("\n")


def _frames(said: Said, text: str) -> list[Frame]:
    """The project's own places in a traceback, the innermost last."""
    frames = []
    for match in _TRACEBACK.finditer(text):
        file = said.path(match["file"])
        if is_own(file):
            frames.append(Frame(file, int(match["line"]), match["function"] or ""))
    return frames or list(reversed(node.frames_in(said, text)))


def _known(said: Said) -> list[Failure]:
    """Errors whose rule and line are known too."""
    failures = {one.id: one for one in python.mypy_text(said) + node.tsc_text(said)}
    for line in said.lines:
        if match := _REFORMAT.match(line):
            one = complaint(said, said.path(match["file"]), 0, "format", "the file is not formatted")
            failures[one.id] = one
        elif _IS_ERROR.search(line) and (match := _PLACE.match(line)):
            one = complaint(
                said, said.path(match["file"]), int(match["line"]), match["rule"] or "error", match["message"]
            )
            if all((known.file, known.line) != (one.file, one.line) for known in failures.values()):
                failures[one.id] = one
    return list(failures.values())


def as_a_whole(said: Said) -> Failure:
    """One failure: the command, whatever it says."""
    told = relevant("\n".join(said.lines))
    message = f"{said.tool.command} ends with exit code {said.code}"
    return Failure(said.tool.name, stable_id("exit", said.tool.command), message, detail=told)
