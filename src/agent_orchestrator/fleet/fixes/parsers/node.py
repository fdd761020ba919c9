"""Parse eslint (JSON), tsc (text), jest and vitest (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.fleet.fixes.model import StackFrame, ToolFailure
from agent_orchestrator.fleet.fixes.parsers.common import (
    ParseResult,
    ToolOutput,
    as_number,
    is_own,
    test_failure,
    tool_failure,
)

_TSC = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+),\d+\): error (?P<code>TS\d+): (?P<message>.*)$")
_TSC_GLOBAL = re.compile(r"^error (?P<code>TS\d+): (?P<message>.*)$")
_STACK = re.compile(
    r"^[ \t]+at (?:(?P<function>.+?) \()?(?P<file>(?:file://)?[^\s()]+?):(?P<line>\d+):\d+\)?$", re.MULTILINE
)
_ERROR = re.compile(r"^(?P<type>\w*(?:Error|Exception))\b")
_STATES = {"passed": "passed", "failed": "failed"}


def parse_eslint(output: ToolOutput) -> ParseResult:
    """Parse eslint's JSON: errors, and warnings only if eslint fails because of them."""
    findings = ParseResult()
    try:
        files = json.loads(output.out[output.out.index("[") :])
    except ValueError:
        findings.problem = _first_line(output)
        return findings
    warnings: list[ToolFailure] = []
    for file in files:
        path = output.relative_path(str(file.get("filePath") or ""))
        for message in file.get("messages") or ():
            rule = str(message.get("ruleId") or "parse-error")
            failure = tool_failure(
                output, path, as_number(message.get("line")), rule, str(message.get("message") or rule)
            )
            (findings.failures if message.get("severity") == 2 else warnings).append(failure)
            if message.get("fatal"):
                findings.hidden.append(path)
    if output.code == 1 and not findings.failures:
        findings.failures = warnings
    if output.code == 2:
        findings.problem = _first_line(output)
    return findings


def parse_tsc(output: ToolOutput) -> ParseResult:
    """Parse tsc's text."""
    findings = ParseResult()
    findings.failures = parse_tsc_text(output)
    if output.code and not findings.failures:
        findings.problem = _first_line(output)
    return findings


def parse_tsc_text(output: ToolOutput) -> list[ToolFailure]:
    """Return tsc's errors with their continuation lines."""
    failures: list[ToolFailure] = []
    lines = output.lines
    for number, line in enumerate(lines):
        if match := _TSC.match(line):
            continuation = []
            for following in lines[number + 1 :]:
                if not following.startswith(" "):
                    break
                continuation.append(following)
            detail = "\n".join([match["message"], *continuation])
            file = output.relative_path(match["file"])
            failures.append(tool_failure(output, file, int(match["line"]), match["code"], match["message"], detail))
        elif match := _TSC_GLOBAL.match(line):
            failures.append(tool_failure(output, "", 0, match["code"], match["message"]))
    return failures


def parse_jest(output: ToolOutput) -> ParseResult:
    """Parse the JSON report of jest, or of vitest, which has the same format."""
    findings = ParseResult()
    data = _read_report(output)
    if data is None:
        findings.problem = _first_line(output)
        return findings
    for suite in data.get("testResults") or ():
        file = output.relative_path(str(suite.get("name") or ""))
        for assertion in suite.get("assertionResults") or ():
            name = (
                f"{file} > {' > '.join([*(assertion.get('ancestorTitles') or ()), str(assertion.get('title') or '')])}"
            )
            state = _STATES.get(str(assertion.get("status")), "skipped")
            findings.tests[name] = state
            if state == "failed":
                text = strip_escapes("\n".join(str(text) for text in assertion.get("failureMessages") or ()))
                line = as_number((assertion.get("location") or {}).get("line"))
                findings.failures.append(_suite_failure(output, name, file, text, line))
        if suite.get("status") == "failed" and not suite.get("assertionResults"):
            findings.hidden.append(file)
            text = strip_escapes(str(suite.get("message") or "the file could not be run"))
            findings.failures.append(_suite_failure(output, file, file, text, 0))
    if output.code and not findings.failures:
        findings.problem = _first_line(output)
    return findings


def _suite_failure(output: ToolOutput, name: str, file: str, text: str, line: int) -> ToolFailure:
    """Return the failure of a test or test file."""
    lines = [
        line_text.strip()
        for line_text in text.split("\n")
        if line_text.strip() and not line_text.lstrip().startswith("●")
    ]
    message = lines[0] if lines else "it fails"
    error = _ERROR.match(message)
    if len(lines) > 1 and "expect(" in message:  # jest prints the expected value on the lines below
        message = " ".join(line for line in lines[:4] if not line.startswith("at "))
    frames = list(reversed(parse_frames(output, text)))
    return test_failure(output, name, file, message, text, error["type"] if error else "", frames, line)


def parse_frames(output: ToolOutput, text: str) -> list[StackFrame]:
    """Return the project's own places in a stack trace, the innermost first."""
    frames = []
    for match in _STACK.finditer(text):
        file = output.relative_path(match["file"])
        if is_own(file):
            frames.append(StackFrame(file, int(match["line"]), match["function"] or ""))
    return frames


def _read_report(output: ToolOutput) -> Mapping[str, Any] | None:
    """Return the first report with test results, or None if there is none."""
    for report in output.reports:
        try:
            data = json.loads(read_regular_file(report))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and "testResults" in data:
            return data
    return None


def _first_line(output: ToolOutput) -> str:
    """Return the first line of the output that looks like an error, else the first line, else the exit code."""
    lines = [
        line.strip()
        for line in (strip_escapes(output.err).split("\n") + strip_escapes(output.out).split("\n"))
        if line.strip()
    ]
    error_lines = [line for line in lines if re.search(r"error|not found|cannot|fail", line, re.IGNORECASE)]
    return (error_lines or lines or [f"it ended with exit code {output.code}"])[0][:300]
