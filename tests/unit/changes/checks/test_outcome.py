"""Comparing runs of tests, and the common result of two runs of the same content."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import (
    UNNAMED_FAILURES,
    Outcome,
    TestCounts,
    common_failures,
    compare_outcomes,
)
from agent_orchestrator.changes.checks.runners import read_outcome


def outcome_of(
    passed: str = "", failed: str = "", skipped: str = "", *, unloaded: str = "", stopped: bool = False
) -> Outcome:
    names = [tuple(text.split()) for text in (passed, failed, skipped, unloaded)]
    counts = TestCounts(len(names[0]), len(names[1]) + len(names[3]), len(names[2]), sum(map(len, names)))
    failures = dict.fromkeys((*names[1], *names[3]), "it fails")
    return Outcome(counts, failures, names[0], names[2], names[3], stopped)


@pytest.mark.parametrize(
    ("here", "base", "new", "vanished", "skipped"),
    [
        (outcome_of("a b", "c"), outcome_of("a b", "c"), "", "", ""),
        (outcome_of("a", "b c"), outcome_of("a b", "c"), "b", "", ""),
        (outcome_of("a", "c"), outcome_of("a b", "c"), "", "b", ""),
        (outcome_of("a", "c", "b"), outcome_of("a b", "c"), "", "", "b"),
        (outcome_of("a d"), outcome_of("a", "b"), "", "", ""),  # a failing test may go
        (outcome_of("a"), outcome_of("a", "", "b"), "", "", ""),  # and one that was skipped
        (outcome_of("x[1] x[3]"), outcome_of("x[1] x[2]"), "", "", ""),  # other parameters
        (outcome_of("x[1]"), outcome_of("x[1] x[2]"), "", "x[2]", ""),  # fewer parameters
        (
            outcome_of("", unloaded="t.py", stopped=True),
            outcome_of("t.py::a u.py::b"),
            "t.py",
            "",
            "",
        ),  # nothing was run
        (outcome_of("u.py::b", unloaded="t.py"), outcome_of("t.py::a u.py::b"), "t.py", "", ""),
        (outcome_of("u.py::b", unloaded="t.py"), outcome_of("t.py::a u.py::b v.py::c"), "t.py", "v.py::c", ""),
        (outcome_of("a", "b", stopped=True), outcome_of("a b c"), "b", "", ""),  # -x: c comes after b
        (outcome_of("a", "b", stopped=True), outcome_of("a c", "b", stopped=True), "", "c", ""),
        (
            outcome_of("p.TestB", "p.TestA/x"),
            outcome_of("p.TestA p.TestB"),
            "p.TestA/x",
            "",
            "",
        ),  # the test that a subtest is of
        (
            outcome_of("", "pkg.TestA"),
            outcome_of("pkg other"),
            "pkg.TestA",
            "other",
            "",
        ),  # a package that passed, a test of it fails
    ],
)
def test_new_failures_and_missing_tests_are_listed(
    here: Outcome, base: Outcome, new: str, vanished: str, skipped: str
) -> None:
    comparison = compare_outcomes(here, base)
    assert (" ".join(comparison.new), " ".join(comparison.vanished), " ".join(comparison.newly_skipped)) == (
        new,
        vanished,
        skipped,
    )
    assert comparison.fewer == 0


def test_passing_tests_without_names_are_counted() -> None:
    base = Outcome(TestCounts(9, 1, 0, 10), {"a": ""})
    assert compare_outcomes(Outcome(TestCounts(8, 1, 1, 10), {"a": ""}), base).fewer == 1
    assert compare_outcomes(Outcome(TestCounts(9, 1, 3, 13), {"a": ""}), base).fewer == 0
    assert compare_outcomes(Outcome(TestCounts(7, 2, 0, 9), {"a": "", "b": ""}), base).fewer == 0, (
        "the run may have ended early"
    )


def test_without_names_no_test_counts_as_unchanged() -> None:
    named = Outcome(TestCounts(2, 0, 0, 2), {}, ("x", "y"))
    assert compare_outcomes(Outcome(TestCounts(9, 0, 0, 9)), named).vanished == ("x", "y")
    varying = Outcome(TestCounts(2, 0, 0, 2), names_vary=True)  # jest names passing tests where there is one file
    assert compare_outcomes(varying, named).vanished == ()
    assert compare_outcomes(Outcome(TestCounts(1, 0, 0, 1), names_vary=True), named).fewer == 1


def test_failures_with_the_same_name_are_counted() -> None:
    base = Outcome(TestCounts(0, 3, 0, 3), {"a": "", "b": ""})
    assert not compare_outcomes(base, base).new
    assert list(compare_outcomes(Outcome(TestCounts(0, 5, 0, 5), {"a": "", "b": ""}), base).new) == [UNNAMED_FAILURES]
    assert list(compare_outcomes(Outcome(TestCounts(0, 5, 0, 5), {"a": "", "c": ""}), base).new) == ["c"]


def test_only_failures_of_both_runs_count() -> None:
    agreed = common_failures(outcome_of("a", "b c"), outcome_of("a c", "b"))
    assert set(agreed.failures) == {"b"}
    agreed = common_failures(outcome_of("a c", "b"), outcome_of("a", "b c"))
    assert set(agreed.failures) == {"b"} and set(agreed.passed) == {"a", "c"}
    assert set(common_failures(outcome_of("a", "b"), outcome_of("b", "a")).failures) == {"a"}, "never none"
    assert common_failures(outcome_of("a", unloaded="t.py"), outcome_of("a", unloaded="t.py")).not_loaded == ("t.py",)


def test_varying_output_without_names_is_one_failure_per_exit_code() -> None:
    once, second, third = (read_outcome(f"an odd failure: {text}\n", [], exit_code=3) for text in ("x", "y", "z"))
    assert once.failures != second.failures
    assert set(common_failures(once, second).failures) == set(common_failures(second, third).failures)
    other = read_outcome("an odd failure: z\n", [], exit_code=4)
    assert set(common_failures(once, second).failures) != set(common_failures(other, other).failures)


def test_the_exit_code_decides_whether_it_fails() -> None:
    output = "t.py::a FAILED\nt.py::b PASSED\nFAILED t.py::a - assert 0\n=== 1 failed, 1 passed in 0.1s ===\n"
    passed = read_outcome(output, [], exit_code=0)
    assert (dict(passed.failures), passed.passed, passed.skipped) == ({}, ("t.py::b",), ("t.py::a",))
    before = read_outcome("t.py::a PASSED\nt.py::b PASSED\n=== 2 passed in 0.1s ===\n", [], exit_code=0)
    assert compare_outcomes(passed, before).newly_skipped == ("t.py::a",), "a failure that does not count is not a pass"
    retried = "t.py::a FAILED\nt.py::a PASSED\n=== 1 passed, 1 rerun in 0.1s ===\n"
    assert read_outcome(retried, [], exit_code=0).passed == ("t.py::a",)
    covered = "=== 2 passed in 0.1s ===\nFAIL Required test coverage of 90% not reached. Total coverage: 75.00%\n"
    [name] = read_outcome(covered, [], exit_code=1).failures
    assert name.startswith("coverage: ") and "75" not in name
    assert read_outcome("=== 2 passed in 0.1s ===\n", [], exit_code=1).failures


def test_results_of_a_linter_and_of_tests_are_read_from_one_output() -> None:
    lint = "\n/code/src/a.js\n  1:1  error  'x' is not defined  no-undef\n\n✖ 1 problem (1 error, 0 warnings)\n"
    mocha = "\n\n  sums\n    1) adds\n\n\n  0 passing (3ms)\n  1 failing\n\n  1) sums\n       adds:\n     Error: a.js:3: no\n\n"
    outcome = read_outcome(lint + mocha, [], exit_code=1, top=Path("/code"))
    assert set(outcome.failures) == {"src/a.js: 'x' is not defined no-undef", "sums > adds"}


def test_tests_of_two_suites_with_the_same_name_are_kept_apart() -> None:
    output = "TAP version 13\nok 1 - adds\nnot ok 2 - adds\nnot ok 3 - adds\n1..3\n"
    outcome = read_outcome(output, [], exit_code=1)
    assert (set(outcome.failures), outcome.passed) == ({"adds", "adds (2)"}, ("adds (3)",))
    before = read_outcome(output.replace("not ok 3", "ok 3"), [], exit_code=1)
    assert set(compare_outcomes(outcome, before).new) == {"adds (2)"}


def test_output_of_passing_tests_does_not_name_a_missing_module() -> None:
    output = "Error: Cannot find module 'shown'\nTAP version 13\nok 1 - finds none\nnot ok 2 - adds\n1..2\n"
    outcome = read_outcome(output, [], exit_code=1)
    assert missing_environment(output, outcome, exit_code=1) == ""
    output = "TAP version 13\nok 1 - a\nnot ok 2 - adds\n  ---\n  error: \"Cannot find module 'real'\"\n  ...\n1..2\n"
    outcome = read_outcome(output, [], exit_code=1)
    assert missing_environment(output, outcome, exit_code=1) == "module real not found"


def test_the_same_test_in_two_pytest_runs_counts_once() -> None:
    output = "FAILED t.py::a - no\n=== 1 failed, 1 passed in 1s ===\nt.py::a PASSED\n=== 2 passed in 1s ===\n"
    assert set(read_outcome(output, [], exit_code=1).failures) == {"t.py::a"}


PNPM = """\
Scope: 2 of 3 workspace projects
packages/a test$ mocha
packages/b test$ mocha
packages/a test:   a
packages/b test:   b
packages/a test:     \x1b[32m✔\x1b[39m one
packages/a test:     1) two
packages/b test:     \x1b[32m✔\x1b[39m one
packages/a test:   1 passing (29ms)
packages/a test:   1 failing
packages/a test:   1) a
packages/b test:     \x1b[32m✔\x1b[39m two: three
packages/a test:        two:
packages/a test:       AssertionError [ERR_ASSERTION]: 1 == 2
packages/b test:   2 passing (3ms)
packages/a test: Failed
packages/b test: Done
"""


def test_interleaved_output_of_workspace_packages_is_separated() -> None:
    outcome = read_outcome(PNPM, [], exit_code=1)
    [(name, message)] = outcome.failures.items()
    assert name == "a > two" and message.startswith("AssertionError [ERR_ASSERTION]: 1 == 2")
    assert (outcome.passed, outcome.counts) == (("a > one", "b > one", "b > two: three"), TestCounts(3, 1, 0, 4))
    missing = "packages/a test$ mocha\npackages/a test: sh: 1: mocha: not found\nspawn ENOENT\n"
    nothing = read_outcome(missing, [], exit_code=1)
    assert missing_environment(missing, nothing, exit_code=1) == "command mocha not found"
    turbo = "a:test: cache miss, executing 1f2e3d4c5b6a7980\na:test: 1..1\na:test: not ok 1 - adds\n"
    assert set(read_outcome(turbo, [], exit_code=1).failures) == {"adds"}


def test_the_list_of_failures_of_newer_node_versions_is_parsed() -> None:
    tree = "▶ sums\n  ✖ adds (1.2ms)\n  ﹣ later (0.1ms) # SKIP\n✖ sums (2ms)\nℹ tests 2\nℹ pass 0\nℹ fail 1\nℹ skipped 1\n"
    listed = "\n✖ failing tests:\n\ntest at t.js:1:1\n✖ adds (1.2ms)\n  AssertionError: no\n"
    outcome = read_outcome(tree + listed, [], exit_code=1)
    assert (dict(outcome.failures), outcome.skipped) == ({"sums > adds": "AssertionError: no"}, ("sums > later",))


def test_low_coverage_is_a_failure_in_addition_to_others() -> None:
    output = "FAILED t.py::a - no\n=== 1 failed in 1s ===\nERROR: Coverage for lines (7%) does not meet global threshold (9%)\n"
    names = list(read_outcome(output, [], exit_code=1).failures)
    assert len(names) == 2 and names[1].startswith("coverage: ")
