"""go test (JSON) and cargo test (JSON of the compiler, text of the tests)."""

from __future__ import annotations

import re
from collections import defaultdict

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

_GO_PLACE = re.compile(r"^\s*(?P<file>[\w./-]+\.go):(?P<line>\d+):(?:\d+:)? ?(?P<message>.*)$")
_GO_STACK = re.compile(r"^[ \t]+(?P<file>/\S+\.go):(?P<line>\d+)(?: \+0x[0-9a-f]+)?$", re.MULTILINE)
_GO_NOISE = re.compile(r"^\s*(?:=== \w+|--- (?:FAIL|PASS|SKIP)|FAIL\b|ok\b|exit status|PASS$|\s*$)")
_GO_TEXT = re.compile(r"^\s*--- (?P<state>FAIL|PASS|SKIP): (?P<name>\S+)")
_STATES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_CARGO_TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<state>ok|FAILED|ignored.*)$")
_CARGO_HEAD = re.compile(r"^---- (?P<name>.+?) stdout ----$")
_LINE = re.compile(r" \(line \d+\)")
_PANICKED = re.compile(r"panicked at (?:'(?P<old>.*)', )?(?P<file>[^\s:']+\.rs):(?P<line>\d+)(?::\d+)?:?$")


def go(said: Said) -> Found:
    """By the events of `go test -json`; what does not build is told on the side."""
    found = Found()
    output: dict[tuple[str, str], list[str]] = defaultdict(list)
    states: dict[tuple[str, str], str] = {}
    built: list[str] = []
    for one in json_lines(said.out):
        place = str(one.get("Package") or ""), str(one.get("Test") or "")
        action = one.get("Action")
        if action == "output":
            output[place].append(str(one.get("Output") or ""))
        elif action == "build-output":
            built.append(str(one.get("Output") or ""))
        elif action in _STATES:
            states[place] = _STATES[str(action)]
    packages = [package for package, test in states if not test]
    module = _common(packages)
    text_of_build = "".join(built) + "\n" + said.err
    _go_build(said, text_of_build, found)
    for (package, test), state in states.items():
        name = f"{package}.{test}" if test else package
        if test:
            found.tests[name] = state
        if state == "failed" and not (test and _has_failed_child(states, package, test)):
            _go_failed(said, found, states, (package, test), output, module)
    if said.code and not found.failures:
        lines = [line.strip() for line in said.lines if line.strip() and not line.startswith("{")]
        found.problem = (lines or [f"it ended with exit code {said.code}"])[0][:300]
    return found


def _go_failed(
    said: Said,
    found: Found,
    states: dict[tuple[str, str], str],
    place: tuple[str, str],
    output: dict[tuple[str, str], list[str]],
    module: str,
) -> None:
    package, test = place
    folder = package[len(module) :].lstrip("/")
    text = "".join(output[place])
    if not test:
        told = any(other == package and name and state == "failed" for (other, name), state in states.items())
        if told or "[build failed]" in text or "[setup failed]" in text:
            if not told:
                found.hidden.append(package)
            return
    lines = [line for line in text.split("\n") if not _GO_NOISE.match(line)]
    match = next((match for line in lines if (match := _GO_PLACE.match(line))), None)
    file, line, message = "", 0, next((line.strip() for line in lines if line.strip()), "it fails")
    panic = next((one.strip() for one in lines if one.startswith("panic: ")), "")
    frames = [Frame(said.path(one["file"]), int(one["line"])) for one in _GO_STACK.finditer(text)]
    frames = [frame for frame in reversed(frames) if is_own(frame.file)]
    if panic:
        message = panic.removesuffix(" [recovered]")
        found.hidden.append(package)  # what came after it did not run
    elif match:
        file = said.path(f"{folder}/{match['file']}" if folder and "/" not in match["file"] else match["file"])
        line, message = int(match["line"]), match["message"] or message
        frames = frames or [Frame(file, line)]
    name = f"{package}.{test}" if test else package
    rule = "panic" if panic else ""
    found.failures.append(test_failure(said, name, file, message, "\n".join(lines), rule, frames, line))


def _go_build(said: Said, text: str, found: Found) -> None:
    """Errors of the compiler."""
    broken: list[str] = []
    for one in text.split("\n"):
        if one.startswith("# "):
            broken.append(one[2:].split(" ")[0].removesuffix(".test"))
        elif broken and (match := _GO_PLACE.match(one)):
            file = said.path(match["file"].removeprefix("./"))
            failure = complaint(said, file, int(match["line"]), "build", match["message"])
            if failure.id not in {known.id for known in found.failures}:
                found.failures.append(failure)
    found.hidden += broken


def _has_failed_child(states: dict[tuple[str, str], str], package: str, test: str) -> bool:
    return any(
        other == package and name.startswith(f"{test}/") and state == "failed"
        for (other, name), state in states.items()
    )


def _common(packages: list[str]) -> str:
    """The module that all packages are below."""
    return min(packages, key=len, default="")


def cargo(said: Said) -> Found:
    """The compiler's messages as JSON, then the tests' own text."""
    found = Found()
    success = True
    for one in json_lines(said.out):
        if one.get("reason") == "build-finished":
            success = bool(one.get("success"))
        message = one.get("message")
        if one.get("reason") == "compiler-message" and isinstance(message, dict):
            _rustc(said, message, found)
    if not success:
        found.hidden.append(EVERYTHING)
    found.tests, failed = cargo_text(said)
    found.failures += failed
    if said.code and not found.failures:
        lines = [line.strip() for line in said.err.split("\n") if line.strip().startswith("error")]
        found.problem = (lines or [f"it ended with exit code {said.code}"])[0][:300]
    return found


def _rustc(said: Said, message: dict[str, object], found: Found) -> None:
    spans = message.get("spans")
    if message.get("level") != "error" or not isinstance(spans, list) or not spans:
        return
    span = next((one for one in spans if one.get("is_primary")), spans[0])
    code = message.get("code")
    rule = str(code.get("code")) if isinstance(code, dict) else "error"
    file, line = said.path(str(span.get("file_name") or "")), as_number(span.get("line_start"))
    told = str(message.get("message") or "")
    failure = complaint(said, file, line, rule, told, str(message.get("rendered") or told))
    if all((one.id, one.line) != (failure.id, failure.line) for one in found.failures):  # told for each target
        found.failures.append(failure)


def cargo_text(said: Said) -> tuple[dict[str, str], list[Failure]]:
    """The tests that the harness names, and those that failed with what they said."""
    tests: dict[str, str] = {}
    said_by: dict[str, list[str]] = {}
    current = ""
    for line in said.out.split("\n"):
        if match := _CARGO_TEST.match(line):
            word = match["state"]
            tests[_unmoved(match["name"])] = {"ok": "passed", "FAILED": "failed"}.get(word, "skipped")
        elif match := _CARGO_HEAD.match(line):
            current = _unmoved(match["name"])
            said_by[current] = []
        elif line == "failures:" or line.startswith("test result:"):
            current = ""
        elif current:
            said_by[current].append(line)
    failures = []
    for name, state in tests.items():
        if state == "failed":
            failures.append(_cargo_failed(said, name, said_by.get(name, [])))
    return tests, failures


def _unmoved(name: str) -> str:
    """A test's name without the line that an example in the documentation is at."""
    return _LINE.sub("", name)


def _cargo_failed(said: Said, name: str, lines: list[str]) -> Failure:
    lines = lines[: next((n for n, line in enumerate(lines) if line == "stack backtrace:"), len(lines))]
    for number, line in enumerate(lines):
        if match := _PANICKED.search(line):
            file = said.path(match["file"])
            message = match["old"] or " ".join(one.strip() for one in lines[number + 1 : number + 4] if one.strip())
            frames = [Frame(file, int(match["line"]))] if is_own(file) else []
            return test_failure(said, name, file, message, "\n".join(lines), "panic", frames, int(match["line"]))
    message = next((line for line in lines if line.strip()), "it fails")
    return test_failure(said, name, "", message, "\n".join(lines))
