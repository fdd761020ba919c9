"""Readers for go test (text and JSON) and cargo test."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners.common import (
    FAILED,
    PASSED,
    SKIPPED,
    UNLOADED,
    RunnerReading,
    Test,
    one_line,
    stable_name,
    stable_text,
)

# -- go ----------------------------------------------------------------------------------------------------------------

_GO_TEST = re.compile(r"^(?P<indent> *)--- (?P<state>PASS|FAIL|SKIP|BENCH): (?P<name>\S+) \([\d.]+m?s\)$")
_GO_PACKAGE = re.compile(r"^(?P<state>ok  |FAIL|\?   )\t(?P<package>\S+)(?:\t| )(?P<rest>.*)$")
_GO_BROKEN = re.compile(r"^FAIL\t(?P<package>\S+) \[(?P<what>build failed|setup failed)\]$")
_GO_PLACE = re.compile(r"^(?:vet: )?(?:\./)?(?P<file>[\w./-]+\.go):\d+(?::\d+)?: (?P<message>.*)$")
_GO_STATES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED, "pass": PASSED, "fail": FAILED, "skip": SKIPPED}


@dataclass(slots=True)
class _Go:
    """What has been read so far from `go test`."""

    tests: list[tuple[str, Test]] = field(default_factory=list)
    """Tests with their package; entries that are not tests have the package ""."""
    pending: list[Test] = field(default_factory=list)
    """Tests of the package whose name is printed below them."""
    compiled: list[Test] = field(default_factory=list)
    """Compiler errors in the package whose name is printed below them."""
    states: dict[tuple[str, str], str] = field(default_factory=dict)
    messages: dict[tuple[str, str], str] = field(default_factory=dict)
    last_message: str = ""
    first: int = -1
    last: int = -1
    stopped: bool = False


def read_go(lines: Sequence[str]) -> RunnerReading | None:
    """Read `go test`; without `-v` it names packages instead of passing tests."""
    go = _Go()
    in_build = False
    for number, line in enumerate(lines):
        start = line[:2]
        if start == '{"' and '"Action"' in line:
            _add_json_event(go, line, number)
        elif start == "# ":
            in_build = True
        elif start in ("FA", "ok", "? ") and (match := _GO_BROKEN.match(line) or _GO_PACKAGE.match(line)):
            _add_package(go, match, number)
            in_build = False
        elif "--- " in line and (match := _GO_TEST.match(line)):
            go.pending.append(Test(match["name"], _GO_STATES.get(match["state"], PASSED), _logged_line(lines, number)))
            go.first = number if go.first < 0 else go.first
        elif in_build and (match := _GO_PLACE.match(line)):
            go.compiled.append(
                Test(stable_name(f"{match['file']}: {stable_text(match['message'])}"), UNLOADED, one_line(line))
            )
        elif line.startswith("panic: "):
            go.stopped = True
    if go.last < 0:
        return None
    _add_json_tests(go)
    return RunnerReading("go", _leaf_tests(go.tests), stopped=go.stopped, begin=max(0, go.first), end=go.last + 1)


def _add_package(go: _Go, match: re.Match[str], number: int) -> None:
    """Add a package's result line and the tests and errors printed above it."""
    package = match["package"]
    groups = match.groupdict()
    go.first = number if go.first < 0 else go.first
    go.last = number
    if groups.get("what"):
        broken = go.compiled or [Test(f"{package} [{groups['what']}]", UNLOADED)]
        go.tests += [("", test) for test in broken]
        go.compiled = []
        return
    go.tests += [(package, test) for test in go.pending]
    if match["state"] == "FAIL" and not any(test.state == FAILED for test in go.pending):
        go.tests.append(("", Test(package, FAILED, "the tests ended without a result")))
    elif not go.pending and match["state"] == "ok  " and "[no tests to run]" not in match["rest"]:
        go.tests.append(("", Test(package, PASSED)))
    go.pending = []


def _add_json_event(go: _Go, line: str, number: int) -> None:
    """Add one event of `go test -json`."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return
    if not isinstance(event, dict):
        return
    go.first = number if go.first < 0 else go.first
    go.last = number
    test_key = str(event.get("Package") or event.get("ImportPath") or ""), str(event.get("Test") or "")
    action, output = event.get("Action"), str(event.get("Output") or "")
    if action in ("output", "build-output"):
        text = output.strip()
        if text.startswith("panic: "):
            go.stopped = True
        if action == "build-output" and (match := _GO_PLACE.match(text)):
            go.compiled.append(
                Test(stable_name(f"{match['file']}: {stable_text(match['message'])}"), UNLOADED, one_line(text))
            )
        elif text and not text.startswith(("=== ", "--- ", "FAIL", "ok ", "PASS", "exit status")):
            go.messages.setdefault(test_key, one_line(text))
    elif action in ("pass", "fail", "skip"):
        go.states[test_key] = _GO_STATES[str(action)]


def _add_json_tests(go: _Go) -> None:
    """Add the tests and packages collected from JSON events."""
    named = {package for package, test in go.states if test}
    failed = {package for (package, test), state in go.states.items() if test and state == FAILED}
    for (package, test), state in go.states.items():
        if test:
            go.tests.append((package, Test(test, state, go.messages.get((package, test), ""))))
        elif state == FAILED and package not in failed and not go.compiled:
            message = go.messages.get((package, ""), "the tests ended without a result")
            go.tests.append(("", Test(package, FAILED, message)))
        elif state == PASSED and package not in named:
            go.tests.append(("", Test(package, PASSED)))
    go.tests += [("", test) for test in go.compiled]


def _logged_line(lines: Sequence[str], number: int) -> str:
    """Return the first line that a test logged: below its result, or above it with `-v`."""
    for near in (number + 1, number - 1):
        if 0 <= near < len(lines) and lines[near][:4] == "    " and "--- " not in lines[near][:16]:
            return one_line(lines[near])
    return ""


def _leaf_tests(tests: Sequence[tuple[str, Test]]) -> list[Test]:
    """Return the tests by package and name, without parents that only repeat the result of their subtests."""
    parents = {(package, test.name.rpartition("/")[0]) for package, test in tests if package and "/" in test.name}
    failed = {(package, test.name) for package, test in tests if package and test.state == FAILED and "/" in test.name}
    causes = {
        (package, name[:cut]) for package, name in failed for cut, character in enumerate(name) if character == "/"
    }
    leaves = []
    for package, test in tests:
        test_key = package, test.name
        if test_key not in parents or (test.state == FAILED and test_key not in causes):
            name = stable_name(f"{package}.{test.name}" if package else test.name)
            leaves.append(Test(name, test.state, test.message))
    return leaves


# -- cargo -------------------------------------------------------------------------------------------------------------

_CARGO_RUNNING = re.compile(
    r"^\s+Running (?:unittests )?\S+ \((?:\S*[/\\])?(?P<stem>[^/\\\s]+?)-[0-9a-f]{8,}(?:\.\w+)?\)$"
)
_CARGO_DOC = re.compile(r"^\s+Doc-tests (?P<crate>\S+)$")
_CARGO_TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<state>ok|FAILED|ignored.*)$")
_CARGO_QUIET = re.compile(r"^(?P<name>\S.*) --- FAILED$")
_CARGO_SAID = re.compile(r"^---- (?P<name>.+?)(?: - should panic)? stdout ----$")
_CARGO_RESULT = re.compile(
    r"^test result: \w+\. (?P<passed>\d{1,9}) passed; (?P<failed>\d{1,9}) failed; (?P<ignored>\d{1,9}) ignored;"
)
_CARGO_ENDED = re.compile(r"^error: (?:doc)?test failed, to rerun pass `(?P<what>[^`]*)`$")
_CARGO_LINE = re.compile(r" \(line \d+\)")
_PANICKED = re.compile(r"^thread '.*' (?:\(\d+\) )?panicked at (?:'(?P<old>.*)', )?\S+:\d+:\d+:?$")


def read_cargo(lines: Sequence[str]) -> RunnerReading | None:
    """Read `cargo test`: a test's name has its binary and path, an example in documentation its file and item."""
    counts = [0, 0, 0]
    reading = RunnerReading("cargo", begin=len(lines))
    binary, failed_since, ended = "", 0, -1
    messages: dict[str, str] = {}
    for number, line in enumerate(lines):
        if match := _CARGO_RUNNING.match(line) or _CARGO_DOC.match(line):
            binary = match.groupdict().get("stem") or ""
            reading.begin = min(reading.begin, number)
        elif line[:5] == "test " and (match := _CARGO_TEST.match(line)):
            state = {"ok": PASSED, "FAILED": FAILED}.get(match["state"], SKIPPED)
            failed_since += state == FAILED
            reading.tests.append(Test(_cargo_name(binary, match["name"]), state))
        elif line.endswith(" --- FAILED") and (match := _CARGO_QUIET.match(line)):
            failed_since += 1
            reading.tests.append(Test(_cargo_name(binary, match["name"]), FAILED))
        elif line[:5] == "---- " and (match := _CARGO_SAID.match(line)):
            messages.setdefault(_cargo_name(binary, match["name"]), _panic_message(lines, number))
        elif line[:5] == "test " and (match := _CARGO_RESULT.match(line)):
            for index, word in enumerate(("passed", "failed", "ignored")):
                counts[index] += int(match[word])
            ended = number
        elif line[:6] == "error:" and (match := _CARGO_ENDED.match(line)):
            if not failed_since:
                reading.tests.append(Test(f"cargo test {match['what']}", FAILED, "the tests ended without a result"))
                counts[1] += 1
            failed_since, ended, reading.stopped = 0, number, True
        elif line.startswith("running ") and line.endswith((" test", " tests")):
            reading.begin = min(reading.begin, number)
    if ended < 0:
        return None
    reading.tests = [Test(test.name, test.state, messages.get(test.name, test.message)) for test in reading.tests]
    reading.counts, reading.end = TestCounts(counts[0], counts[1], counts[2], sum(counts)), ended + 1
    return reading


def _cargo_name(binary: str, name: str) -> str:
    """Return a test's name with its binary; documentation examples lose their line number."""
    name = _CARGO_LINE.sub("", name)
    return stable_name(f"{binary}::{name}" if binary and " - " not in name else name)


def _panic_message(lines: Sequence[str], number: int) -> str:
    """Return the panic message below a test's heading, or ""."""
    for after in range(number + 1, min(len(lines), number + 200)):
        if lines[after].startswith(("---- ", "failures:", "test result:")):
            break
        if match := _PANICKED.match(lines[after]):
            if match["old"]:
                return one_line(match["old"])
            message_lines = [
                line.strip() for line in lines[after + 1 : after + 4] if line.strip() and not line.startswith("note: ")
            ]
            return one_line(message_lines)
    return ""
