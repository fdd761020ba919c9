"""eslint (JSON), tsc (text), jest and vitest (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.changes.checks.summary import plain
from agent_orchestrator.fleet.fixes.model import Failure, Frame
from agent_orchestrator.fleet.fixes.parsers.common import Found, Said, as_number, complaint, is_own, test_failure

_TSC = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+),\d+\): error (?P<code>TS\d+): (?P<message>.*)$")
_TSC_GLOBAL = re.compile(r"^error (?P<code>TS\d+): (?P<message>.*)$")
_STACK = re.compile(
    r"^[ \t]+at (?:(?P<function>.+?) \()?(?P<file>(?:file://)?[^\s()]+?):(?P<line>\d+):\d+\)?$", re.MULTILINE
)
_ERROR = re.compile(r"^(?P<type>\w*(?:Error|Exception))\b")
_STATES = {"passed": "passed", "failed": "failed"}


def eslint(said: Said) -> Found:
    """By its JSON: errors; warnings only where it fails because of them."""
    found = Found()
    try:
        listed = json.loads(said.out[said.out.index("[") :])
    except ValueError:
        found.problem = _first_line(said)
        return found
    warnings: list[Failure] = []
    for file in listed:
        path = said.path(str(file.get("filePath") or ""))
        for one in file.get("messages") or ():
            rule = str(one.get("ruleId") or "parse-error")
            failure = complaint(said, path, as_number(one.get("line")), rule, str(one.get("message") or rule))
            (found.failures if one.get("severity") == 2 else warnings).append(failure)
            if one.get("fatal"):
                found.hidden.append(path)
    if said.code == 1 and not found.failures:
        found.failures = warnings
    if said.code == 2:
        found.problem = _first_line(said)
    return found


def tsc(said: Said) -> Found:
    """By its text."""
    found = Found()
    found.failures = tsc_text(said)
    if said.code and not found.failures:
        found.problem = _first_line(said)
    return found


def tsc_text(said: Said) -> list[Failure]:
    """Errors with their continued lines."""
    failures: list[Failure] = []
    lines = said.lines
    for number, line in enumerate(lines):
        if match := _TSC.match(line):
            more = []
            for following in lines[number + 1 :]:
                if not following.startswith(" "):
                    break
                more.append(following)
            detail = "\n".join([match["message"], *more])
            file = said.path(match["file"])
            failures.append(complaint(said, file, int(match["line"]), match["code"], match["message"], detail))
        elif match := _TSC_GLOBAL.match(line):
            failures.append(complaint(said, "", 0, match["code"], match["message"]))
    return failures


def jest(said: Said) -> Found:
    """By the JSON report of jest, or of vitest, which writes the same."""
    found = Found()
    data = _report(said)
    if data is None:
        found.problem = _first_line(said)
        return found
    for suite in data.get("testResults") or ():
        file = said.path(str(suite.get("name") or ""))
        for one in suite.get("assertionResults") or ():
            name = f"{file} > {' > '.join([*(one.get('ancestorTitles') or ()), str(one.get('title') or '')])}"
            state = _STATES.get(str(one.get("status")), "skipped")
            found.tests[name] = state
            if state == "failed":
                text = plain("\n".join(str(text) for text in one.get("failureMessages") or ()))
                line = as_number((one.get("location") or {}).get("line"))
                found.failures.append(_failed(said, name, file, text, line))
        if suite.get("status") == "failed" and not suite.get("assertionResults"):
            found.hidden.append(file)
            text = plain(str(suite.get("message") or "the file could not be run"))
            found.failures.append(_failed(said, file, file, text, 0))
    if said.code and not found.failures:
        found.problem = _first_line(said)
    return found


def _failed(said: Said, name: str, file: str, text: str, line: int) -> Failure:
    lines = [one.strip() for one in text.split("\n") if one.strip() and not one.lstrip().startswith("●")]
    message = lines[0] if lines else "it fails"
    error = _ERROR.match(message)
    if len(lines) > 1 and "expect(" in message:  # jest says what was expected below
        message = " ".join(line for line in lines[:4] if not line.startswith("at "))
    frames = list(reversed(frames_in(said, text)))
    return test_failure(said, name, file, message, text, error["type"] if error else "", frames, line)


def frames_in(said: Said, text: str) -> list[Frame]:
    """The project's own places in a stack, the innermost first."""
    frames = []
    for match in _STACK.finditer(text):
        file = said.path(match["file"])
        if is_own(file):
            frames.append(Frame(file, int(match["line"]), match["function"] or ""))
    return frames


def _report(said: Said) -> Mapping[str, Any] | None:
    for report in said.reports:
        try:
            data = json.loads(read_plain(report))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and "testResults" in data:
            return data
    return None


def _first_line(said: Said) -> str:
    lines = [line.strip() for line in (plain(said.err).split("\n") + plain(said.out).split("\n")) if line.strip()]
    telling = [line for line in lines if re.search(r"error|not found|cannot|fail", line, re.IGNORECASE)]
    return (telling or lines or [f"it ended with exit code {said.code}"])[0][:300]
