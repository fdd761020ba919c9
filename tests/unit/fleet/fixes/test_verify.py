"""Measuring a small project with real tools: failures are found whatever else is broken."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from agent_orchestrator.fleet.fixes.comparison import TargetFailure
from agent_orchestrator.fleet.fixes.measure import main, measure
from agent_orchestrator.fleet.fixes.model import Report, report_to_json
from agent_orchestrator.fleet.fixes.spec import MeasurementSpec, spec_to_json


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
        measure(top, MeasurementSpec(top.parent / "out.json", top.parent / "cache", commands=commands, timeout=timeout))
    )


def test_a_file_that_cannot_be_imported_hides_no_other_failure(top: Path) -> None:
    (top / "tests/test_a.py").write_text("from pathlib import nowhere\n\ndef test_one() -> None: ...\n")
    (top / "tests/test_b.py").write_text(
        "import pytest\n\nclass TestIt:\n    def test_two(self) -> None:\n        assert 1 == 2\n"
        "    @pytest.mark.skip\n    def test_skipped(self) -> None: ...\n"
        "@pytest.fixture\ndef bad() -> None:\n    raise KeyError('k')\n\n"
        "def test_three(bad: None) -> None: ...\ndef test_four() -> None: ...\n"
    )
    [result] = run(top, "pytest -q").tools
    assert {item.id: item.rule for item in result.failures} == {
        "tests/test_a.py": "ImportError",
        "tests/test_b.py::TestIt::test_two": "AssertionError",
        "tests/test_b.py::test_three": "KeyError",
    }
    assert result.tests == {
        "tests/test_b.py::TestIt::test_two": "failed",
        "tests/test_b.py::TestIt::test_skipped": "skipped",
        "tests/test_b.py::test_three": "failed",
        "tests/test_b.py::test_four": "passed",
    }
    assert result.hidden == ("tests/test_a.py",) and not result.problem
    assert result.failures[0].message.startswith("ImportError: cannot import name 'nowhere'")


def test_unreadable_configuration_is_one_failure_and_a_missing_tool_none(top: Path) -> None:
    (top / "tests/test_a.py").write_text("def test_one() -> None: ...\n")
    (top / "conftest.py").write_text("raise RuntimeError('no')\n")
    (top / "ruff.toml").write_text("nonsense = 1\n")
    (top / "mypy.ini").write_text("[mypy]\npython_version = 1.0\n")
    broken = ("pytest", "ruff check", "pytest --no-such-option", "mypy --no-such-option .", "echo odd; exit 3")
    report = run(top, *broken)
    assert [len(item.failures) for item in report.tools] == [1] * 5 and not report.problems, report
    assert "RuntimeError" in report.tools[0].failures[0].detail
    report = run(top, "no-such-tool", "ruff check")
    assert report.lacks and "environment not set up" in report.tools[0].problem and not report.tools[0].failures
    late = run(top, "sleep 5", timeout=0.2)
    assert "did not finish within 0.2 s" in late.tools[0].problem and not late.lacks


def test_the_exit_code_decides_whether_a_command_fails(top: Path) -> None:
    (top / "a.py").write_text("import os\n")
    (top / "tests/test_a.py").write_text("def test_one() -> None: ...\n")
    plugin = "def pytest_sessionfinish(session) -> None:\n    session.exitstatus = 1\n"
    (top / "conftest.py").write_text(plugin)
    (top / "other").mkdir()
    (top / "other/test_b.py").write_text("def test_two() -> None:\n    assert False\n")
    green = ("ruff check --select F --exit-zero", "! ruff check --select F", "pytest -q other || true")
    report = run(top, "pytest -q tests", *green)
    assert [len(item.failures) for item in report.tools] == [1, 0, 0, 0], report
    assert report.tools[0].tests == {"tests/test_a.py::test_one": "passed"}
    assert report.tools[0].failures[0].message == "pytest -q tests ends with exit code 1"


def test_files_changed_by_a_tool_are_restored(top: Path) -> None:
    (top / "a.py").write_text("import os\n")
    report = run(top, "ruff check --select F --fix", "ruff check --select F")
    assert [len(item.failures) for item in report.tools] == [0, 1]
    assert (top / "a.py").read_text() == "import os\n"


def test_pytest_failures_are_found_however_it_is_run(top: Path) -> None:
    (top / "tests/test_a.py").write_text("import pytest\n\n\ndef test_one() -> None:\n    assert 1 == 2\n")
    (top / "env/bin").mkdir(parents=True)
    (top / "env/bin/activate").write_text("ACTIVATED=1\n")
    (top / "run.sh").write_text("set -e\npytest -q\n")
    activated = ". env/bin/activate && python -m pytest -q"
    report = run(top, activated, "sh run.sh", 'test "$PWD" && pytest -q', f"{activated} -k $ACTIVATED")
    assert [[item.id for item in tool.failures] for tool in report.tools[:3]] == [["tests/test_a.py::test_one"]] * 3
    assert [tool.tool.kind for tool in report.tools] == ["pytest", "command", "command", "command"]
    assert all(tool.failures[0].frames for tool in report.tools[:3]), "with its traceback"
    assert len(report.tools[3].failures) == 1, "no test is chosen: exit code 5"


@pytest.mark.skipif(not (which("node") and which("npm")), reason="node and npm are not installed")
def test_a_script_of_package_json_is_run_and_parsed(top: Path) -> None:
    scripts = {"test": "node --test", "checked": "sh check.sh", "precheck": "false", "check": "true"}
    (top / "package.json").write_text(json.dumps({"name": "a", "version": "1.0.0", "scripts": scripts}))
    (top / "a.test.js").write_text("require('node:test')('adds', () => { throw new Error('odd'); });\n")
    (top / "check.sh").write_text("echo 'src/a.c:3:1: error: odd'\nexit 7\n")
    report = run(top, "npm test", "npm run checked", "npm run check")
    assert [len(item.failures) for item in report.tools] == [1, 1, 1], report
    assert report.tools[1].failures[0].file == "src/a.c"
    assert report.tools[2].failures[0].message == "npm run check ends with exit code 1", "the script before it fails"


def test_configured_checks_run_first_and_always(top: Path) -> None:
    (top / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n[tool.ruff]\ninclude = ['a.py']\nlint.select = ['F']\n[tool.mypy]\nfiles = ['a.py']\n"
    )
    (top / "a.py").write_text("import os\nx: int = 'a'\n")
    (top / "tests/test_a.py").write_text("def test_one() -> None: ...\n")
    (top / "package.json").write_text('{"scripts": {"lint": "eslint ."}, "devDependencies": {"eslint": "9"}}')
    subprocess.run(["git", "add", "-A"], cwd=top, check=True)

    def names(*ci: str, commands: tuple[str, ...] = ()) -> dict[str, int]:
        spec = MeasurementSpec(top.parent / "out.json", top.parent / "cache", ci=ci, commands=commands)
        return asyncio.run(measure(top, spec)).counts

    assert names("echo odd; exit 3") == {"echo odd; exit 3": 1, "ruff": 1, "mypy": 1, "pytest": 0}
    assert names("pytest -q", "ruff check a.py") == {"pytest": 0, "ruff": 1, "mypy": 1}
    assert names("exit 3", commands=("true",)) == {"exit 3": 1, "true": 0}


def test_ids_of_ruff_and_mypy_failures_do_not_depend_on_lines(top: Path) -> None:
    (top / "a.py").write_text("import os\nx: int = 'a'\n")
    first = run(top, "ruff check --select F", "mypy a.py")
    assert [(item.tool, item.rule, item.line) for item in first.failures] == [
        ("ruff", "F401", 1),
        ("mypy", "assignment", 2),
    ]
    (top / "a.py").write_text("# moved\n\nimport os\ny = 1\nx: int = 'a'\n")
    second = run(top, "ruff check --select F", "mypy a.py")
    assert [item.id for item in second.failures] == [item.id for item in first.failures]
    (top / "a.py").write_text("def (\n")
    [broken] = run(top, "mypy a.py").tools
    assert {item.rule for item in broken.failures} == {"syntax"} and broken.hidden == ("",)


def test_a_detected_linter_that_is_not_installed_is_left_out(top: Path) -> None:
    """A configured check with the same command is still reported."""
    (top / "package.json").write_text('{"scripts": {"lint": "sh lint.sh"}}')
    (top / "lint.sh").write_text("no-such-linter .\n")
    (top / "Makefile").write_text("lint:\n\tsh lint.sh\n")
    (top / "tests/test_a.py").write_text("def test_one() -> None: ...\n")
    subprocess.run(["git", "add", "-A"], cwd=top, check=True)
    spec = MeasurementSpec(top.parent / "out.json", top.parent / "cache", ci=("pytest -q",))
    report = asyncio.run(measure(top, spec))
    assert [item.tool.command for item in report.tools] == ["pytest -q"] and not report.lacks
    lint = "make lint"
    assert "no-such-linter" in asyncio.run(measure(top, replace(spec, ci=(lint,)))).lacks


def test_flaky_failures_do_not_count(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = top.parent / "seen"
    (top / "tests/test_a.py").write_text(
        f"import pathlib\n\nSEEN = pathlib.Path({str(marker)!r})\n\ndef test_flaky() -> None:\n"
        "    there = SEEN.exists()\n    SEEN.touch()\n    assert there\n\ndef test_bad() -> None:\n    assert False\n"
    )
    marker.touch()
    before = run(top, "pytest")
    (top.parent / "before.json").write_text(json.dumps(report_to_json(before)))
    marker.unlink()
    spec = MeasurementSpec(
        top.parent / "out.json",
        top.parent / "cache",
        tools=tuple(item.tool for item in before.tools),
        before=top.parent / "before.json",
        targets=(TargetFailure("pytest", "tests/test_a.py::test_bad"),),
    )
    file = top.parent / "spec.json"
    file.write_text(json.dumps(spec_to_json(spec)))
    assert asyncio.run(main(file)) == 1
    output = capsys.readouterr().out
    assert "1 of 1 failures to be fixed still fail" in output and "test_flaky" not in output
    text = (top / "tests/test_a.py").read_text()
    (top / "tests/test_a.py").write_text(text.replace("assert False", "assert True"))
    assert asyncio.run(main(file)) == 0
