"""Reports of real tools, recorded from small projects with known failures, are read as what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.fleet.fixes.model import EVERYTHING, Tool
from agent_orchestrator.fleet.fixes.parsers.common import ParseResult, ToolOutput
from agent_orchestrator.fleet.fixes.tools import PARSERS

REPORTS = Path(__file__).parent / "reports"


def found(kind: str, code: int, out: str = "", err: str = "", *reports: Path, command: str = "x") -> ParseResult:
    return PARSERS[kind](ToolOutput(Tool(kind, command), code, out, err, "/checkout", reports))


def text(name: str) -> str:
    return (REPORTS / name).read_text()


def test_eslint() -> None:
    told = found("eslint", 1, text("eslint.json"))
    assert [(one.file, one.line, one.rule) for one in told.failures] == [
        ("src/broken.js", 1, "parse-error"),
        ("src/prices.js", 1, "no-unused-vars"),
        ("src/prices.js", 3, "no-unused-vars"),
        ("src/prices.js", 4, "no-unused-vars"),
        ("src/prices.js", 4, "no-undef"),
    ]
    assert told.hidden == ["src/broken.js"], "what else is in there is not known"
    assert "Cannot read config" in found("eslint", 2, "", "Oops! Cannot read config file").problem


def test_no_failure_is_known_by_where_it_was_measured() -> None:
    places = [
        PARSERS["eslint"](
            ToolOutput(
                Tool("eslint", "eslint"),
                1,
                json.dumps([{"filePath": f"{top}/a.js", "messages": [{"severity": 2, "message": f"no {top}/b.js"}]}]),
                top=top,
            )
        ).failures[0]
        for top in ("/one", "/two/three")
    ]
    assert places[0] == places[1] and places[0].message == "no b.js"


def test_tsc() -> None:
    told = found("tsc", 1, text("tsc.txt"))
    assert [(one.file, one.line, one.rule) for one in told.failures] == [
        ("ts/prices.ts", 2, "TS2322"),
        ("ts/prices.ts", 4, "TS2322"),
        ("ts/prices.ts", 5, "TS2322"),
        ("ts/prices.ts", 6, "TS2304"),
    ]
    assert "Types of parameters" in told.failures[2].detail
    assert told.failures[0].id == told.failures[1].id, "the same complaint twice is counted, not told apart by line"


@pytest.mark.parametrize(("kind", "folder"), [("vitest", "vt"), ("jest", "jt")])
def test_jest_and_vitest(kind: str, folder: str) -> None:
    told = found(kind, 1, "", "", REPORTS / f"{kind}.json")
    tests = f"{folder}/prices.test.js"
    assert told.tests == {
        f"{tests} > total > adds": "failed",
        f"{tests} > total > adds nothing": "passed",
        f"{tests} > total > later": "skipped",
        f"{tests} > throws": "failed",
    }
    by_id = {one.id: one for one in told.failures}
    assert set(by_id) == {f"{tests} > total > adds", f"{tests} > throws", f"{folder}/broken.test.js"}
    assert "-1" in by_id[f"{tests} > total > adds"].message and "5" in by_id[f"{tests} > total > adds"].message
    assert by_id[f"{tests} > throws"].rule == "TypeError"
    assert [(frame.file, frame.line) for frame in by_id[f"{tests} > throws"].frames] == [(tests, 8)]
    assert "nowhere.js" in by_id[f"{folder}/broken.test.js"].message
    assert told.hidden == [f"{folder}/broken.test.js"]
    assert found(kind, 1, "", "Error: no config").problem == "Error: no config"


def test_go() -> None:
    told = found("go", 1, text("go.jsonl"), text("go.err"))
    package = "example.invalid/shop"
    assert told.tests[f"{package}.TestFine"] == "passed" and told.tests[f"{package}.TestSkipped"] == "skipped"
    by_id = {one.id: one for one in told.failures}
    assert set(by_id) == {
        f"{package}.TestTotal",
        f"{package}.TestTable/two",
        f"{package}/crashing.TestFirst",
        "broken/broken.go:build:cannot use 1 (untyped int constant) as string value in return statement",
    }, "a test with a failed part is told by its part"
    total = by_id[f"{package}.TestTotal"]
    assert (total.file, total.line, total.message) == ("prices_test.go", 7, "Total(2, 3) = -1, want 5")
    crash = by_id[f"{package}/crashing.TestFirst"]
    assert "index out of range" in crash.message and crash.frames[-1].file == "crashing/c.go"
    assert set(told.hidden) == {f"{package}/broken", f"{package}/crashing"}


def test_cargo() -> None:
    told = found("cargo", 101, text("cargo.txt"), text("cargo.err"))
    assert told.tests == {
        "tests::adds_nothing": "passed",
        "tests::later": "skipped",
        "tests::adds": "failed",
        "tests::parses": "failed",
    }
    assert [(one.id, one.file, one.line) for one in told.failures] == [
        ("tests::adds", "src/lib.rs", 11),
        ("tests::parses", "src/lib.rs", 25),
    ]
    assert "left: -1" in told.failures[0].message and "InvalidDigit" in told.failures[1].message
    examples = [f"test src/lib.rs - total (line {number}) ... ok" for number in (3, 8)]
    assert [list(found("cargo", 0, line).tests) for line in examples] == [["src/lib.rs - total"]] * 2
    broken = found("cargo", 101, text("cargo-build.txt"), text("cargo-build.err"))
    assert sorted((one.rule, one.file) for one in broken.failures) == [("E0308", "src/lib.rs"), ("E0425", "src/lib.rs")]
    assert broken.hidden == [EVERYTHING], "no test was run"


def test_mypy_in_both_of_its_ways() -> None:
    told = {"file": "a.py", "line": 3, "column": 4, "message": 'Name "x" is not defined', "code": "name-defined"}
    line = json.dumps({**told, "hint": None, "severity": "error"})
    note = '{"file": "a.py", "line": 3, "column": 4, "message": "See", "hint": null, "code": null, "severity": "note"}'
    [one] = found("mypy", 1, f"{line}\n{note}\n").failures
    assert (one.file, one.line, one.rule, one.message) == ("a.py", 3, "name-defined", 'Name "x" is not defined')
    [other] = found("mypy", 1, 'a.py:9: error: Name "x" is not defined  [name-defined]\nFound 1 error').failures
    assert other.id == one.id, "the same whatever line it is at"
    again = [f'a.py:9: error: Name "f" already defined on line {number}  [no-redef]' for number in (3, 7)]
    assert len({found("mypy", 1, line).failures[0].id for line in again}) == 1, "whatever line its words name"
    blocked = found(
        "mypy", 2, "a.py:1: error: Invalid syntax  [syntax]\nFound 1 error (errors prevented further checking)"
    )
    assert len(blocked.failures) == 1 and blocked.hidden == [EVERYTHING]
    assert "not found" in found("mypy", 2, "", "mypy: error: Cannot find config file: not found").problem


def test_a_command_of_any_kind() -> None:
    said = "FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2\nERROR tests/test_b.py - ImportError: no\n1 failed"
    assert [one.id for one in found("command", 1, said).failures] == ["tests/test_a.py::test_one", "tests/test_b.py"]
    said = "src/a.c:12:5: error: expected ';'\nsrc/a.c:14:1: warning: unused\nlib/b.py:3:1: F401 `os` imported but unused\n"
    assert [(one.file, one.line, one.rule) for one in found("command", 2, said).failures] == [
        ("src/a.c", 12, "error"),
        ("lib/b.py", 3, "F401"),
    ]
    [whole] = found("command", 3, "something broke\n", command="make check").failures
    assert whole.message == "make check ends with exit code 3" and "something broke" in whole.detail
    assert found("command", 0, "error: but fine").failures == []
    assert "not found" in found("command", 127, "", "sh: 1: makee: not found").problem


def test_a_command_that_writes_a_junit_report(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a.B" name="one"/><testcase classname="a.B" name="two">'
        '<failure message="wrong">at b.py</failure></testcase><testcase classname="a.B" name="three"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    told = found("command", 1, "", "", report)
    assert told.tests == {"a.B::one": "passed", "a.B::two": "failed", "a.B::three": "skipped"}
    assert [(one.id, one.message) for one in told.failures] == [("a.B::two", "wrong")]
    report.write_text('<!DOCTYPE x [<!ENTITY a "b">]><testsuites/>')
    assert len(found("command", 1, "", "", report).failures) == 1, "what is no report says nothing"
