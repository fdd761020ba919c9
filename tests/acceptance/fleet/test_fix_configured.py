"""`ao fix` measures the configured checks, and starts no agent where that would be useless."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

Json = dict[str, Any]
PYTHON = shlex.quote(sys.executable)
UNITTEST = f"{PYTHON} -m unittest -q"

needs_node = pytest.mark.skipif(not (which("node") and which("npm")), reason="node and npm are not installed")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


def seed(box: Sandbox, files: dict[str, str], ci: dict[str, str], script: str = "", **project: str) -> None:
    """Create a repository with these files and a project with these checks, whose agent runs the script."""
    repo = box.repository(config="")
    for file, text in files.items():
        (repo / file).parent.mkdir(parents=True, exist_ok=True)
        (repo / file).write_text(text)
    box.git("add", *files)
    box.git("commit", "-q", "-m", "files")
    config = {
        "defaults": {"agent": "scripted" if script else "demo", "runtime": "process"},
        "project": {"ci": ci, **project},
        "reactions": {"ci-failed": {"backoff": "50ms", "retries": 1, "escalateAfter": 1}},
        "agents": {"scripted": {"tool": "demo", "script": f"[[sh: {script}]] [[commit: change]] [[done: changed]]"}},
    }
    (repo / "agent-orchestrator.yaml").write_text(json.dumps(config))
    box.start()


def dry_run(box: Sandbox, *argv: str) -> tuple[int, Json]:
    """Return the exit code of a dry run and its JSON output."""
    done = box.ao("fix", "--dry-run", "--json", *argv, check=False)
    return done.returncode, json.loads(done.stdout)


def counts(report: Json) -> dict[str, int]:
    return {tool["name"]: tool["before"] for tool in report["tools"]}


TESTS = "import unittest\n\n\nclass Adding(unittest.TestCase):\n    def test_adds(self):\n        self.assertEqual(1 + 1, 3)\n"


def test_a_configured_check_runs_instead_of_a_detected_linter(box: Sandbox) -> None:
    package = {"name": "a", "scripts": {"lint": "true"}, "devDependencies": {"eslint": "9"}}
    files = {"package.json": json.dumps(package), "eslint.config.js": "export default [];\n", "test_a.py": TESTS}
    seed(box, files, {"test": UNITTEST})
    code, report = dry_run(box)
    assert code == 1 and report["before"] == 1, report
    assert report["tools"][0]["command"] == UNITTEST and report["tools"][0]["before"] == 1
    output = box.ao("fix", "--dry-run", check=False)
    assert "round 1: 1 failure, 1 cause on main" in output.stderr and "Fix them: ao fix\n" in output.stdout


def test_unparsable_output_counts_as_one_failure_even_with_a_passing_report(box: Sandbox) -> None:
    report = "<testsuites><testsuite><testcase classname='a' name='one'/></testsuite></testsuites>"
    script = f'printf "{report}" > junit.xml\nexit 3\n'
    seed(
        box, {"check.sh": script}, {"odd": "echo odd && exit 4", "report": "sh check.sh", "fine": "echo 1 failed; true"}
    )
    code, result = dry_run(box)
    assert code == 1 and counts(result) == {"echo odd && exit 4": 1, "sh check.sh": 1, "echo 1 failed; true": 0}
    assert {item["message"] for group in result["failures"] for item in group["failures"]} == {
        "echo odd && exit 4 ends with exit code 4",
        "sh check.sh ends with exit code 3",
    }


def test_two_checks_of_one_tool_are_both_counted(box: Sandbox) -> None:
    files = {"tests/test_a.py": "def test_one():\n    assert 1 == 2\n", "other/test_b.py": "def test_two(): ...\n"}
    run = f"{PYTHON} -m pytest -q -p no:cacheprovider"
    seed(box, files, {"one": f"{run} tests", "two": f"{run} other"})
    code, report = dry_run(box)
    assert code == 1 and report["before"] == 1 and sorted(counts(report).values()) == [0, 1]


def test_pytest_is_measured_in_an_activated_environment(box: Sandbox) -> None:
    activate = f'PATH=$PWD/env/bin:$PATH\npython() {{ {PYTHON} "$@"; }}\n'
    files = {"env/activate": activate, "tests/test_a.py": "def test_one():\n    assert 1 == 2\n"}
    seed(box, files, {"test": ". env/activate && python -m pytest -q"})
    code, report = dry_run(box)
    assert code == 1 and counts(report) == {"pytest": 1}
    assert report["failures"][0]["failures"][0]["id"] == "tests/test_a.py::test_one"


@needs_node
def test_a_script_of_package_json_is_measured_by_its_exit_code(box: Sandbox) -> None:
    scripts = {"test": "node --test", "lint": "eslint .", "prelint": "false"}
    test = "require('node:test')('adds', () => { throw new Error('odd'); });\n"
    seed(box, {"package.json": json.dumps({"name": "a", "scripts": scripts}), "a.test.js": test}, {})
    code, report = dry_run(box, "--command", "npm test", "--command", "npm run lint")
    assert code == 1 and counts(report) == {"npm test": 1, "npm run lint": 1}


def test_no_agent_is_started_if_a_program_is_missing(box: Sandbox) -> None:
    seed(box, {"test_a.py": TESTS}, {"test": UNITTEST, "lint": "no-such-linter ."})
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and not box.sessions(), done.stdout
    assert "environment not set up: " in done.stdout and "Set postCreate, for example:" in done.stdout
    assert "ao init --check" in done.stdout
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "not_set_up"


@pytest.mark.parametrize("command", [UNITTEST, f"{PYTHON} -m pytest -q"], ids=["unittest", "pytest"])
def test_no_agent_is_started_if_some_tests_lack_a_module(box: Sandbox, command: str) -> None:
    seed(box, {"test_a.py": TESTS, "test_b.py": f"import no_such_module\n{TESTS}"}, {"test": command})
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and not box.sessions(), done.stdout
    assert "environment not set up: module no_such_module not found. Set postCreate, for example:" in done.stdout
    code, report = dry_run(box)
    assert (code, report["state"]) == (1, "not_set_up")


def test_the_hint_repeats_the_options_of_the_dry_run(box: Sandbox) -> None:
    seed(box, {"test_a.py": TESTS}, {})
    argv = [
        "--command",
        UNITTEST,
        "--command",
        "exit 3",
        "--max-rounds",
        "2",
        "--agent",
        "demo",
        "-p",
        "app",
        "--no-merge",
    ]
    output = box.ao("fix", "--dry-run", *argv, check=False)
    [line] = [line for line in output.stdout.splitlines() if line.startswith("Fix them: ")]
    assert sorted(shlex.split(line.removeprefix("Fix them: "))) == sorted(["ao", "fix", *argv])
    output = box.ao("fix", "F1", check=False)
    [line] = [line for line in output.stdout.splitlines() if line.startswith("Fix them: ")]
    assert sorted(shlex.split(line.removeprefix("Fix them: "))) == sorted(["ao", "fix", "--base", "main", *argv])


def test_an_agent_that_is_not_signed_in_is_not_started(box: Sandbox) -> None:
    programs = box.folder / "programs"
    programs.mkdir()
    (programs / "codex").write_text(
        "#!/bin/sh\ncase $1 in login) test -e ~/in || { echo Not logged in; exit 1; };; esac\n"
    )
    (programs / "codex").chmod(0o755)
    box.env["PATH"] = f"{programs}:{box.env['PATH']}"
    for name in ("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME", "ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR"):
        box.env.pop(name, None)
    (box.user_home / ".profile").write_text(f"PATH={shlex.quote(str(programs))}:$PATH\n")
    seed(box, {"test_a.py": TESTS}, {"test": UNITTEST})
    done = box.ao("fix", "--agent", "codex", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "codex is not signed in" in done.stderr and "codex login" in done.stderr
    assert dry_run(box, "--agent", "codex")[1]["before"] == 1, "to measure needs no agent"
    if sys.platform != "darwin":
        assert "claude /login" in box.ao("fix", "--agent", "claude-code", check=False).stderr
    (box.user_home / "in").touch()
    done = box.ao("fix", "--agent", "codex", "--no-wait", check=False)
    assert done.returncode == 0 and "is running" in done.stdout, done.stderr
    box.ao("fix", "--stop", "F2", check=False)


CALC = {"calc.py": "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return a + a + a\n"}
CALC_TESTS = {
    "test_calc.py": "import unittest\n\nimport calc\n\n\nclass Adding(unittest.TestCase):\n"
    "    def test_adds(self):\n        self.assertEqual(calc.add(1, 1), 2)\n",
    "test_twice.py": "import unittest\n\nimport calc\n\n\nclass Twice(unittest.TestCase):\n"
    "    def test_twice(self):\n        self.assertEqual(calc.twice(2), 4)\n",
}
FIX_ADD = "sed -i.old 's/a - b/a + b/' calc.py; rm calc.py.old"
FIX_BOTH = "sed -i.old 's/a - b/a + b/; s/a + a + a/a + a/' calc.py; rm calc.py.old"


def run_fix(box: Sandbox) -> Json:
    """Run `ao fix` to its end and return the run."""
    done = box.ao("fix", check=False)
    [run] = box.json("fix", "--list")["fixes"]
    assert run["ended"], done.stdout + done.stderr
    return run  # type: ignore[no-any-return]


def test_a_fix_that_breaks_another_check_is_not_merged(box: Sandbox) -> None:
    files = {**CALC, "test_calc.py": CALC_TESTS["test_calc.py"], "check.sh": "test -e kept || exit 5\n", "kept": ""}
    seed(box, files, {"test": UNITTEST, "odd": "sh check.sh"}, f"{FIX_ADD}; rm kept")
    before = box.git("rev-parse", "main")
    run = run_fix(box)
    assert run["state"] == "left" and box.git("rev-parse", "main") == before, run
    assert {group["outcome"] for item in run["rounds"] for group in item["groups"]} <= {"failed", None}


@pytest.mark.long
def test_an_ineffective_fix_is_not_merged_on_a_red_base(box: Sandbox) -> None:
    seed(box, {**CALC, **CALC_TESTS}, {"test": UNITTEST}, "echo '# odd' >> calc.py")
    before = box.git("rev-parse", "main")
    run = run_fix(box)
    assert run["state"] == "left" and box.git("rev-parse", "main") == before, run


def test_a_set_up_that_fails_merges_nothing(box: Sandbox) -> None:
    """The environment is removed between measurement and merge, so that the check has no result."""
    removed_file = shlex.quote(str(box.folder / "gone"))
    check = f"if test -e {removed_file}; then no-such-program; else {UNITTEST}; fi"
    seed(box, {**CALC, "test_calc.py": CALC_TESTS["test_calc.py"]}, {"test": check}, f"{FIX_ADD}; touch {removed_file}")
    before = box.git("rev-parse", "main")
    run = run_fix(box)
    assert run["state"] != "green" and box.git("rev-parse", "main") == before, run


@pytest.mark.long
def test_one_agent_fixes_everything_if_known_failures_block_merges(box: Sandbox) -> None:
    seed(
        box,
        {**CALC, **CALC_TESTS},
        {"add": f"{UNITTEST} test_calc", "twice": f"{UNITTEST} test_twice"},
        FIX_BOTH,
        redBase="forbid",
    )
    run = run_fix(box)
    assert run["state"] == "green" and run["before"] == 2, run
    [group] = run["rounds"][0]["groups"]
    assert group["outcome"] == "landed" and group["title"] == "2 failures, 2 causes"
