"""What a session comes after ends without landing: it waits, says so, and a person is asked once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import Json, wait_for_checks, wait_for_session, wait_for_status

CONFIG = """
defaults: {agent: demo, runtime: process}
ci: {command: "true"}
"""
WORK = "[[edit: {0}.txt|{0}]] [[commit: {0}]] [[done: made]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def begin(box: Sandbox, name: str, script: str, *after: str) -> None:
    body = {"name": name, "title": f"Work on {name}", "prompt": script, "after": list(after)}
    box.request("POST", "/api/sessions", body)


def told(box: Sandbox, session: str) -> list[str]:
    found = [one["data"] for one in box.events(session) if one["type"] == "notified"]
    assert {one["level"] for one in found if one["trigger"] == "dependency-ended"} <= {"action"}
    return [one["title"] for one in found if one["trigger"] == "dependency-ended"]


def asks(box: Sandbox, session: str, why: str) -> Json:
    return wait_for_session(
        box, session, lambda now: now["waitingFor"] == f"your word: {why}" and now["column"] == "Needs you", why
    )


def questions(box: Sandbox) -> list[tuple[str, str]]:
    return [(one["session"], one["context"][0]) for one in box.request("GET", "/api/questions?all=1")["questions"]]


def test_a_person_says_whether_it_goes_on(box: Sandbox) -> None:
    begin(box, "first", "[[sleep: 300]]")
    for name in ("second", "third", "fourth"):
        begin(box, name, "[[say: here]]", "first")
        wait_for_session(box, name, lambda now: now["waitingFor"] == "app-first to be done", "to wait")
    box.ao("stop", "first")
    why = "app-first was stopped without landing"
    for name in ("second", "third", "fourth"):
        assert asks(box, name, why)["status"] == "queued"
    assert questions(box)[0] == ("app-second", f"{why}; app-second comes after it and waits")
    box.stop(9)
    box.start()
    asks(box, "second", why)
    assert told(box, "app-second") == [f"app-second: {why}"], "he is asked once, whatever becomes of the daemon"
    assert f"waits for your word: {why}" in box.ao("why", "second").stdout
    assert why in box.ao("status", "second").stdout

    box.ao("answer", "second", "--allow")
    wait_for_status(box, "second", "idle")
    box.ao("answer", "third", "--deny")
    wait_for_status(box, "third", "stopped")

    box.ao("restore", "first")
    wait_for_session(
        box,
        "fourth",
        lambda now: (now["waitingFor"], now["column"]) == ("app-first to be done", "Working"),
        "to wait again, and nobody to be asked",
    )
    assert questions(box) == []
    box.ao("stop", "first")
    asks(box, "fourth", why)
    assert len(told(box, "app-fourth")) == 2, "that is another end"


def test_all_goes_on_by_itself_once_it_has_landed(box: Sandbox) -> None:
    begin(box, "first", WORK.format("first"))
    begin(box, "second", "[[say: here]]", "first")
    wait_for_checks(box, "first")
    box.request("POST", "/api/sessions/first/close")
    asks(box, "second", "the pull request of app-first was closed")
    begin(box, "other", WORK.format("other"))
    begin(box, "later", "[[say: here]]", "other")
    wait_for_checks(box, "other")
    box.ao("stop", "other")
    asks(box, "later", "app-other was stopped without landing")
    box.ao("restore", "other")
    wait_for_session(box, "later", lambda now: now["waitingFor"] == "app-other to be done", "to wait")
    wait_for_checks(box, "other")
    box.ao("merge", "other")
    wait_for_status(box, "later", "idle")
    assert [one[0] for one in questions(box) if one[0] == "app-later"] == []


def test_one_that_fails_is_not_done_and_one_without_a_change_is(box: Sandbox) -> None:
    begin(box, "bad", "[[exit: 3]]")
    begin(box, "after-bad", "[[say: here]]", "bad")
    begin(box, "good", "[[exit: 0]]")
    begin(box, "after-good", "[[say: here]]", "good")
    asks(box, "after-bad", "app-bad failed")
    wait_for_status(box, "after-good", "idle")


def test_issues_behind_an_attempt_that_ended_are_told_of(box: Sandbox) -> None:
    box.ao("issue", "new", "First", "-m", "[[sleep: 300]]")
    box.ao("issue", "new", "Second", "--after", "1")
    box.ao("new", "1")
    box.ao("stop", "first")
    title = "app-first: issue 2 waits for issue 1"
    box.until(lambda: told(box, "app-first") == [title], "the person to be told")
    [second] = [one for one in box.json("backlog")["entries"] if one["issue"] == 2]
    assert second["reasons"] == ["issue 1 is open: app-first was stopped without landing"]
    box.ao("issue", "close", "1")
    box.until(lambda: next(one for one in box.json("backlog")["entries"])["ready"], "a person's word to count")
