"""The summary of a check's output: the relevant part and the numbers."""

from __future__ import annotations

import pytest

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.changes.checks.summary import MAX_SUMMARY_BYTES, relevant_output, strip_escapes

PYTEST = """\
============================= test session starts ==============================
collected 42 items

tests/test_cart.py .........................................F            [100%]

=================================== FAILURES ===================================
__________________________________ test_total __________________________________

    def test_total():
>       assert total([1, 2]) == 3
E       assert 2 == 3

tests/test_cart.py:7: AssertionError
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_total - assert 2 == 3
========================= 1 failed, 41 passed in 0.12s =========================
make: *** [Makefile:4: test] Error 1
"""


def test_the_summary_shows_the_failure_and_not_the_teardown() -> None:
    noise = "".join(f"compiling part {number}\n" for number in range(500))
    closing = "".join(f"stopping service {number}\n" for number in range(50))
    summary = relevant_output(noise + PYTEST + closing + "npm ERR! code ELIFECYCLE\nnpm ERR! Test failed.\n")
    assert "E       assert 2 == 3" in summary
    assert "FAILED tests/test_cart.py::test_total" in summary
    assert "part 3\n" not in summary
    assert "stopping service 40" not in summary
    assert "npm ERR!" not in summary


def test_without_a_relevant_line_the_summary_is_the_end() -> None:
    summary = relevant_output("".join(f"step {number}\n" for number in range(100)))
    assert summary.endswith("step 99")
    assert "step 10\n" not in summary


def test_lines_without_errors_are_left_out() -> None:
    summary = relevant_output(
        "src/a.py:3: error: Name 'x' is not defined\n" + "found 0 errors\nlint: no errors\n" + "bye\n" * 60
    )
    assert summary.startswith("src/a.py:3: error")
    assert summary.count("bye") < 10


def test_many_errors_are_cut_to_the_first_and_the_last() -> None:
    summary = relevant_output("".join(f"src/ä{number}.c:1: error: wrong {number}\n" for number in range(2000)))
    assert len(summary.encode()) <= MAX_SUMMARY_BYTES
    assert "wrong 0\n" in summary
    assert "wrong 1999" in summary
    assert "\n…\n" in summary


def test_a_single_long_line_is_cut() -> None:
    assert 0 < len(relevant_output("x" * 100_000).encode()) <= MAX_SUMMARY_BYTES


def test_colours_control_characters_and_progress_bars_are_removed() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n10 %\r50 %\rdone\nbell\x07 \u202eevil\x00"
    assert strip_escapes(text) == "red link\ndone\nbell evil"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (PYTEST, TestCounts(41, 1, 0, 42)),
        ("\x1b[32m\x1b[1m41 passed\x1b[0m, 2 skipped, 1 warning in 1.02s\n", TestCounts(41, 0, 2, 43)),
        ("Tests:       1 failed, 1 skipped, 3 passed, 5 total\nTime: 2 s\n", TestCounts(3, 1, 1, 5)),
        (" Test Files  1 failed (1)\n      Tests  1 failed | 4 passed (5)\n", TestCounts(4, 1, 0, 5)),
        (
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
            TestCounts(6, 2, 1, 9),
        ),
        (
            "--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\ta.b/c\t0.1s\n",
            TestCounts(1, 1, 0, 2),
        ),
        ("Ran 7 tests in 0.001s\n\nFAILED (failures=1, errors=1, skipped=2)\n", TestCounts(3, 2, 2, 7)),
        ("Ran 7 tests in 0.001s\n\nOK\n", TestCounts(7, 0, 0, 7)),
        ("  12 passing (30ms)\n  1 pending\n  2 failing\n", TestCounts(12, 2, 1, 15)),
        ("all 12 things passed inspection\n", None),
    ],
)
def test_numbers_of_well_known_test_runners(output: str, expected: TestCounts | None) -> None:
    assert read_outcome(output, [], exit_code=1).counts == expected
