"""Following the output of a running check by command line and HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, create_session, wait_for_checks, wait_for_session, wait_for_status

CONFIG = """
defaults: {{agent: demo, runtime: process}}
ci:
  test: {{command: "echo begins; while test ! -e {out}/go; do sleep 0.02; done; echo ends; test ! -e bad.txt"}}
  lint: {{command: "true", on: manual}}
"""
DONE = "[[write: {0}.txt|x]] [[commit: {0}]] [[done: {0}]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(out=tmp_path))
        sandbox.start()
        yield sandbox


class Reader:
    """A running `ao` command whose output is read line by line."""

    def __init__(self, box: Sandbox, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agent_orchestrator", *argv],
            cwd=box.repo,
            env=box.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, output, errors


def wait_for_check_state(box: Sandbox, session: str, name: str, state: str) -> None:
    def has_state(now: dict[str, object]) -> bool:
        checks = (now["pr"] or {})["checks"] if now["pr"] else []  # type: ignore[index]
        return any((check["name"], check["state"]) == (name, state) for check in checks)

    wait_for_session(box, session, has_state, f"{name} to be {state}")


def test_a_running_check_is_followed_to_its_end(box: Sandbox) -> None:
    create_session(box, "one", DONE.format("one"))
    wait_for_check_state(box, "one", "test", "running")
    follower = Reader(box, "checks", "one", "-f")
    assert follower.line() == "begins"
    assert "begins" in box.ao("checks", "one", "--log", "test").stdout, "without -f it does not wait"
    with box.client() as client, client.stream("GET", "/api/sessions/app-one/checks/test/log?follow=1") as stream:
        assert stream.read_line() == "begins"
        (box.folder / "go").touch()
        assert (stream.read_line(), stream.read_line()) == ("ends", None)
    assert follower.end() == (0, "ends\n", "ao: test: success\n")
    finished = box.ao("checks", "one", "--log", "test", "--follow")
    assert (finished.stdout, finished.stderr) == ("begins\nends\n", "ao: test: success\n")


def test_following_a_queued_check_waits_for_it_and_marks_its_second_run(box: Sandbox) -> None:
    create_session(box, "one", DONE.format("one"))
    wait_for_check_state(box, "one", "test", "running")
    create_session(box, "bad", DONE.format("bad") + " [[wait]] [[say: I see]]")
    wait_for_check_state(box, "bad", "test", "queued")
    assert_refused(box.ao("checks", "bad", "--log", "test", check=False), 3, "no output (queued)", "-f")
    with box.client() as client, client.stream("GET", "/api/sessions/app-bad/checks/test/log?follow=1") as stream:
        (box.folder / "go").touch()
        lines = list(iter(stream.read_line, None))
    assert lines == ["begins", "ends", "", "… it is run once more …", "begins", "ends"]
    assert box.ao("checks", "bad", "-f").stderr == "ao: test: failure\n"


def test_a_check_that_is_run_by_hand_can_be_followed(box: Sandbox) -> None:
    (box.folder / "go").touch()
    create_session(box, "one", DONE.format("one"))
    wait_for_checks(box, "one")
    (box.folder / "go").unlink()
    follower = Reader(box, "checks", "one", "--run", "--log", "test", "-f")
    assert follower.line() == "begins"
    (box.folder / "go").touch()
    assert follower.end()[:2] == (0, "ends\n")
    wait_for_session(box, "one", lambda now: len(now["pr"]["checks"]) == 2, "the check that is only run by hand")
    assert_refused(box.ao("checks", "one", "-f", check=False), 2, "2 checks", "test, lint", "--log NAME")
    assert_refused(box.ao("checks", "one", "--log", "nope", "-f", check=False), 3, "nope", "test")
    with pytest.raises(NotFound):
        box.request("GET", "/api/sessions/app-one/checks/nope/log?follow=1")


def test_a_new_commit_ends_following_the_previous_check(box: Sandbox) -> None:
    create_session(box, "one", DONE.format("one") + " [[wait]] " + DONE.format("two"))
    wait_for_check_state(box, "one", "test", "running")
    follower = Reader(box, "checks", "one", "-f")
    assert follower.line() == "begins"
    box.ao("send", "one", "go on")
    code, text, _ = follower.end()
    assert code == 0 and "ends" not in text
    (box.folder / "go").touch()
    wait_for_status(box, "one", "review_pending")


def test_checks_that_only_run_by_hand_do_not_block_a_review(box: Sandbox) -> None:
    box.ao("config", "set", "ci.test.on", "manual")
    create_session(box, "one", DONE.format("one"))
    assert wait_for_status(box, "one", "review_pending")["pr"]["checks"] == []
    box.ao("review", "one", "--approve")
    assert wait_for_status(box, "one", "approved")["waitingFor"] == "ao checks --run"
    (box.folder / "go").touch()
    box.ao("checks", "one", "--run")
    wait_for_status(box, "one", "mergeable")
