"""pytest (JUnit XML), ruff (JSON) and mypy (JSON lines, or its text)."""

from __future__ import annotations

import json
import re

from agent_orchestrator.changes.checks.junit import Case, read_cases
from agent_orchestrator.fleet.fixes.model import EVERYTHING, Failure, Frame
from agent_orchestrator.fleet.fixes.parsers.common import (
    Found,
    Said,
    as_number,
    complaint,
    is_own,
    json_lines,
    test_failure,
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
_COULD_NOT_COLLECT = "collection failure"


def pytest(said: Said) -> Found:
    """By the JUnit report that it was told to write."""
    found = Found()
    cases: list[Case] = []
    for report in said.reports:
        try:
            cases += read_cases(report)
        except ValueError:
            continue
    if said.code in (3, 4) or (not cases and said.code not in (0, 5)):
        found.problem = _why(said)
        return found
    for case in cases:
        read_case(said, case, found)
    return found


def read_case(said: Said, case: Case, found: Found) -> None:
    """Add a test of pytest's report."""
    collected = bool(case.classname) and case.message != _COULD_NOT_COLLECT
    file = said.path(case.file or _module_file(case.classname or case.name))
    name = _node(case, file) if collected else file
    if collected and found.tests.get(name) != "failed":
        found.tests[name] = case.state
    if case.state != "failed" or any(one.id == name for one in found.failures):
        return
    if not collected:
        found.hidden.append(file)
    lines = _ERROR_LINE.findall(case.text)
    error = _ERROR.search(case.text)
    rule = error["type"].rpartition(".")[2] if error else ("AssertionError" if lines else case.kind)
    message = lines[0] if lines else case.message.partition("\n")[0] or rule
    found.failures.append(
        test_failure(said, name, file, message, case.text, rule, frames_in(said, case.text), case.line)
    )


def frames_in(said: Said, text: str) -> list[Frame]:
    """The project's own places that a traceback in pytest's wording passes through, the innermost last."""
    frames: list[Frame] = []
    for match in _FRAME.finditer(text):
        file, line = said.path(match["file"]), int(match["line"])
        if is_own(file) and (not frames or (frames[-1].file, frames[-1].line) != (file, line)):
            frames.append(Frame(file, line, match["function"] or ""))
    return frames


def _node(case: Case, file: str) -> str:
    """As pytest calls a test: file, classes and name."""
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
    parts = [part for part in dotted.split(".") if part and not part[:1].isupper()]
    return "/".join(parts) + ".py" if parts else ""


def _why(said: Said) -> str:
    lines = [line.strip() for line in said.lines if line.strip()]
    telling = [line for line in lines if re.search(r"\b(?:error|Error|not found|No module)\b", line)]
    return (telling or lines or [f"it ended with exit code {said.code}"])[0 if telling else -1][:300]


def ruff(said: Said) -> Found:
    """By its JSON."""
    found = Found()
    try:
        listed = json.loads(said.out)
        assert isinstance(listed, list)
    except (ValueError, AssertionError):
        found.problem = _why(said) if said.code else "it wrote no JSON"
        return found
    for one in listed:
        file = said.path(str(one.get("filename") or ""))
        line = as_number((one.get("location") or {}).get("row"))
        rule = str(one.get("code") or one.get("name") or "invalid-syntax")
        found.failures.append(
            complaint(said, file, line, rule, str(one.get("message") or rule), hint=str(one.get("url") or ""))
        )
    return found


def mypy(said: Said) -> Found:
    """By its JSON lines, or by its text where it writes no JSON."""
    found = Found()
    notes: dict[tuple[str, int], list[str]] = {}
    for one in json_lines(said.out):
        file, line = said.path(str(one.get("file") or "")), as_number(one.get("line"))
        message, hint = str(one.get("message") or ""), str(one.get("hint") or "")
        if one.get("severity") == "error":
            found.failures.append(complaint(said, file, line, str(one.get("code") or "misc"), message, hint=hint))
        else:
            notes.setdefault((file, line), []).append(message)
    if not found.failures:
        found.failures += mypy_text(said)
    if said.code == 2:
        blocked = [one for one in found.failures if one.rule in ("syntax", "misc")]
        if not blocked:
            found.failures.clear()
            found.problem = _why(said)
        else:
            found.hidden.append(EVERYTHING)
    elif said.code and not found.failures:
        found.problem = _why(said)
    return found


def mypy_text(said: Said) -> list[Failure]:
    """mypy's own way of telling, one error a line."""
    matches = (_MYPY.match(line) for line in said.lines)
    return [
        complaint(said, said.path(one["file"]), int(one["line"]), one["code"] or "misc", one["message"])
        for one in matches
        if one
    ]
