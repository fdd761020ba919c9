"""Real tools, run in a small project: what fails there is found, whatever else is broken."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.services.fixer.judging import Target
from agent_orchestrator.services.fixer.model import Report, as_json
from agent_orchestrator.services.fixer.verify import Spec, main, measure, spec_json


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.chdir(tree)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return tree


def run(top: Path, *commands: str, timeout: float = 60.0) -> Report:
    subprocess.run(["git", "add", "-A"], cwd=top, check=True)
    return asyncio.run(
        measure(top, Spec(top.parent / "out.json", top.parent / "cache", commands=commands, timeout=timeout))
    )


def test_a_file_that_cannot_be_imported_hides_no_other(top: Path) -> None:
    (top / "tests/test_a.py").write_text("import nowhere\n\ndef test_one() -> None: ...\n")
    (top / "tests/test_b.py").write_text(
        "import pytest\n\nclass TestIt:\n    def test_two(self) -> None:\n        assert 1 == 2\n"
        "    @pytest.mark.skip\n    def test_skipped(self) -> None: ...\n"
        "@pytest.fixture\ndef bad() -> None:\n    raise KeyError('k')\n\n"
        "def test_three(bad: None) -> None: ...\ndef test_four() -> None: ...\n"
    )
    [found] = run(top, "pytest -q").tools
    assert {one.id: one.rule for one in found.failures} == {
        "tests/test_a.py": "ModuleNotFoundError",
        "tests/test_b.py::TestIt::test_two": "AssertionError",
        "tests/test_b.py::test_three": "KeyError",
    }
    assert found.tests == {
        "tests/test_b.py::TestIt::test_two": "failed",
        "tests/test_b.py::TestIt::test_skipped": "skipped",
        "tests/test_b.py::test_three": "failed",
        "tests/test_b.py::test_four": "passed",
    }
    assert found.hidden == ("tests/test_a.py",) and not found.problem
    assert found.failures[0].message.startswith("ModuleNotFoundError: No module named 'nowhere'")


def test_a_tool_that_cannot_be_run_is_told_as_such(top: Path) -> None:
    (top / "tests/test_a.py").write_text("def test_one() -> None: ...\n")
    (top / "conftest.py").write_text("raise RuntimeError('no')\n")
    (top / "ruff.toml").write_text("nonsense = 1\n")
    (top / "mypy.ini").write_text("[mypy]\npython_version = 1.0\n")
    report = run(top, "pytest", "ruff check", "no-such-tool", "pytest --no-such-option", "mypy --no-such-option .")
    assert [bool(one.problem) for one in report.tools] == [True] * 5, report.problems
    assert report.failures == []
    late = run(top, "sleep 5", timeout=0.2)
    assert "did not finish within 0.2 s" in late.tools[0].problem


def test_ruff_and_mypy_say_the_same_at_other_lines(top: Path) -> None:
    (top / "a.py").write_text("import os\nx: int = 'a'\n")
    first = run(top, "ruff check --select F", "mypy a.py")
    assert [(one.tool, one.rule, one.line) for one in first.failures] == [
        ("ruff", "F401", 1),
        ("mypy", "assignment", 2),
    ]
    (top / "a.py").write_text("# moved\n\nimport os\ny = 1\nx: int = 'a'\n")
    second = run(top, "ruff check --select F", "mypy a.py")
    assert [one.id for one in second.failures] == [one.id for one in first.failures]
    (top / "a.py").write_text("def (\n")
    [broken] = run(top, "mypy a.py").tools
    assert {one.rule for one in broken.failures} == {"syntax"} and broken.hidden == ("",)


def test_what_fails_by_chance_does_not_count(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = top.parent / "seen"
    (top / "tests/test_a.py").write_text(
        f"import pathlib\n\nSEEN = pathlib.Path({str(marker)!r})\n\ndef test_flaky() -> None:\n"
        "    there = SEEN.exists()\n    SEEN.touch()\n    assert there\n\ndef test_bad() -> None:\n    assert False\n"
    )
    marker.touch()
    before = run(top, "pytest")
    (top.parent / "before.json").write_text(json.dumps(as_json(before)))
    marker.unlink()
    spec = Spec(
        top.parent / "out.json",
        top.parent / "cache",
        tools=tuple(one.tool for one in before.tools),
        before=top.parent / "before.json",
        targets=(Target("pytest", "tests/test_a.py::test_bad"),),
    )
    file = top.parent / "spec.json"
    file.write_text(json.dumps(spec_json(spec)))
    assert asyncio.run(main(file)) == 1
    said = capsys.readouterr().out
    assert "1 of 1 failures to be fixed still fail" in said and "test_flaky" not in said
    text = (top / "tests/test_a.py").read_text()
    (top / "tests/test_a.py").write_text(text.replace("assert False", "assert True"))
    assert asyncio.run(main(file)) == 0
