"""Results read from the recorded output of every test runner and linter: exact, stable names, and missing environments."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import Outcome, common_failures, compare_outcomes
from agent_orchestrator.changes.checks.runners import read_outcome
from tests.unit.changes.checks.linters import LINTERS, RecordedLinter
from tests.unit.changes.checks.record import RECORDED
from tests.unit.changes.checks.runners import RUNNERS, RecordedRunner

TOP = Path("/code/project")
ALL = sorted(path for path in RECORDED.glob("*/*.txt"))
BY_NAME = {runner.name: runner for runner in RUNNERS}
runners = pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: runner.name)


def recording(name: str, case: str) -> tuple[str, int, list[Path]]:
    """Output, exit code and reports of a recorded run."""
    head, _, output = (RECORDED / name / f"{case}.txt").read_text().partition("\n")
    report = RECORDED / name / f"{case}.xml"
    return output, int(head.removeprefix("exit code ")), [report] if report.exists() else []


def outcome(name: str, case: str) -> Outcome:
    output, code, reports = recording(name, case)
    return read_outcome(output, reports, exit_code=code, top=TOP)


def obstacle(name: str, case: str) -> str:
    output, code, _ = recording(name, case)
    return missing_environment(output, outcome(name, case), exit_code=code)


def test_every_case_is_recorded() -> None:
    folders = {path.parent.name for path in ALL}
    assert folders == {*BY_NAME, *(linter.name for linter in LINTERS)}, "python -m tests.unit.changes.checks.record"


# -- names -------------------------------------------------------------------------------------------------------------


@runners
def test_failures_are_named_exactly(runner: RecordedRunner) -> None:
    adds, subtracts, _ = runner.names
    for case, failed in {
        "pass": [],
        "one": [adds],
        "two": [adds, subtracts],
        "skipped": [],
        "removed": [],
        "red_skipped": [adds],
    }.items():
        read = outcome(runner.name, case)
        assert sorted(read.failures) == sorted(failed), case
        assert all("\n" not in message for message in read.failures.values())


@runners
def test_passed_and_skipped_tests_are_named_if_the_runner_names_them(runner: RecordedRunner) -> None:
    adds, subtracts, upper = runner.names
    passed, skipped = outcome(runner.name, "pass"), outcome(runner.name, "skipped")
    assert passed.executed_count, "something is counted"
    if runner.names_passed:
        assert {adds, subtracts, upper} <= set(passed.passed)
        assert {adds, upper} <= set(skipped.passed) and subtracts not in skipped.passed
    if runner.names_skipped:
        assert subtracts in skipped.skipped


@runners
def test_a_change_is_compared_with_a_base_that_passes(runner: RecordedRunner) -> None:
    adds, subtracts, _ = runner.names
    base = outcome(runner.name, "pass")
    for case, new in {"one": {adds}, "two": {adds, subtracts}}.items():
        comparison = compare_outcomes(outcome(runner.name, case), base)
        assert (set(comparison.new), comparison.vanished, comparison.newly_skipped, comparison.fewer) == (
            new,
            (),
            (),
            0,
        ), case
    same = compare_outcomes(base, base)
    assert (dict(same.new), same.vanished, same.newly_skipped, same.fewer) == ({}, (), (), 0)


@runners
def test_a_change_is_compared_with_a_base_that_fails(runner: RecordedRunner) -> None:
    subtracts = runner.names[1]
    base = outcome(runner.name, "one")
    assert set(compare_outcomes(outcome(runner.name, "two"), base).new) == {subtracts}
    assert not compare_outcomes(outcome(runner.name, "one"), base).new
    fixed = compare_outcomes(outcome(runner.name, "pass"), base)
    assert not (fixed.new or fixed.vanished or fixed.newly_skipped or fixed.fewer)
    worse = compare_outcomes(base, outcome(runner.name, "two"))
    assert not worse.new


WITHOUT_TESTS = ("go", "prove", "prove-v")
"""Runners that report neither names nor numbers of tests that pass or are skipped."""


@runners
@pytest.mark.parametrize("base", ["pass", "one"])
def test_a_removed_or_skipped_test_is_noticed_on_any_base(runner: RecordedRunner, base: str) -> None:
    if runner.name in WITHOUT_TESTS:
        pytest.skip(f"{runner.command} does not report single tests that pass")
    subtracts = runner.names[1]
    red = base == "one"
    before = outcome(runner.name, base)
    skipped = compare_outcomes(outcome(runner.name, "red_skipped" if red else "skipped"), before)
    assert not skipped.new
    if runner.names_skipped and runner.names_passed:
        assert (skipped.vanished, skipped.newly_skipped) == ((), (subtracts,))
    else:
        assert skipped.fewer == 1 or skipped.vanished == (subtracts,)
    if not red:
        gone = compare_outcomes(outcome(runner.name, "removed"), before)
        assert not gone.new
        if runner.names_passed:
            assert (gone.vanished, gone.newly_skipped) == ((subtracts,), ())
        else:
            assert gone.fewer == 1


SAME = {
    "pytest": "pytest-junit",
    "pytest-q": "pytest-v",
    "unittest-3.8": "unittest-3.13",
    "node": "node-junit",
    "node-tap": "node",
    "mocha-min": "mocha",
    "ava": "ava-tap",
    "jest": "jest-verbose",
    "vitest": "vitest-junit",
    "go": "go-json",
    "ctest": "ctest-junit",
}


@pytest.mark.parametrize(("runner", "other"), SAME.items())
def test_failures_have_the_same_names_in_each_format_of_a_runner(runner: str, other: str) -> None:
    for case in ("one", "two"):
        assert set(outcome(runner, case).failures) == set(outcome(other, case).failures)


@pytest.mark.parametrize("linter", LINTERS, ids=lambda linter: linter.name)
def test_a_linters_error_has_the_same_name_on_any_line(linter: RecordedLinter) -> None:
    name = linter.name
    assert not outcome(name, "clean").failures
    single = outcome(name, "one")
    assert len(single.failures) == 1 and not next(iter(single.failures)).startswith("the command")
    assert set(outcome(name, "moved").failures) == set(single.failures)
    assert len(compare_outcomes(outcome(name, "two"), single).new) == 1
    assert len(compare_outcomes(outcome(name, "twice"), single).new) == (0 if name == "ruff-format" else 1)


# -- what is missing ---------------------------------------------------------------------------------------------------

MISSING = {
    "missing": r"(?:module|package|crate|header) (?:no_such_thing|no-such-thing|example\.org/no/such)(?:\.h)? not found",
    "missing_all": r"module no.such.thing not found",
    "missing_package": r"package NoSuchThing not found",
    "no_runner": r"(?:command|module) \S+ not found",
}
NONE = r"no tests were found|all 2 test files failed to load"


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_missing_environment_is_distinguished_from_a_failure(path: Path) -> None:
    name, case = path.parent.name, path.stem
    read, missing = outcome(name, case), obstacle(name, case)
    _, code, _ = recording(name, case)
    assert bool(read.failures) == bool(code)
    if case in MISSING:
        assert re.fullmatch(MISSING[case], missing), missing
    elif case == "none" and code:
        assert re.fullmatch(NONE, missing), missing
    elif case == "none":
        base = outcome(name, "pass")
        assert not read.executed_count or compare_outcomes(read, base).vanished, "what no test is left of"
    else:
        assert not missing


@pytest.mark.parametrize(
    ("output", "code", "missing"),
    [
        ("sh: 1: mocha: not found\n", 127, "command mocha not found"),
        ("bash: Zeile 1: mocha: Kommando nicht gefunden.\n", 127, "a command was not found"),
        ("make: mocha: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n", 2, "command mocha not found"),
        ("/usr/bin/env: ‘node’: No such file or directory\n", 127, "command node not found"),
        ("error: Failed to spawn: `pytest`\n  Caused by: No such file or directory (os error 2)\n", 2, "command pytest not found"),
        ("Command not found: pytest\n", 1, "command pytest not found"),
        ("npm error could not determine executable to run\n", 1, "command of npm not found"),
        ('npx canceled due to missing packages and no YES option: ["mocha@10.2.0"]\n', 1, "command mocha@10.2.0 not found"),
        ('npm error Missing script: "test"\n', 1, "script test not found"),
        ("ERROR: usage: pytest [options]\npytest: error: unrecognized arguments: --cov=app\n", 4, "pytest plugin for --cov=app not found"),
        ("error: linker `cc` not found\n", 101, "command cc not found"),
        ("/usr/bin/ld: cannot find -lssl: No such file or directory\n", 1, "library ssl not found"),
        ("\x1b[31mError: Cannot find module 'left-pad'\x1b[39m\n", 1, "module left-pad not found"),
        ("Error: Cannot find module '../dist/index.js'\n", 1, "module ../dist/index.js not found"),
        ("Error: Cannot find module './helper'\n", 1, ""),
        ('a.c:1:10: fatal error: own.h: No such file or directory\n    1 | #include "own.h"\n', 1, ""),
        ("ERROR: file or directory not found: tests\n\nno tests ran in 0.00s\n", 4, "no tests were found"),
        ("go: warning: \"./...\" matched no packages\nno packages to test\n", 1, "no tests were found"),
        ("ImportError while loading conftest 'conftest.py'.\nE   ModuleNotFoundError: No module named 'x'\n", 4, "module x not found"),
        ("it works\n", 1, ""),
        ("ERROR t.py::a - E: Connection refused\n=== 1 error in 1s ===\n", 1, "no test passed: a service does not answer"),
        ("ERROR t.py::a - E: Connection refused\n=== 1 passed, 1 error in 1s ===\n", 1, ""),
    ],
)  # fmt: skip
def test_the_missing_program_or_module_is_named(output: str, code: int, missing: str) -> None:
    assert missing_environment(output, read_outcome(output, [], exit_code=code), exit_code=code) == missing


# -- other differences of runs -----------------------------------------------------------------------------------------


def _other_run(text: str, draw: int) -> str:
    """Return the same run at another place and time."""
    text = text.replace("/code/project", "/home/other/deep/place")
    text = re.sub(r"\b\d+\.\d+(?=s\b|ms\b| s\b| sec\b| seconds\b)", f"{draw % 9}.{draw % 89 + 10}", text)
    text = re.sub(r"\((\d+)(?= ?ms\))", f"({draw % 700}", text)
    text = re.sub(r"(0\.0)\d(?=s\))", rf"\g<1>{draw % 10}", text)
    return re.sub(r"(\.(?:py|js|mjs|go|rs|c):)\d+", rf"\g<1>{draw % 900 + 1}", text)


@given(path=st.sampled_from(ALL), draw=st.integers(0, 10_000), colours=st.booleans(), returns=st.booleans())
def test_names_are_the_same_in_every_run(path: Path, draw: int, colours: bool, returns: bool) -> None:
    name, case = path.parent.name, path.stem
    output, code, reports = recording(name, case)
    expected = outcome(name, case)
    text = _other_run(output, draw)
    if colours:
        text = "\n".join(f"\x1b[3{draw % 8}m{line}\x1b[0m" for line in text.split("\n"))
    if returns:
        text = text.replace("\n", "\r\n")
    top = TOP if reports else Path("/home/other/deep/place")
    read = read_outcome(text, reports, exit_code=code, top=top)
    assert set(read.failures) == set(expected.failures)
    assert (read.passed, read.skipped, read.counts) == (expected.passed, expected.skipped, expected.counts)


@given(
    path=st.sampled_from(ALL),
    cut=st.integers(0, 4000),
    noise=st.lists(st.tuples(st.integers(0, 200), st.text(max_size=60)), max_size=5),
    code=st.sampled_from([0, 1, 2, 5, 126, 127, 139, None]),
)
def test_cut_and_mixed_output_is_read_without_an_error(
    path: Path, cut: int, noise: list[tuple[int, str]], code: int | None
) -> None:
    output, _, reports = recording(path.parent.name, path.stem)
    lines = output[cut:].split("\n")
    for position, text in noise:
        lines.insert(position, text)
    for text in ("\n".join(lines), output[:cut]):
        read = read_outcome(text, reports if cut % 2 else [], exit_code=code)
        assert bool(read.failures) == (code != 0)
        assert all("\n" not in text for pair in read.failures.items() for text in pair)
        missing_environment(text, read, exit_code=code)
        assert common_failures(read, read) == read


@given(output=st.text(max_size=2000) | st.binary(max_size=2000).map(lambda data: data.decode(errors="replace")))
def test_arbitrary_output_is_one_failure_or_more(output: str) -> None:
    assert read_outcome(output, [], exit_code=1).failures
    assert not read_outcome(output, [], exit_code=0).failures


@pytest.mark.parametrize(
    "piece",
    [
        "a" * 4000,
        "FAILED a.py::b[" + "[" * 3000,
        " " * 4000 + "x",
        "ok 1 - " + "# " * 1500,
        "test " * 800 + "... ok",
        "0x" * 2000,
        "1:1:" * 1000,
        "{\"Action\":" * 300,
        "not found: " * 300,
        "error: " * 500,
        "- " * 2000,
        "::" * 2000,
        "a.b:1: " * 500,
        "● › " * 1000,
        "1234567890" * 400,
        "/" * 4000,
        "(" * 4000,
        "FAIL: a (" * 400,
    ],
)  # fmt: skip
def test_reading_takes_time_proportional_to_the_length(piece: str) -> None:
    heads = "TAP version 13\nℹ tests 1\n  1 passing\nTests: 1 total\nRan 1 test in 1s\n1 failed in 0.1s\n"
    began = time.perf_counter()
    read = read_outcome(heads + f"{piece}\n" * 100, [], exit_code=1)
    missing_environment(piece + "\n", read, exit_code=1)
    assert time.perf_counter() - began < 20, "400,000 characters"
