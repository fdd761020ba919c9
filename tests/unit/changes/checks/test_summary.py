"""What is made of a check's output: the part that tells, and the numbers."""

from __future__ import annotations

import pytest

from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.changes.checks.summary import LONGEST, plain, relevant

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


def test_the_failure_is_told_and_the_teardown_is_not() -> None:
    noise = "".join(f"compiling part {number}\n" for number in range(500))
    closing = "".join(f"stopping service {number}\n" for number in range(50))
    told = relevant(noise + PYTEST + closing + "npm ERR! code ELIFECYCLE\nnpm ERR! Test failed.\n")
    assert "E       assert 2 == 3" in told
    assert "FAILED tests/test_cart.py::test_total" in told
    assert "part 3\n" not in told
    assert "stopping service 40" not in told
    assert "npm ERR!" not in told


def test_output_without_a_telling_line_gives_its_end() -> None:
    told = relevant("".join(f"step {number}\n" for number in range(100)))
    assert told.endswith("step 99")
    assert "step 10\n" not in told


def test_lines_that_say_all_is_well_do_not_count() -> None:
    told = relevant("src/a.py:3: error: Name 'x' is not defined\n" + "found 0 errors\nlint: no errors\n" + "bye\n" * 60)
    assert told.startswith("src/a.py:3: error")
    assert told.count("bye") < 10


def test_first_and_last_of_many_errors_are_told_within_bounds() -> None:
    told = relevant("".join(f"src/ä{number}.c:1: error: wrong {number}\n" for number in range(2000)))
    assert len(told.encode()) <= LONGEST
    assert "wrong 0\n" in told
    assert "wrong 1999" in told
    assert "\n…\n" in told


def test_one_endless_line_is_bounded_too() -> None:
    assert 0 < len(relevant("x" * 100_000).encode()) <= LONGEST


def test_colours_control_characters_and_progress_bars_go() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n10 %\r50 %\rdone\nbell\x07 \u202eevil\x00"
    assert plain(text) == "red link\ndone\nbell evil"


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
