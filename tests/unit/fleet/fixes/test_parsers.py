"""Parsers of tool reports, with recorded reports of small projects with known failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.fleet.fixes.model import EVERYTHING, CheckTool
from agent_orchestrator.fleet.fixes.parsers.common import ParseResult, ToolOutput
from agent_orchestrator.fleet.fixes.tools import PARSERS

REPORTS = Path(__file__).parent / "reports"


def parse(kind: str, code: int, out: str = "", err: str = "", *reports: Path, command: str = "x") -> ParseResult:
    return PARSERS[kind](ToolOutput(CheckTool(kind, command), code, out, err, "/checkout", reports))


def text(name: str) -> str:
    return (REPORTS / name).read_text()


def test_reports_of_eslint_are_parsed() -> None:
    result = parse("eslint", 1, text("eslint.json"))
    assert [(failure.file, failure.line, failure.rule) for failure in result.failures] == [
        ("src/broken.js", 1, "parse-error"),
        ("src/prices.js", 1, "no-unused-vars"),
        ("src/prices.js", 3, "no-unused-vars"),
        ("src/prices.js", 4, "no-unused-vars"),
        ("src/prices.js", 4, "no-undef"),
    ]
    assert result.hidden == ["src/broken.js"], "what else is in there is not known"
    assert "Cannot read config" in parse("eslint", 2, "", "Oops! Cannot read config file").problem


def test_ids_of_failures_do_not_depend_on_the_checkout() -> None:
    places = [
        PARSERS["eslint"](
            ToolOutput(
                CheckTool("eslint", "eslint"),
                1,
                json.dumps([{"filePath": f"{top}/a.js", "messages": [{"severity": 2, "message": f"no {top}/b.js"}]}]),
                top=top,
            )
        ).failures[0]
        for top in ("/one", "/two/three")
    ]
    assert places[0] == places[1] and places[0].message == "no b.js"


def test_output_of_tsc_is_parsed() -> None:
    result = parse("tsc", 1, text("tsc.txt"))
    assert [(failure.file, failure.line, failure.rule) for failure in result.failures] == [
        ("ts/prices.ts", 2, "TS2322"),
        ("ts/prices.ts", 4, "TS2322"),
        ("ts/prices.ts", 5, "TS2322"),
        ("ts/prices.ts", 6, "TS2304"),
    ]
    assert "Types of parameters" in result.failures[2].detail
    assert result.failures[0].id == result.failures[1].id, "the same complaint twice is counted, not told apart by line"


@pytest.mark.parametrize(("kind", "folder"), [("vitest", "vt"), ("jest", "jt")])
def test_reports_of_jest_and_vitest_are_parsed(kind: str, folder: str) -> None:
    result = parse(kind, 1, "", "", REPORTS / f"{kind}.json")
    tests = f"{folder}/prices.test.js"
    assert result.tests == {
        f"{tests} > total > adds": "failed",
        f"{tests} > total > adds nothing": "passed",
        f"{tests} > total > later": "skipped",
        f"{tests} > throws": "failed",
    }
    by_id = {failure.id: failure for failure in result.failures}
    assert set(by_id) == {f"{tests} > total > adds", f"{tests} > throws", f"{folder}/broken.test.js"}
    assert "-1" in by_id[f"{tests} > total > adds"].message and "5" in by_id[f"{tests} > total > adds"].message
    assert by_id[f"{tests} > throws"].rule == "TypeError"
    assert [(frame.file, frame.line) for frame in by_id[f"{tests} > throws"].frames] == [(tests, 8)]
    assert "nowhere.js" in by_id[f"{folder}/broken.test.js"].message
    assert result.hidden == [f"{folder}/broken.test.js"]
    assert parse(kind, 1, "", "Error: no config").problem == "Error: no config"


def test_reports_of_go_are_parsed() -> None:
    result = parse("go", 1, text("go.jsonl"), text("go.err"))
    package = "example.invalid/shop"
    assert result.tests[f"{package}.TestFine"] == "passed" and result.tests[f"{package}.TestSkipped"] == "skipped"
    by_id = {failure.id: failure for failure in result.failures}
    assert set(by_id) == {
        f"{package}.TestTotal",
        f"{package}.TestTable/two",
        f"{package}/crashing.TestFirst",
        "broken/broken.go:build:cannot use 1 (untyped int constant) as string value in return statement",
    }, "a test with a failed part is represented by its part"
    total = by_id[f"{package}.TestTotal"]
    assert (total.file, total.line, total.message) == ("prices_test.go", 7, "Total(2, 3) = -1, want 5")
    crash = by_id[f"{package}/crashing.TestFirst"]
    assert "index out of range" in crash.message and crash.frames[-1].file == "crashing/c.go"
    assert set(result.hidden) == {f"{package}/broken", f"{package}/crashing"}


def test_output_of_cargo_is_parsed() -> None:
    result = parse("cargo", 101, text("cargo.txt"), text("cargo.err"))
    assert result.tests == {
        "tests::adds_nothing": "passed",
        "tests::later": "skipped",
        "tests::adds": "failed",
        "tests::parses": "failed",
    }
    assert [(failure.id, failure.file, failure.line) for failure in result.failures] == [
        ("tests::adds", "src/lib.rs", 11),
        ("tests::parses", "src/lib.rs", 25),
    ]
    assert "left: -1" in result.failures[0].message and "InvalidDigit" in result.failures[1].message
    examples = [f"test src/lib.rs - total (line {number}) ... ok" for number in (3, 8)]
    assert [list(parse("cargo", 0, line).tests) for line in examples] == [["src/lib.rs - total"]] * 2
    broken = parse("cargo", 101, text("cargo-build.txt"), text("cargo-build.err"))
    assert sorted((failure.rule, failure.file) for failure in broken.failures) == [
        ("E0308", "src/lib.rs"),
        ("E0425", "src/lib.rs"),
    ]
    assert broken.hidden == [EVERYTHING], "no test was run"


def test_both_formats_of_mypy_are_parsed() -> None:
    finding = {"file": "a.py", "line": 3, "column": 4, "message": 'Name "x" is not defined', "code": "name-defined"}
    line = json.dumps({**finding, "hint": None, "severity": "error"})
    note = '{"file": "a.py", "line": 3, "column": 4, "message": "See", "hint": null, "code": null, "severity": "note"}'
    [failure] = parse("mypy", 1, f"{line}\n{note}\n").failures
    assert (failure.file, failure.line, failure.rule, failure.message) == (
        "a.py",
        3,
        "name-defined",
        'Name "x" is not defined',
    )
    [other] = parse("mypy", 1, 'a.py:9: error: Name "x" is not defined  [name-defined]\nFound 1 error').failures
    assert other.id == failure.id, "the same whatever line it is at"
    again = [f'a.py:9: error: Name "f" already defined on line {number}  [no-redef]' for number in (3, 7)]
    assert len({parse("mypy", 1, line).failures[0].id for line in again}) == 1, "whatever line its words name"
    blocked = parse(
        "mypy", 2, "a.py:1: error: Invalid syntax  [syntax]\nFound 1 error (errors prevented further checking)"
    )
    assert len(blocked.failures) == 1 and blocked.hidden == [EVERYTHING]
    assert "not found" in parse("mypy", 2, "", "mypy: error: Cannot find config file: not found").problem


def test_failures_are_found_in_the_output_of_any_command() -> None:
    output = "FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2\nERROR tests/test_b.py - ImportError: no\n1 failed"
    assert [failure.id for failure in parse("command", 1, output).failures] == [
        "tests/test_a.py::test_one",
        "tests/test_b.py",
    ]
    output = "src/a.c:12:5: error: expected ';'\nsrc/a.c:14:1: warning: unused\nlib/b.py:3:1: F401 `os` imported but unused\n"
    assert [(failure.file, failure.line, failure.rule) for failure in parse("command", 2, output).failures] == [
        ("src/a.c", 12, "error"),
        ("lib/b.py", 3, "F401"),
    ]
    [whole] = parse("command", 3, "something broke\n", command="make check").failures
    assert whole.message == "make check ends with exit code 3" and "something broke" in whole.detail
    assert parse("command", 0, "error: but fine").failures == []
    assert "not found" in parse("command", 127, "", "sh: 1: makee: not found").problem


def test_a_junit_report_of_any_command_is_parsed(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a.B" name="one"/><testcase classname="a.B" name="two">'
        '<failure message="wrong">at b.py</failure></testcase><testcase classname="a.B" name="three"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    result = parse("command", 1, "", "", report)
    assert result.tests == {"a.B::one": "passed", "a.B::two": "failed", "a.B::three": "skipped"}
    assert [(failure.id, failure.message) for failure in result.failures] == [("a.B::two", "wrong")]
    report.write_text('<!DOCTYPE x [<!ENTITY a "b">]><testsuites/>')
    assert len(parse("command", 1, "", "", report).failures) == 1, "what is no report says nothing"
