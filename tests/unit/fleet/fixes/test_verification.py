"""Verification of fixes: which results count as fixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.fleet.fixes import suppressions
from agent_orchestrator.fleet.fixes.comparison import TargetFailure, failures_in_both, reasons_not_fixed, tools_to_retry
from agent_orchestrator.fleet.fixes.model import (
    EVERYTHING,
    CheckTool,
    Report,
    ToolFailure,
    ToolResult,
    report_from_json,
    report_to_json,
)

UNITTEST = CheckTool("command", "python -m unittest")
PYTEST, RUFF = CheckTool("pytest", "pytest"), CheckTool("ruff", "ruff check")


def failed(name: str, file: str = "tests/test_a.py") -> ToolFailure:
    return ToolFailure("pytest", f"{file}::{name}" if name else file, "wrong", file, 3, test=True)


def lint(rule: str, file: str = "a.py", line: int = 1) -> ToolFailure:
    return ToolFailure("ruff", f"{file}:{rule}:message", "message", file, line, rule=rule)


def of_tests(**states: str) -> dict[str, str]:
    return {f"tests/test_a.py::{name}": state for name, state in states.items()}


BEFORE = Report(
    (
        ToolResult(
            PYTEST, failures=(failed("one"), failed("two")), tests=of_tests(one="failed", two="failed", fine="passed")
        ),
        ToolResult(RUFF, failures=(lint("F401", line=1), lint("F401", line=9))),
    ),
    {"# noqa": 1},
    {"pyproject.toml": "x"},
)
TARGETS = [TargetFailure("pytest", failed("one").id)]


def report_after(*failures: ToolFailure, states: dict[str, str] | None = None, ruff: int = 2) -> Report:
    test_states = of_tests(one="passed", two="failed", fine="passed") if states is None else states
    lints = tuple(lint("F401", line=20 + number) for number in range(ruff))
    return replace(
        BEFORE, tools=(ToolResult(PYTEST, failures=failures, tests=test_states), ToolResult(RUFF, failures=lints))
    )


def reasons_text(report: Report, targets: list[TargetFailure] = TARGETS, before: Report = BEFORE) -> str:
    return "\n".join(reason.text for reason in reasons_not_fixed(before, report, targets))


def test_a_fix_removes_its_failures_and_adds_none() -> None:
    assert reasons_text(report_after(failed("two"))) == ""
    assert reasons_text(report_after()) == "", "more than the targets may be fixed"


def test_a_target_that_still_fails_is_not_fixed() -> None:
    assert "1 of 1 failures to be fixed still fail" in reasons_text(report_after(failed("one"), failed("two")))
    one_of_two = reasons_text(report_after(failed("two"), ruff=1), [TargetFailure("ruff", lint("F401").id)])
    assert "still fail" in one_of_two, "the same complaint twice: both must go"
    assert reasons_text(report_after(failed("two"), ruff=0), [TargetFailure("ruff", lint("F401").id)]) == ""


@pytest.mark.parametrize(("state", "word"), [(None, "is not there any more"), ("skipped", "is skipped")])
def test_a_target_that_is_no_longer_run_is_not_fixed(state: str | None, word: str) -> None:
    states = of_tests(two="failed", fine="passed") | (of_tests(one=state) if state else {})
    text = reasons_text(report_after(failed("two"), states=states))
    assert "these tests must pass, and were not run" in text and word in text


def test_a_test_that_passed_must_still_be_run() -> None:
    text = reasons_text(report_after(failed("two"), states=of_tests(one="passed", two="failed")))
    assert "these tests passed before, and are not run now" in text and "fine" in text


def test_new_failures_are_recognized_by_their_count_and_not_by_line() -> None:
    assert "fail now, and did not before" in reasons_text(report_after(failed("two"), failed("fine")))
    assert "F401" in reasons_text(report_after(failed("two"), ruff=3)), "once more of the same is new"
    assert reasons_text(report_after(failed("two"), ruff=2)) == "", "at other lines they are the same"


def test_a_tool_that_can_no_longer_run_is_no_fix() -> None:
    broken = replace(BEFORE, tools=(ToolResult(PYTEST, problem="no module named pytest"), BEFORE.tools[1]))
    assert "cannot be run any more" in reasons_text(broken)


def test_failures_hidden_before_are_not_new() -> None:
    broken = ToolFailure("pytest", "tests/test_b.py", "no module x", "tests/test_b.py", test=True)
    before = Report(
        (ToolResult(PYTEST, failures=(broken,), tests=of_tests(fine="passed"), hidden=("tests/test_b.py",)),)
    )
    inside = failed("three", "tests/test_b.py")
    now = Report((ToolResult(PYTEST, failures=(inside,), tests=of_tests(fine="passed") | {inside.id: "failed"}),))
    targets = [TargetFailure("pytest", "tests/test_b.py")]
    assert reasons_text(now, targets, before) == "", "the next round takes it"
    empty = Report((ToolResult(PYTEST, tests=of_tests(fine="passed")),))
    assert "none of its tests is run" in reasons_text(empty, targets, before)
    blocked = replace(before, tools=(replace(before.tools[0], hidden=(EVERYTHING,)),))
    assert "did not before" not in reasons_text(
        replace(now, tools=(replace(now.tools[0], failures=(failed("x"),)),)), targets, blocked
    )


def test_suppressed_failures_are_not_fixed() -> None:
    assert "# noqa: 2 now, 1 before" in reasons_text(replace(report_after(failed("two")), silenced={"# noqa": 2}))
    assert reasons_text(replace(report_after(failed("two")), silenced={})) == ""
    assert "pyproject.toml" in reasons_text(replace(report_after(failed("two")), settings={"pyproject.toml": "y"}))
    assert "ruff.toml" in reasons_text(
        replace(report_after(failed("two")), settings={**BEFORE.settings, "ruff.toml": "z"})
    )


def test_flaky_failures_are_run_a_second_time() -> None:
    flaky = report_after(failed("two"), failed("fine"), states=of_tests(one="passed", two="failed", fine="failed"))
    assert tools_to_retry(BEFORE, flaky, TARGETS) == {"pytest"}
    assert tools_to_retry(BEFORE, report_after(failed("two")), TARGETS) == set()
    calm = ToolResult(PYTEST, failures=(failed("two"),), tests=of_tests(one="passed", two="failed", fine="passed"))
    assert reasons_text(replace(flaky, tools=(failures_in_both(flaky.tools[0], calm), flaky.tools[1]))) == ""


def test_a_report_can_be_written_and_read_back() -> None:
    assert report_from_json(report_to_json(BEFORE)) == BEFORE


def test_suppression_marks_and_tool_settings_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os  # noqa: F401\nx = 1  # type: ignore[x]\n@pytest.mark.skip\ndef f(): ...\n"
    )
    (tmp_path / "b.ts").write_text("// @ts-ignore\n/* eslint-disable */\nit.skip('x')\n")
    (tmp_path / "notes.md").write_text("# noqa\n")
    assert suppressions.count_marks(tmp_path, ["a.py", "b.ts", "notes.md", "gone.py"]) == {
        "# noqa": 1,
        "# type: ignore": 1,
        "pytest skip or xfail": 1,
        "@ts-ignore": 1,
        "eslint-disable": 1,
        "skipped or exclusive test": 1,
    }
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nversion = "1"\n[tool.ruff]\nline-length = 100\n')
    first = suppressions.settings_digests(tmp_path, ["pyproject.toml"])
    file.write_text('[project]\nversion = "2"\n[tool.ruff]\nline-length = 100\n')
    assert suppressions.settings_digests(tmp_path, ["pyproject.toml"]) == first, (
        "the rest of the file is not the tools'"
    )
    file.write_text('[project]\nversion = "2"\n[tool.ruff]\nline-length = 200\n')
    assert suppressions.settings_digests(tmp_path, ["pyproject.toml"]) != first


def test_unnamed_tests_are_compared_by_number() -> None:
    """With a runner that names only failures, fewer tests than before are no fix."""
    wrong = ToolFailure(UNITTEST.name, "test_a.A.test_one", "wrong", test=True)
    before = Report((ToolResult(UNITTEST, failures=(wrong,), executed=5),))
    targets = [TargetFailure(wrong.tool, wrong.id)]
    assert reasons_not_fixed(before, Report((ToolResult(UNITTEST, executed=5),)), targets) == []
    assert (
        reasons_not_fixed(
            before, Report((ToolResult(UNITTEST, tests=dict.fromkeys([wrong.id, *"abcd"], "passed")),)), targets
        )
        == []
    )
    [reason] = reasons_not_fixed(before, Report((ToolResult(UNITTEST, executed=4),)), targets)
    assert "4 tests are run, 5 before" in reason.text
