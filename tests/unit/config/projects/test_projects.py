"""The corpus of real projects: every description can be read, and counts are parsed from the runners' output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects.corpus import FOLDER, Replacement, load, load_corpus
from tests.projects.counts import RUNNERS, count_passed

GOOD = f"""registry = "pypi"
package = "p"
version = "1"
sha256 = "{"0" * 64}"
kind = "k"
runner = "pytest"
set_up = []
test = "pytest"
passed = 1
[bug]
file = "a.py"
old = "1"
new = "2"
"""


def test_every_description_can_be_read_and_is_unique() -> None:
    projects = load_corpus()
    assert (
        len({(project.registry, project.package) for project in projects})
        == len(projects)
        == len(list(FOLDER.iterdir()))
    )
    assert len({project.sha256 for project in projects}) == len(projects)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"pypi"', '"cran"', "registry: cran"),
        ('"pytest"\nset', '"nose"\nset', "runner: nose"),
        ("0" * 64, "0" * 63, "sha256"),
        ("passed = 1", "passed = 0", "passed"),
        ('new = "2"', 'new = "1"', "bug: old and new"),
        ("set_up = []", "set_up = [1]", "set_up"),
        ("kind", "kinds", "kinds"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD)
    assert load(path).name == "p"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=f"p.toml: .*{message}"):
        load(path)


def test_a_bug_is_planted_only_where_its_text_occurs_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    Replacement("a.py", "x = 1", "x = 2").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
    with pytest.raises(ValueError, match=r"a\.py: 'x = 1' is there 0 times"):
        Replacement("a.py", "x = 1", "x = 2").apply(tmp_path)


@pytest.mark.parametrize(
    ("runner", "output", "count"),
    [
        ("pytest", "\x1b[32m==== \x1b[1m5 passed\x1b[0m, 1 skipped in 0.10s ====\x1b[0m", 5),
        ("pytest", "1 failed, 7 passed in 1.02s", 7),
        ("pytest", "no tests ran in 0.01s", 0),
        ("unittest", "Ran 10 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=3, expected failures=1)", 3),
        ("unittest", "Ran 4 tests in 0.1s\n\nOK", 4),
        ("tap", "# tests 4\n# pass  3\n# fail  1", 3),
        ("tap", "ℹ pass 12", 12),
        ("mocha", "  42 passing (3s)\n  1 failing", 42),
        ("ava", "  9 tests passed", 9),
        ("jest", "Tests:       1 failed, 30 passed, 31 total", 30),
        ("vitest", "      Tests  2 failed | 40 passed (42)", 40),
        ("go", "--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\nok  \tp\t0.1s", 2),
        ("go", "ok  \tp\t0.1s\nok  \tp/q\t0.1s\nFAIL\tp/r", 2),
        ("cargo", "test result: ok. 3 passed; 0 failed\ntest result: FAILED. 2 passed; 1 failed", 5),
        ("ctest", "80% tests passed, 1 tests failed out of 5", 4),
        ("meson", "Ok:                 6   \nFail:  0", 6),
        ("automake", "# TOTAL: 5\n# PASS:  4", 4),
    ],
)
def test_the_number_of_passing_tests_is_read_from_the_output(runner: str, output: str, count: int) -> None:
    assert runner in RUNNERS
    assert count_passed(runner, output) == count
