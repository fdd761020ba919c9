"""Parse pytest (JUnit XML), ruff (JSON) and mypy (JSON lines, or its text)."""

from __future__ import annotations

import json
import re

from agent_orchestrator.changes.checks.junit import Case, read_cases
from agent_orchestrator.fleet.fixes.model import EVERYTHING, StackFrame, ToolFailure
from agent_orchestrator.fleet.fixes.parsers.common import (
    ParseResult,
    ToolOutput,
    as_number,
    is_own,
    json_lines,
    test_failure,
    tool_failure,
)

_FRAME = re.compile(
    r"^(?P<file>[^\s:][^:\n]*\.pyi?):(?P<line>\d+): (?:in (?P<function>\S+)|(?P<error>\w*))", re.MULTILINE
)
_ERROR = re.compile(
    r"^E   +(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Failed))\b", re.MULTILINE
)
_ERROR_LINE = re.compile(r"^E   +(.*)$", re.MULTILINE)
_MYPY = re.compile(
    r"^(?P<file>[^:\n]+\.pyi?):(?P<line>\d+)(?::\d+)?: error: (?P<message>.*?)(?:  \[(?P<code>[\w-]+)\])?$"
)
_COLLECTION_FAILURE = "collection failure"


def parse_pytest(output: ToolOutput) -> ParseResult:
    """Parse the JUnit report that pytest was asked to write."""
    findings = ParseResult()
    cases: list[Case] = []
    for report in output.reports:
        try:
            cases += read_cases(report)
        except ValueError:
            continue
    if output.code in (3, 4) or (not cases and output.code not in (0, 5)):
        findings.problem = _error_line(output)
        return findings
    for case in cases:
        add_case(output, case, findings)
    return findings


def add_case(output: ToolOutput, case: Case, result: ParseResult) -> None:
    """Add one test of a JUnit report of pytest; one that stands for a file is a file that could not be imported."""
    is_test = bool(case.classname) and case.message != _COLLECTION_FAILURE
    file = output.relative_path(case.file or _module_file(case.classname or case.name))
    name = _node_id(case, file) if is_test else file
    if is_test and result.tests.get(name) != "failed":
        result.tests[name] = case.state
    if case.state != "failed" or any(failure.id == name for failure in result.failures):
        return
    if not is_test:
        result.hidden.append(file)
    lines = _ERROR_LINE.findall(case.text)
    error = _ERROR.search(case.text)
    rule = error["type"].rpartition(".")[2] if error else ("AssertionError" if lines else case.kind)
    message = lines[0] if lines else case.message.partition("\n")[0] or rule
    result.failures.append(
        test_failure(output, name, file, message, case.text, rule, parse_frames(output, case.text), case.line)
    )


def parse_frames(output: ToolOutput, text: str) -> list[StackFrame]:
    """Return the project's own places in a traceback of pytest's format, the innermost last."""
    frames: list[StackFrame] = []
    for match in _FRAME.finditer(text):
        file, line = output.relative_path(match["file"]), int(match["line"])
        if is_own(file) and (not frames or (frames[-1].file, frames[-1].line) != (file, line)):
            frames.append(StackFrame(file, line, match["function"] or ""))
    return frames


def _node_id(case: Case, file: str) -> str:
    """Return a test's id as pytest writes it: file, classes and name."""
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.classname
    for prefix in (module, module.rpartition(".")[2]):
        if classes == prefix or classes.startswith(f"{prefix}."):
            classes = classes[len(prefix) :].lstrip(".")
            break
    else:
        parts = classes.split(".")
        classes = ".".join(part for part in parts if part[:1].isupper())
    return "::".join([file, *(part for part in classes.split(".") if part), case.name])


def _module_file(dotted: str) -> str:
    """Return the file of a dotted module name, without classes."""
    parts = [part for part in dotted.split(".") if part and not part[:1].isupper()]
    return "/".join(parts) + ".py" if parts else ""


def _error_line(output: ToolOutput) -> str:
    """Return the first line of the output that looks like an error, else the last line, else the exit code."""
    lines = [line.strip() for line in output.lines if line.strip()]
    error_lines = [line for line in lines if re.search(r"\b(?:error|Error|not found|No module)\b", line)]
    return (error_lines or lines or [f"it ended with exit code {output.code}"])[0 if error_lines else -1][:300]


def parse_ruff(output: ToolOutput) -> ParseResult:
    """Parse ruff's JSON."""
    findings = ParseResult()
    try:
        violations = json.loads(output.out)
        assert isinstance(violations, list)
    except (ValueError, AssertionError):
        findings.problem = _error_line(output) if output.code else "it wrote no JSON"
        return findings
    for violation in violations:
        file = output.relative_path(str(violation.get("filename") or ""))
        line = as_number((violation.get("location") or {}).get("row"))
        rule = str(violation.get("code") or violation.get("name") or "invalid-syntax")
        findings.failures.append(
            tool_failure(
                output, file, line, rule, str(violation.get("message") or rule), hint=str(violation.get("url") or "")
            )
        )
    return findings


def parse_mypy(output: ToolOutput) -> ParseResult:
    """Parse mypy's JSON lines, or its text if there is no JSON."""
    findings = ParseResult()
    notes: dict[tuple[str, int], list[str]] = {}
    for entry in json_lines(output.out):
        file, line = output.relative_path(str(entry.get("file") or "")), as_number(entry.get("line"))
        message, hint = str(entry.get("message") or ""), str(entry.get("hint") or "")
        if entry.get("severity") == "error":
            findings.failures.append(
                tool_failure(output, file, line, str(entry.get("code") or "misc"), message, hint=hint)
            )
        else:
            notes.setdefault((file, line), []).append(message)
    if not findings.failures:
        findings.failures += parse_mypy_text(output)
    if output.code == 2:
        blocking_errors = [entry for entry in findings.failures if entry.rule in ("syntax", "misc")]
        if not blocking_errors:
            findings.failures.clear()
            findings.problem = _error_line(output)
        else:
            findings.hidden.append(EVERYTHING)
    elif output.code and not findings.failures:
        findings.problem = _error_line(output)
    return findings


def parse_mypy_text(output: ToolOutput) -> list[ToolFailure]:
    """Return mypy's errors from its text, which has one error per line."""
    matches = (_MYPY.match(line) for line in output.lines)
    return [
        tool_failure(
            output, output.relative_path(match["file"]), int(match["line"]), match["code"] or "misc", match["message"]
        )
        for match in matches
        if match
    ]
