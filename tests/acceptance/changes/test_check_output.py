"""The output of a check, read while it runs: by command line and HTTP, to its end and no further."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import refused
from tests.acceptance.session_states import PLENTY, checked, status, until, work

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
    """`ao …`, read line by line while it runs."""

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
        rest, said = self.process.communicate(timeout=PLENTY)
        return self.process.returncode, rest, said


def check_state(box: Sandbox, session: str, name: str, state: str) -> None:
    def so(now: dict[str, object]) -> bool:
        checks = (now["pr"] or {})["checks"] if now["pr"] else []  # type: ignore[index]
        return any((one["name"], one["state"]) == (name, state) for one in checks)

    until(box, session, so, f"{name} to be {state}")


def test_a_running_check_is_followed_to_its_end(box: Sandbox) -> None:
    work(box, "one", DONE.format("one"))
    check_state(box, "one", "test", "running")
    follower = Reader(box, "checks", "one", "-f")
    assert follower.line() == "begins"
    assert "begins" in box.ao("checks", "one", "--log", "test").stdout, "a look does not wait"
    with box.client() as client, client.stream("GET", "/api/sessions/app-one/checks/test/log?follow=1") as stream:
        assert stream.line() == "begins"
        (box.folder / "go").touch()
        assert (stream.line(), stream.line()) == ("ends", None)
    assert follower.end() == (0, "ends\n", "ao: test: success\n")
    over = box.ao("checks", "one", "--log", "test", "--follow")
    assert (over.stdout, over.stderr) == ("begins\nends\n", "ao: test: success\n")


def test_one_that_waits_is_waited_for_and_a_second_run_shows_as_such(box: Sandbox) -> None:
    work(box, "one", DONE.format("one"))
    check_state(box, "one", "test", "running")
    work(box, "bad", DONE.format("bad") + " [[wait]] [[say: I see]]")
    check_state(box, "bad", "test", "queued")
    refused(box.ao("checks", "bad", "--log", "test", check=False), 3, "no output (queued)", "-f")
    with box.client() as client, client.stream("GET", "/api/sessions/app-bad/checks/test/log?follow=1") as stream:
        (box.folder / "go").touch()
        lines = list(iter(stream.line, None))
    assert lines == ["begins", "ends", "", "… it is run once more …", "begins", "ends"]
    assert box.ao("checks", "bad", "-f").stderr == "ao: test: failure\n"


def test_run_by_hand_and_follow(box: Sandbox) -> None:
    (box.folder / "go").touch()
    work(box, "one", DONE.format("one"))
    checked(box, "one")
    (box.folder / "go").unlink()
    follower = Reader(box, "checks", "one", "--run", "--log", "test", "-f")
    assert follower.line() == "begins"
    (box.folder / "go").touch()
    assert follower.end()[:2] == (0, "ends\n")
    until(box, "one", lambda now: len(now["pr"]["checks"]) == 2, "the check that is only run by hand")
    refused(box.ao("checks", "one", "-f", check=False), 2, "2 checks", "test, lint", "--log NAME")
    refused(box.ao("checks", "one", "--log", "nope", "-f", check=False), 3, "nope", "test")
    with pytest.raises(NotFound):
        box.request("GET", "/api/sessions/app-one/checks/nope/log?follow=1")


def test_a_new_commit_ends_what_is_followed(box: Sandbox) -> None:
    work(box, "one", DONE.format("one") + " [[wait]] " + DONE.format("two"))
    check_state(box, "one", "test", "running")
    follower = Reader(box, "checks", "one", "-f")
    assert follower.line() == "begins"
    box.ao("send", "one", "go on")
    code, text, _ = follower.end()
    assert code == 0 and "ends" not in text
    (box.folder / "go").touch()
    status(box, "one", "review_pending")


def test_checks_that_only_run_by_hand_keep_nobody_from_reviewing(box: Sandbox) -> None:
    box.ao("config", "set", "ci.test.on", "manual")
    work(box, "one", DONE.format("one"))
    assert status(box, "one", "review_pending")["pr"]["checks"] == []
    box.ao("review", "one", "--approve")
    assert status(box, "one", "approved")["waitingFor"] == "ao checks --run"
    (box.folder / "go").touch()
    box.ao("checks", "one", "--run")
    status(box, "one", "mergeable")
