"""What is known of a command that is not known: its JUnit report, else well-known lines in its text, else its exit code."""

from __future__ import annotations

import re

from agent_orchestrator.services.checks.junit import read_cases
from agent_orchestrator.services.checks.summary import relevant
from agent_orchestrator.services.fixer.model import Failure, stable_id
from agent_orchestrator.services.fixer.parsing.common import Found, Said, complaint, test_failure
from agent_orchestrator.services.fixer.parsing.compiled import cargo_text
from agent_orchestrator.services.fixer.parsing.node import tsc_text
from agent_orchestrator.services.fixer.parsing.python import frames_in, mypy_text

_NOT_RUN = (126, 127)
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (?P<name>(?P<file>[^\s:]+\.py)(?:::\S.*?)?)(?: - (?P<message>.*))?$")
_GO = re.compile(r"^--- FAIL: (?P<name>\S+)")
_PLACE = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*\.\w{1,8}):(?P<line>\d+)(?::\d+)?:? (?:(?:fatal )?(?:error|Error|E)\b:? ?)?"
    r"(?:(?P<rule>[A-Z]{1,4}\d{2,5})\b:?)? ?(?:\[\*\] )?(?P<message>.+)$"
)
_IS_ERROR = re.compile(r":\d+(?::\d+)?:? (?:(?:fatal )?[Ee]rror\b|[A-Z]{1,4}\d{2,5}\b)")
_REFORMAT = re.compile(r"^(?:Would reformat:?|would reformat) (?P<file>\S+)$")
MOST = 2000


def command(said: Said) -> Found:
    """Whatever tells most."""
    found = Found()
    if said.code in _NOT_RUN:
        lines = [line.strip() for line in said.lines if line.strip()]
        found.problem = (lines or ["the command was not found"])[-1][:300]
        return found
    _junit(said, found)
    if said.code and not found.failures:
        found.failures = _known(said)[:MOST]
    if said.code and not found.failures:
        found.failures = [_as_a_whole(said)]
    return found


def _junit(said: Said, found: Found) -> None:
    for report in said.reports:
        try:
            cases = read_cases(report)
        except ValueError:
            continue
        for case in cases:
            file = said.path(case.file)
            name = "::".join(part for part in (file or case.classname, case.name) if part)
            found.tests[name] = case.state
            if case.state == "failed":
                message = case.message or next((line for line in case.text.split("\n") if line.strip()), "it fails")
                frames = frames_in(said, case.text)
                found.failures.append(
                    test_failure(said, name, file, message, case.text or message, "", frames, case.line)
                )


def _known(said: Said) -> list[Failure]:
    failures = {one.id: one for one in mypy_text(said) + tsc_text(said) + cargo_text(said)[1]}
    whole = "\n".join(said.lines)
    detail = relevant(whole)
    for line in said.lines:
        if match := _PYTEST.match(line):
            name = said.path(match["name"])
            told = match["message"] or "it fails"
            failures[name] = test_failure(said, name, said.path(match["file"]), told, detail)
        elif match := _GO.match(line):
            failures[match["name"]] = test_failure(said, match["name"], "", "it fails", detail)
        elif match := _REFORMAT.match(line):
            one = complaint(said, said.path(match["file"]), 0, "format", "the file is not formatted")
            failures[one.id] = one
        elif _IS_ERROR.search(line) and (match := _PLACE.match(line)):
            one = complaint(
                said, said.path(match["file"]), int(match["line"]), match["rule"] or "error", match["message"]
            )
            if all((known.file, known.line) != (one.file, one.line) for known in failures.values()):
                failures[one.id] = one
    return list(failures.values())


def _as_a_whole(said: Said) -> Failure:
    told = relevant("\n".join(said.lines))
    message = f"{said.tool.command} ends with exit code {said.code}"
    return Failure(said.tool.name, stable_id("exit", said.tool.command), message, detail=told)
