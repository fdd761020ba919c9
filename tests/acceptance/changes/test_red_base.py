"""Failures that the base branch has too are distinguished from new ones, test by test; an unknown result blocks the merge."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import (
    TIMEOUT,
    Json,
    create_session,
    rule_messages,
    wait_for_checks,
    wait_for_session,
    wait_for_status,
)

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:unraisableexception -p no:threadexception"
TEST_A = "def test_a():\n    from sums import add\n    assert add(1, 1) == 3\n"
TEST_B = "def test_b():\n    from sums import add\n    assert add(2, 2) == 4\n"
TEST_C = "def test_c():\n    assert True\n"
CI_RULE = "  ci-failed: {retries: 1, backoff: 1s..1s}\n"


def config(command: str, more: str = "", reactions: str = "") -> str:
    return f"defaults: {{agent: demo, runtime: process}}\nci: {{command: {json.dumps(command)}}}\n{more}reactions:\n{CI_RULE}{reactions}"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a daemon and a repository whose test_a fails on main."""
    # Its checks run this interpreter's pytest, which loads five plugins more than a project's own would have.
    with Sandbox(tmp_path, "process", {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}) as sandbox:
        sandbox.repository(config="defaults: {agent: demo, runtime: process}\n")
        for name, text in {
            "sums.py": "def add(a, b):\n    return a + b\n",
            "test_a.py": TEST_A,
            "test_b.py": TEST_B,
            "test_c.py": TEST_C,
        }.items():
            (sandbox.repo / name).write_text(text)
        sandbox.git("add", "*.py")
        sandbox.git("commit", "-q", "-m", "tests, one of them red")
        configure(sandbox, PYTEST)
        sandbox.start()
        yield sandbox


def configure(box: Sandbox, command: str, more: str = "", reactions: str = "") -> None:
    (box.repo / "agent-orchestrator.yaml").write_text(config(command, more, reactions))


def create_change(box: Sandbox, name: str, path: str, text: str, *, task: str = "") -> None:
    """Create a session that writes a file, commits it and reports that it is done."""
    script = f"{task} [[write: {path}|{text}]] [[commit: {name}]] [[done: {name}]] [[wait]] [[say: seen]]"
    create_session(box, name, script)


def wait_for_check(box: Sandbox, session: str, *states: str) -> Json:
    """Wait until the session's only check has one of these states, and return it."""
    now = wait_for_session(
        box, session, lambda now: now["pr"] and [c for c in now["pr"]["checks"] if c["state"] in states], "its check"
    )
    return dict(now["pr"]["checks"][0])


BREAKS_B = "def add(a, b):\\n    return a + b + (a == 2)\\n"
REPAIRS_A = "def test_a():\\n    from sums import add\\n    assert add(1, 1) == 2\\n"


@pytest.mark.parametrize("command", [PYTEST, f"env -u PYTEST_ADDOPTS {PYTEST}"], ids=["report", "output"])
def test_a_new_failure_on_a_red_base_is_sent_to_the_agent_and_blocks_the_merge(box: Sandbox, command: str) -> None:
    configure(box, command, reactions="  approved-and-green: {auto: true}\n")
    create_change(box, "breaks", "sums.py", BREAKS_B)
    check = wait_for_check(box, "breaks", "failure")
    assert (check["new"], check["known"], check["onBase"]) == (1, 1, False)
    [text] = box.wait_until(lambda: rule_messages(box, "breaks"), "the message to the agent", TIMEOUT)
    assert "1 new failure:\n" in text and "test_b.py::test_b" in text
    assert "also fails on main: test_a.py::test_a" in text
    assert "1 new, 1 known" in box.session("breaks")["why"]
    assert_refused(box.ao("merge", "breaks", check=False), 1, "is red: default", "--force")
    box.request("POST", "/api/sessions/breaks/review", {"verdict": "approved"})
    wait_for_session(box, "breaks", lambda now: now["pr"]["review"] == "approved", "the approval")
    assert_refused(box.ao("merge", "breaks", check=False), 1, "is red: default")
    create_change(box, "harmless", "notes.txt", "x")
    wait_for_check(box, "harmless", "failure")
    box.request("POST", "/api/sessions/harmless/review", {"verdict": "approved"})
    wait_for_status(box, "harmless", "merged")
    assert box.session("breaks")["pr"]["state"] == "open", "approved too, and not merged"
    table = box.ao("checks", "breaks").stdout
    assert "1 new, 1 known on main" in table and "test_b.py::test_b" in table and "test_a.py::test_a" in table
    assert "2 failed" in table and "1 passed" in table


def test_a_known_failure_blocks_the_merge_only_if_the_project_forbids_it(box: Sandbox) -> None:
    create_change(box, "harmless", "notes.txt", "x")
    check = wait_for_check(box, "harmless", "failure")
    assert (check["new"], check["known"], check["onBase"]) == (0, 1, True)
    assert rule_messages(box, "harmless") == []
    configure(box, PYTEST, "redBase: forbid\n")
    box.ao("checks", "harmless", "--run")
    wait_for_session(box, "harmless", lambda now: now["status"] == "ci_failed", "the rule")
    assert "redBase is forbid" in box.session("harmless")["why"]
    assert_refused(box.ao("merge", "harmless", check=False), 1, "redBase is forbid", "--force")
    assert rule_messages(box, "harmless") == []
    configure(box, PYTEST)
    box.ao("checks", "harmless", "--run")
    wait_for_status(box, "harmless", "review_pending")
    assert box.json("merge", "harmless")["status"] == "merged"


@pytest.mark.parametrize("task", ["Repair test_a.", "Make the tests on main green."])
def test_a_task_about_a_known_failure_is_not_merged_until_it_is_fixed(box: Sandbox, task: str) -> None:
    create_change(box, "repair", "notes.txt", "x", task=task)
    wait_for_check(box, "repair", "failure")
    [text] = box.wait_until(lambda: rule_messages(box, "repair"), "the message to the agent", TIMEOUT)
    assert "1 failure on main to fix:\n" in text and "test_a.py::test_a" in text
    assert_refused(box.ao("merge", "repair", check=False), 1, "is red: default")
    box.ao("send", "repair", f"[[write: test_a.py|{REPAIRS_A}]] [[commit: repaired]] [[done: repaired]]")
    wait_for_checks(box, "repair")
    assert box.json("merge", "repair")["status"] == "merged"


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("test_c.py", "", "test_c.py::test_c"),
        ("test_c.py", "def test_d():\\n    assert True\\n", "test_c.py::test_c"),
        (
            "test_c.py",
            "import pytest\\n@pytest.mark.skip\\ndef test_c():\\n    assert True\\n",
            "test_c.py::test_c (skipped)",
        ),
    ],
)
def test_a_test_that_no_longer_runs_blocks_the_merge_until_a_person_approves(
    box: Sandbox, path: str, text: str, reason: str
) -> None:
    (box.repo / "test_a.py").write_text(TEST_A.replace("3", "2"))
    box.git("commit", "-qam", "green")
    create_change(box, "drops", path, text)
    check = wait_for_check(box, "drops", "success")
    assert check["reason"] == reason
    assert reason in wait_for_status(box, "drops", "review_pending")["why"]
    assert_refused(box.ao("merge", "drops", check=False), 1, reason, "ao review app-drops --approve")
    assert rule_messages(box, "drops") == []
    box.ao("review", "drops", "--approve")
    assert box.json("merge", "drops")["status"] == "merged"


def test_tests_that_are_no_longer_named_block_the_merge_even_if_the_number_is_the_same(box: Sandbox) -> None:
    (box.repo / "test_a.py").write_text(TEST_A.replace("== 3", "== 2"))
    box.git("commit", "-qam", "test_a passes")
    quiet = "[pytest]\\naddopts = -p no:junitxml --deselect test_b.py::test_b\\n"
    fillers = "def test_d():\\n    pass\\ndef test_e():\\n    pass\\n"
    script = f"[[write: pytest.ini|{quiet}]] [[write: test_d.py|{fillers}]] [[write: sums.py|{BREAKS_B}]]"
    create_session(box, "hides", f"{script} [[commit: hides]] [[done: hides]] [[wait]]")
    wait_for_check(box, "hides", "success")
    assert_refused(box.ao("merge", "hides", check=False), 1, "test_b.py::test_b", "--approve")


def test_a_suite_without_a_passing_test_here_or_on_main_is_not_set_up(box: Sandbox) -> None:
    broken = "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): raise ValueError('settings are not configured')\n"
    (box.repo / "suite.py").write_text(f"{broken}    def test_x(self): pass\n    def test_y(self): pass\n")
    box.git("add", "suite.py")
    box.git("commit", "-qm", "a suite that cannot be set up")
    configure(box, f"{sys.executable} -m unittest suite")
    create_change(box, "breaks", "sums.py", BREAKS_B)
    check = wait_for_check(box, "breaks", "not_set_up")
    assert "no test passes, here or on main" in check["reason"] and "settings are not configured" in check["reason"]
    assert_refused(box.ao("merge", "breaks", check=False), 1, "not set up", "--force")


def test_a_change_that_stops_the_tests_is_named_as_the_cause(box: Sandbox) -> None:
    configure(box, f"{PYTEST} || test $? = 1")
    create_change(box, "stops", "conftest.py", "import os\\ndef pytest_sessionstart():\\n    os._exit(0)\\n")
    wait_for_status(box, "stops", "not_set_up")
    assert "The tests run on main, so this change stops them" in box.session("stops")["why"]
    assert_refused(box.ao("merge", "stops", check=False), 1, "not set up", "--force")


def test_a_check_without_its_environment_has_no_result_and_blocks_the_merge(box: Sandbox) -> None:
    configure(box, "python3 -m no_such_runner")
    for name in ("one", "two"):
        create_change(box, name, f"{name}.txt", name)
    for name in ("one", "two"):
        now = wait_for_status(box, name, "not_set_up")
        assert now["column"] == "Needs you"
        assert "environment not set up: module no_such_runner not found" in now["why"] and "postCreate" in now["why"]
        check = wait_for_check(box, name, "not_set_up")
        assert check["reason"] == "module no_such_runner not found"
        assert rule_messages(box, name) == []
        assert_refused(box.ao("merge", name, check=False), 1, "environment not set up", "--force")
    box.request("POST", "/api/sessions/one/review", {"verdict": "approved"})
    assert box.session("one")["status"] == "not_set_up"
    notices = [
        notice
        for notice in box.request("GET", "/api/notifications")["notifications"]
        if "not_set_up" in notice["title"]
    ]
    assert len(notices) == 1 and notices[0]["level"] == "action", "once per project and cause"
    assert box.json("merge", "one", "--force")["status"] == "merged"


def test_a_module_missing_only_in_the_change_counts_as_a_new_failure(box: Sandbox) -> None:
    create_change(box, "imports", "sums.py", "import no_such_module\\n")
    check = wait_for_check(box, "imports", "failure")
    assert check["new"] >= 1
    [text] = box.wait_until(lambda: rule_messages(box, "imports"), "the message to the agent", TIMEOUT)
    assert "no_such_module" in text


@pytest.mark.parametrize("ending", ["echo something is wrong; exit 1", "echo nothing to do"])
def test_tests_that_no_longer_run_are_neither_known_failures_nor_passes(box: Sandbox, ending: str) -> None:
    (box.repo / "test_a.py").write_text(TEST_A.replace("3", "2"))
    box.git("commit", "-qam", "green")
    gate = box.folder / "broken"
    configure(box, f"test ! -e {gate} && {PYTEST} || {{ {ending}; }}")
    create_change(box, "first", "first.txt", "x")
    wait_for_checks(box, "first")
    gate.touch()
    box.git("commit", "-q", "--allow-empty", "-m", "x")
    create_change(box, "second", "second.txt", "x")
    assert "no test was executed" in wait_for_status(box, "second", "not_set_up")["why"]
    assert_refused(box.ao("merge", "second", check=False), 1, "environment not set up")


def test_a_runner_without_tests_on_either_side_is_not_a_known_failure(box: Sandbox) -> None:
    configure(box, f"test -e gone && {PYTEST}")
    create_change(box, "other", "other.txt", "x")
    now = wait_for_status(box, "other", "not_set_up")
    assert "no test was run, here or on main" in now["why"]
    assert_refused(box.ao("merge", "other", check=False), 1, "environment not set up", "--force")


def test_a_known_failure_that_prevents_all_tests_needs_an_approval(box: Sandbox) -> None:
    lint = "if test -e lint.txt; then echo 'sums.py:1:1: E501 line too long'; exit 1; fi"
    (box.repo / "lint.txt").touch()
    box.git("add", "lint.txt")
    box.git("commit", "-qm", "lint is red")
    configure(box, f"{{ {lint}; }} && {PYTEST}")
    create_change(box, "other", "other.txt", "x")
    check = wait_for_check(box, "other", "failure")
    assert (check["new"], check["known"], check["reason"]) == (0, 1, "no test was run, here or on main")
    assert_refused(box.ao("merge", "other", check=False), 1, "fails before its tests", "ao review app-other --approve")
    assert rule_messages(box, "other") == []
    box.ao("review", "other", "--approve")
    assert box.json("merge", "other")["status"] == "merged"
