"""Parse the output of an unknown command: its JUnit report, else tests and well-known lines in its text, else its exit code."""

from __future__ import annotations

import re
from pathlib import Path

from agent_orchestrator.changes.checks.junit import read_cases
from agent_orchestrator.changes.checks.outcome import WHOLE_OUTPUT
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.changes.checks.runners.combined import read_lines
from agent_orchestrator.changes.checks.runners.errors import read_errors
from agent_orchestrator.changes.checks.summary import relevant_output
from agent_orchestrator.fleet.fixes.model import StackFrame, ToolFailure, stable_id
from agent_orchestrator.fleet.fixes.parsers import node, python
from agent_orchestrator.fleet.fixes.parsers.common import ParseResult, ToolOutput, is_own, test_failure, tool_failure

PYTEST_REPORT = "pytest.xml"
"""The name of the report that pytest writes, however it is run."""
_NOT_RUN_CODES = (126, 127)
_ERROR_POSITION = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*\.\w{1,8}):(?P<line>\d+)(?::\d+)?:? (?:(?:fatal )?(?:error|Error|E)\b:? ?)?"
    r"(?:(?P<rule>[A-Z]{1,4}\d{2,5})\b:?)? ?(?:\[\*\] )?(?P<message>.+)$"
)
_ERROR_MARK = re.compile(r":\d+(?::\d+)?:? (?:(?:fatal )?[Ee]rror\b|[A-Z]{1,4}\d{2,5}\b)")
_REFORMAT = re.compile(r"^(?:Would reformat:?|would reformat) (?P<file>\S+)$")
_TRACEBACK = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?$', re.MULTILINE)
_FILE_OF_NAME = re.compile(r"^(?P<file>[^\s:>]+\.\w{1,5})(?:::|:| > |$)")
_SEPARATOR = re.compile(r"^\s*[=\-_*]{10,}\s*$")
MAX_ERRORS = 2000
MAX_EXCERPT_LINES = 40
"""Lines of output that an excerpt has at most."""


def parse_command(output: ToolOutput) -> ParseResult:
    """Parse the most detailed source: reports first, then the text, then the exit code."""
    findings = ParseResult()
    if output.code in _NOT_RUN_CODES:
        lines = [line.strip() for line in output.lines if line.strip()]
        findings.problem = (lines or ["the command was not found"])[-1][:300]
        return findings
    _parse_junit(output, findings)
    if findings.failures:
        return findings
    _parse_text(output, findings)
    if output.code:
        findings.failures = findings.failures[:MAX_ERRORS] or [whole_command_failure(output)]
    return findings


def _parse_junit(output: ToolOutput, findings: ParseResult) -> None:
    """Add the tests of the JUnit reports."""
    for report in output.reports:
        try:
            cases = read_cases(report)
        except ValueError:
            continue
        for case in cases:
            if report.name == PYTEST_REPORT:
                python.add_case(output, case, findings)
                continue
            file = output.relative_path(case.file)
            name = "::".join(part for part in (file or case.classname, case.name) if part)
            findings.tests[name] = case.state
            if case.state == "failed":
                message = case.message or next((line for line in case.text.split("\n") if line.strip()), "it fails")
                frames = python.parse_frames(output, case.text)
                findings.failures.append(
                    test_failure(output, name, file, message, case.text or message, "", frames, case.line)
                )


def _parse_text(output: ToolOutput, findings: ParseResult) -> None:
    """Add what the parsers of checks find in the text: failing tests, and errors of linters and compilers."""
    top = Path(output.top) if output.top else None
    text = "\n".join(output.lines)
    outcome = read_outcome(text, (), exit_code=output.code, top=top)
    if outcome.passed:
        states = ((outcome.passed, "passed"), (outcome.skipped, "skipped"))
        findings.tests.update({name: state for names, state in states for name in names})
    else:
        findings.executed = outcome.executed_count
    errors = read_errors(read_lines(text, top))
    findings.hidden += outcome.not_loaded
    others: list[ToolFailure] = []
    for name, message in outcome.failures.items() if output.code else ():
        if name.startswith(WHOLE_OUTPUT):
            continue
        match = _FILE_OF_NAME.match(name)
        file = output.relative_path(match["file"]) if match else ""
        if name in errors:
            others.append(ToolFailure(output.tool.name, name, message, file, rule="error", detail=message))
            continue
        if outcome.passed and name not in outcome.not_loaded:
            findings.tests[name] = "failed"
        detail = _excerpt_of(output.lines, name) or message
        findings.failures.append(test_failure(output, name, file, message, detail, "", _frames(output, detail)))
    findings.failures += (_errors_with_position(output) or others) if others else []


def _excerpt_of(lines: list[str], name: str) -> str:
    """Return the lines that begin where a test is named last, or "" if it is not named."""
    short_name = re.split(r"::|\.| > | › ", name)[-1].strip()
    line_numbers = [number for number, line in enumerate(lines) if short_name and short_name in line]
    if not line_numbers:
        return ""
    excerpt_lines = lines[line_numbers[-1] : line_numbers[-1] + 1]
    for line in lines[line_numbers[-1] + 1 : line_numbers[-1] + MAX_EXCERPT_LINES]:
        if _SEPARATOR.match(line) and len(excerpt_lines) > 2:
            break
        excerpt_lines.append(line)
    return "\n".join(excerpt_lines).strip("\n")


def _frames(output: ToolOutput, text: str) -> list[StackFrame]:
    """Return the project's own places in a traceback, the innermost last."""
    frames = []
    for match in _TRACEBACK.finditer(text):
        file = output.relative_path(match["file"])
        if is_own(file):
            frames.append(StackFrame(file, int(match["line"]), match["function"] or ""))
    return frames or list(reversed(node.parse_frames(output, text)))


def _errors_with_position(output: ToolOutput) -> list[ToolFailure]:
    """Return errors of linters and compilers whose rule and line are known."""
    failures = {failure.id: failure for failure in python.parse_mypy_text(output) + node.parse_tsc_text(output)}
    for line in output.lines:
        if match := _REFORMAT.match(line):
            failure = tool_failure(
                output, output.relative_path(match["file"]), 0, "format", "the file is not formatted"
            )
            failures[failure.id] = failure
        elif _ERROR_MARK.search(line) and (match := _ERROR_POSITION.match(line)):
            failure = tool_failure(
                output,
                output.relative_path(match["file"]),
                int(match["line"]),
                match["rule"] or "error",
                match["message"],
            )
            if all(
                (other_failure.file, other_failure.line) != (failure.file, failure.line)
                for other_failure in failures.values()
            ):
                failures[failure.id] = failure
    return list(failures.values())


def whole_command_failure(output: ToolOutput) -> ToolFailure:
    """Return one failure that stands for the whole command."""
    excerpt = relevant_output("\n".join(output.lines))
    message = f"{output.tool.command} ends with exit code {output.code}"
    return ToolFailure(output.tool.name, stable_id("exit", output.tool.command), message, detail=excerpt)
