"""Parse `parse_go test` (JSON) and `parse_cargo test` (JSON of the compiler, text of the tests)."""

from __future__ import annotations

import re
from collections import defaultdict

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

_GO_PLACE = re.compile(r"^\s*(?P<file>[\w./-]+\.go):(?P<line>\d+):(?:\d+:)? ?(?P<message>.*)$")
_GO_STACK = re.compile(r"^[ \t]+(?P<file>/\S+\.go):(?P<line>\d+)(?: \+0x[0-9a-f]+)?$", re.MULTILINE)
_GO_NOISE = re.compile(r"^\s*(?:=== \w+|--- (?:FAIL|PASS|SKIP)|FAIL\b|ok\b|exit status|PASS$|\s*$)")
_GO_TEXT = re.compile(r"^\s*--- (?P<state>FAIL|PASS|SKIP): (?P<name>\S+)")
_STATES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_CARGO_TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<state>ok|FAILED|ignored.*)$")
_CARGO_HEAD = re.compile(r"^---- (?P<name>.+?) stdout ----$")
_LINE_SUFFIX = re.compile(r" \(line \d+\)")
_PANICKED = re.compile(r"panicked at (?:'(?P<old>.*)', )?(?P<file>[^\s:']+\.rs):(?P<line>\d+)(?::\d+)?:?$")


def parse_go(output: ToolOutput) -> ParseResult:
    """Parse the events of `parse_go test -json`; compiler errors are in separate events or on stderr."""
    findings = ParseResult()
    text: dict[tuple[str, str], list[str]] = defaultdict(list)
    states: dict[tuple[str, str], str] = {}
    build_output: list[str] = []
    for event in json_lines(output.out):
        test_key = str(event.get("Package") or ""), str(event.get("Test") or "")
        action = event.get("Action")
        if action == "output":
            text[test_key].append(str(event.get("Output") or ""))
        elif action == "build-output":
            build_output.append(str(event.get("Output") or ""))
        elif action in _STATES:
            states[test_key] = _STATES[str(action)]
    packages = [package for package, test in states if not test]
    module = _module_of(packages)
    text_of_build = "".join(build_output) + "\n" + output.err
    _add_build_errors(output, text_of_build, findings)
    for (package, test), state in states.items():
        name = f"{package}.{test}" if test else package
        if test:
            findings.tests[name] = state
        if state == "failed" and not (test and _has_failed_child(states, package, test)):
            _add_go_failure(output, findings, states, (package, test), text, module)
    if output.code and not findings.failures:
        lines = [line.strip() for line in output.lines if line.strip() and not line.startswith("{")]
        findings.problem = (lines or [f"it ended with exit code {output.code}"])[0][:300]
    return findings


def _add_go_failure(
    output: ToolOutput,
    findings: ParseResult,
    states: dict[tuple[str, str], str],
    test_key: tuple[str, str],
    texts: dict[tuple[str, str], list[str]],
    module: str,
) -> None:
    """Add the failure of a test, or of a package that failed without a failed test."""
    package, test = test_key
    folder = package[len(module) :].lstrip("/")
    text = "".join(texts[test_key])
    if not test:
        has_failed_test = any(
            other == package and name and state == "failed" for (other, name), state in states.items()
        )
        if has_failed_test or "[build failed]" in text or "[setup failed]" in text:
            if not has_failed_test:
                findings.hidden.append(package)
            return
    lines = [line for line in text.split("\n") if not _GO_NOISE.match(line)]
    match = next((match for line in lines if (match := _GO_PLACE.match(line))), None)
    file, line, message = "", 0, next((line.strip() for line in lines if line.strip()), "it fails")
    panic = next((item.strip() for item in lines if item.startswith("panic: ")), "")
    frames = [StackFrame(output.relative_path(item["file"]), int(item["line"])) for item in _GO_STACK.finditer(text)]
    frames = [frame for frame in reversed(frames) if is_own(frame.file)]
    if panic:
        message = panic.removesuffix(" [recovered]")
        findings.hidden.append(package)  # the package's later tests did not run
    elif match:
        file = output.relative_path(
            f"{folder}/{match['file']}" if folder and "/" not in match["file"] else match["file"]
        )
        line, message = int(match["line"]), match["message"] or message
        frames = frames or [StackFrame(file, line)]
    name = f"{package}.{test}" if test else package
    rule = "panic" if panic else ""
    findings.failures.append(test_failure(output, name, file, message, "\n".join(lines), rule, frames, line))


def _add_build_errors(output: ToolOutput, text: str, findings: ParseResult) -> None:
    """Add the compiler's errors, and the packages that could not be built."""
    broken_packages: list[str] = []
    for line in text.split("\n"):
        if line.startswith("# "):
            broken_packages.append(line[2:].split(" ")[0].removesuffix(".test"))
        elif broken_packages and (match := _GO_PLACE.match(line)):
            file = output.relative_path(match["file"].removeprefix("./"))
            failure = tool_failure(output, file, int(match["line"]), "build", match["message"])
            if failure.id not in {each_failure.id for each_failure in findings.failures}:
                findings.failures.append(failure)
    findings.hidden += broken_packages


def _has_failed_child(states: dict[tuple[str, str], str], package: str, test: str) -> bool:
    """Return whether a subtest of this test failed."""
    return any(
        other == package and name.startswith(f"{test}/") and state == "failed"
        for (other, name), state in states.items()
    )


def _module_of(packages: list[str]) -> str:
    """Return the module path that all packages begin with."""
    return min(packages, key=len, default="")


def parse_cargo(output: ToolOutput) -> ParseResult:
    """Parse the compiler's messages as JSON, then the tests' text."""
    findings = ParseResult()
    has_built = True
    for message_data in json_lines(output.out):
        if message_data.get("reason") == "build-finished":
            has_built = bool(message_data.get("success"))
        message = message_data.get("message")
        if message_data.get("reason") == "compiler-message" and isinstance(message, dict):
            _add_compiler_error(output, message, findings)
    if not has_built:
        findings.hidden.append(EVERYTHING)
    findings.tests, failed = parse_cargo_text(output)
    findings.failures += failed
    if output.code and not findings.failures:
        lines = [line.strip() for line in output.err.split("\n") if line.strip().startswith("error")]
        findings.problem = (lines or [f"it ended with exit code {output.code}"])[0][:300]
    return findings


def _add_compiler_error(output: ToolOutput, message: dict[str, object], findings: ParseResult) -> None:
    """Add an error of the compiler."""
    spans = message.get("spans")
    if message.get("level") != "error" or not isinstance(spans, list) or not spans:
        return
    span = next((item for item in spans if item.get("is_primary")), spans[0])
    code = message.get("code")
    rule = str(code.get("code")) if isinstance(code, dict) else "error"
    file, line = output.relative_path(str(span.get("file_name") or "")), as_number(span.get("line_start"))
    text = str(message.get("message") or "")
    failure = tool_failure(output, file, line, rule, text, str(message.get("rendered") or text))
    if all(
        (item.id, item.line) != (failure.id, failure.line) for item in findings.failures
    ):  # reported once per target
        findings.failures.append(failure)


def parse_cargo_text(output: ToolOutput) -> tuple[dict[str, str], list[ToolFailure]]:
    """Return the state of each test, and the failed tests with their output."""
    tests: dict[str, str] = {}
    output_of: dict[str, list[str]] = {}
    test_name = ""
    for line in output.out.split("\n"):
        if match := _CARGO_TEST.match(line):
            result = match["state"]
            tests[_without_line(match["name"])] = {"ok": "passed", "FAILED": "failed"}.get(result, "skipped")
        elif match := _CARGO_HEAD.match(line):
            test_name = _without_line(match["name"])
            output_of[test_name] = []
        elif line == "failures:" or line.startswith("test result:"):
            test_name = ""
        elif test_name:
            output_of[test_name].append(line)
    failures = []
    for name, state in tests.items():
        if state == "failed":
            failures.append(_cargo_failure(output, name, output_of.get(name, [])))
    return tests, failures


def _without_line(name: str) -> str:
    """Return a test's name without the line number that examples in documentation have."""
    return _LINE_SUFFIX.sub("", name)


def _cargo_failure(output: ToolOutput, name: str, lines: list[str]) -> ToolFailure:
    """Return the failure of a test, from its panic message if there is one."""
    lines = lines[: next((n for n, line in enumerate(lines) if line == "stack backtrace:"), len(lines))]
    for number, line in enumerate(lines):
        if match := _PANICKED.search(line):
            file = output.relative_path(match["file"])
            message = match["old"] or " ".join(text.strip() for text in lines[number + 1 : number + 4] if text.strip())
            frames = [StackFrame(file, int(match["line"]))] if is_own(file) else []
            return test_failure(output, name, file, message, "\n".join(lines), "panic", frames, int(match["line"]))
    message = next((line for line in lines if line.strip()), "it fails")
    return test_failure(output, name, "", message, "\n".join(lines))
