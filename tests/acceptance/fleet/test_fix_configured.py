"""`ao fix` measures what is configured, and starts no agent where that would help nobody."""

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

node = pytest.mark.skipif(not (which("node") and which("npm")), reason="node and npm are not installed")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


def seed(box: Sandbox, files: dict[str, str], ci: dict[str, str], script: str = "", **project: str) -> None:
    """Make a repository with these files, and a project with these checks; its agent plays the script."""
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


def dry(box: Sandbox, *argv: str) -> tuple[int, Json]:
    """What a dry run says, and its exit code."""
    done = box.ao("fix", "--dry-run", "--json", *argv, check=False)
    return done.returncode, json.loads(done.stdout)


def counts(found: Json) -> dict[str, int]:
    return {tool["name"]: tool["before"] for tool in found["tools"]}


TESTS = "import unittest\n\n\nclass Adding(unittest.TestCase):\n    def test_adds(self):\n        self.assertEqual(1 + 1, 3)\n"


def test_a_configured_check_is_run_where_a_linter_is_configured_too(box: Sandbox) -> None:
    package = {"name": "a", "scripts": {"lint": "true"}, "devDependencies": {"eslint": "9"}}
    files = {"package.json": json.dumps(package), "eslint.config.js": "export default [];\n", "test_a.py": TESTS}
    seed(box, files, {"test": UNITTEST})
    code, found = dry(box)
    assert code == 1 and found["before"] == 1, found
    assert found["tools"][0]["command"] == UNITTEST and found["tools"][0]["before"] == 1
    shown = box.ao("fix", "--dry-run", check=False)
    assert "round 1: 1 failure, 1 cause on main" in shown.stderr and "Fix them: ao fix\n" in shown.stdout


def test_what_cannot_be_read_is_one_failure_and_a_green_report_hides_nothing(box: Sandbox) -> None:
    report = "<testsuites><testsuite><testcase classname='a' name='one'/></testsuite></testsuites>"
    script = f'printf "{report}" > junit.xml\nexit 3\n'
    seed(
        box, {"check.sh": script}, {"odd": "echo odd && exit 4", "report": "sh check.sh", "fine": "echo 1 failed; true"}
    )
    code, found = dry(box)
    assert code == 1 and counts(found) == {"echo odd && exit 4": 1, "sh check.sh": 1, "echo 1 failed; true": 0}
    assert {each["message"] for group in found["failures"] for each in group["failures"]} == {
        "echo odd && exit 4 ends with exit code 4",
        "sh check.sh ends with exit code 3",
    }


def test_two_checks_of_one_tool_are_both_counted(box: Sandbox) -> None:
    files = {"tests/test_a.py": "def test_one():\n    assert 1 == 2\n", "other/test_b.py": "def test_two(): ...\n"}
    run = f"{PYTHON} -m pytest -q -p no:cacheprovider"
    seed(box, files, {"one": f"{run} tests", "two": f"{run} other"})
    code, found = dry(box)
    assert code == 1 and found["before"] == 1 and sorted(counts(found).values()) == [0, 1]


def test_an_activated_environment_is_kept_and_pytest_is_read_in_it(box: Sandbox) -> None:
    activate = f'PATH=$PWD/env/bin:$PATH\npython() {{ {PYTHON} "$@"; }}\n'
    files = {"env/activate": activate, "tests/test_a.py": "def test_one():\n    assert 1 == 2\n"}
    seed(box, files, {"test": ". env/activate && python -m pytest -q"})
    code, found = dry(box)
    assert code == 1 and counts(found) == {"pytest": 1}
    assert found["failures"][0]["failures"][0]["id"] == "tests/test_a.py::test_one"


@node
def test_a_script_of_package_json_is_measured_by_its_exit_code(box: Sandbox) -> None:
    scripts = {"test": "node --test", "lint": "eslint .", "prelint": "false"}
    test = "require('node:test')('adds', () => { throw new Error('odd'); });\n"
    seed(box, {"package.json": json.dumps({"name": "a", "scripts": scripts}), "a.test.js": test}, {})
    code, found = dry(box, "--command", "npm test", "--command", "npm run lint")
    assert code == 1 and counts(found) == {"npm test": 1, "npm run lint": 1}


def test_no_agent_is_started_where_a_program_is_missing(box: Sandbox) -> None:
    seed(box, {"test_a.py": TESTS}, {"test": UNITTEST, "lint": "no-such-linter ."})
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and not box.sessions(), done.stdout
    assert "environment not set up: " in done.stdout and "Set postCreate, for example:" in done.stdout
    assert "ao init --check" in done.stdout
    [run] = box.json("fix", "--list")["fixes"]
    assert run["state"] == "not_set_up"


@pytest.mark.parametrize("command", [UNITTEST, f"{PYTHON} -m pytest -q"], ids=["unittest", "pytest"])
def test_no_agent_is_started_where_a_module_is_missing_for_some_tests(box: Sandbox, command: str) -> None:
    seed(box, {"test_a.py": TESTS, "test_b.py": f"import no_such_module\n{TESTS}"}, {"test": command})
    done = box.ao("fix", check=False)
    assert done.returncode == 1 and not box.sessions(), done.stdout
    assert "environment not set up: module no_such_module not found. Set postCreate, for example:" in done.stdout
    code, found = dry(box)
    assert (code, found["state"]) == (1, "not_set_up")


def test_the_hint_repeats_what_was_given(box: Sandbox) -> None:
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
    shown = box.ao("fix", "--dry-run", *argv, check=False)
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("Fix them: ")]
    assert sorted(shlex.split(line.removeprefix("Fix them: "))) == sorted(["ao", "fix", *argv])
    shown = box.ao("fix", "F1", check=False)
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("Fix them: ")]
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
    assert dry(box, "--agent", "codex")[1]["before"] == 1, "to measure needs no agent"
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
MEND_ADD = "sed -i.old 's/a - b/a + b/' calc.py; rm calc.py.old"
MEND_BOTH = "sed -i.old 's/a - b/a + b/; s/a + a + a/a + a/' calc.py; rm calc.py.old"


def ended(box: Sandbox) -> Json:
    """The run, once it is over, by `ao fix`."""
    done = box.ao("fix", check=False)
    [run] = box.json("fix", "--list")["fixes"]
    assert run["ended"], done.stdout + done.stderr
    return run  # type: ignore[no-any-return]


def test_a_fix_that_breaks_another_check_is_not_merged(box: Sandbox) -> None:
    files = {**CALC, "test_calc.py": CALC_TESTS["test_calc.py"], "check.sh": "test -e kept || exit 5\n", "kept": ""}
    seed(box, files, {"test": UNITTEST, "odd": "sh check.sh"}, f"{MEND_ADD}; rm kept")
    before = box.git("rev-parse", "main")
    run = ended(box)
    assert run["state"] == "left" and box.git("rev-parse", "main") == before, run
    assert {group["outcome"] for each in run["rounds"] for group in each["groups"]} <= {"failed", None}


def test_a_fix_of_nothing_is_not_merged_on_a_red_base(box: Sandbox) -> None:
    seed(box, {**CALC, **CALC_TESTS}, {"test": UNITTEST}, "echo '# odd' >> calc.py")
    before = box.git("rev-parse", "main")
    run = ended(box)
    assert run["state"] == "left" and box.git("rev-parse", "main") == before, run


def test_a_set_up_that_fails_merges_nothing(box: Sandbox) -> None:
    """Between measurement and merge the environment goes: the check has no verdict then."""
    gone = shlex.quote(str(box.folder / "gone"))
    check = f"if test -e {gone}; then no-such-program; else {UNITTEST}; fi"
    seed(box, {**CALC, "test_calc.py": CALC_TESTS["test_calc.py"]}, {"test": check}, f"{MEND_ADD}; touch {gone}")
    before = box.git("rev-parse", "main")
    run = ended(box)
    assert run["state"] != "green" and box.git("rev-parse", "main") == before, run


def test_where_known_failures_hold_merges_one_agent_gets_everything(box: Sandbox) -> None:
    seed(
        box,
        {**CALC, **CALC_TESTS},
        {"add": f"{UNITTEST} test_calc", "twice": f"{UNITTEST} test_twice"},
        MEND_BOTH,
        redBase="forbid",
    )
    run = ended(box)
    assert run["state"] == "green" and run["before"] == 2, run
    [group] = run["rounds"][0]["groups"]
    assert group["outcome"] == "landed" and group["title"] == "2 failures, 2 causes"
