"""A dependency that ends without a merge: the session waits, shows the reason, and a person is asked once."""

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
SCRIPT = "[[edit: {0}.txt|{0}]] [[commit: {0}]] [[done: made]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def create_session(box: Sandbox, name: str, script: str, *after: str) -> None:
    body = {"name": name, "title": f"Work on {name}", "prompt": script, "after": list(after)}
    box.request("POST", "/api/sessions", body)


def dependency_notices(box: Sandbox, session: str) -> list[str]:
    notices = [question["data"] for question in box.events(session) if question["type"] == "notified"]
    assert {question["level"] for question in notices if question["trigger"] == "dependency-ended"} <= {"action"}
    return [question["title"] for question in notices if question["trigger"] == "dependency-ended"]


def wait_for_question(box: Sandbox, session: str, why: str) -> Json:
    return wait_for_session(
        box, session, lambda now: now["waitingFor"] == f"your word: {why}" and now["column"] == "Needs you", why
    )


def questions(box: Sandbox) -> list[tuple[str, str]]:
    return [
        (question["session"], question["context"][0])
        for question in box.request("GET", "/api/questions?all=1")["questions"]
    ]


def test_a_person_decides_whether_a_session_starts_without_its_dependency(box: Sandbox) -> None:
    create_session(box, "first", "[[sleep: 300]]")
    for name in ("second", "third", "fourth"):
        create_session(box, name, "[[say: here]]", "first")
        wait_for_session(box, name, lambda now: now["waitingFor"] == "app-first to be done", "to wait")
    box.ao("stop", "first")
    why = "app-first was stopped without landing"
    for name in ("second", "third", "fourth"):
        assert wait_for_question(box, name, why)["status"] == "queued"
    assert questions(box)[0] == ("app-second", f"{why}; app-second comes after it and waits")
    box.stop(9)
    box.start()
    wait_for_question(box, "second", why)
    assert dependency_notices(box, "app-second") == [f"app-second: {why}"], (
        "a person is asked once, even after a crash of the daemon"
    )
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
        "to wait again without a question",
    )
    assert questions(box) == []
    box.ao("stop", "first")
    wait_for_question(box, "fourth", why)
    assert len(dependency_notices(box, "app-fourth")) == 2, "a second end is asked about again"


def test_a_session_starts_once_its_dependency_is_merged(box: Sandbox) -> None:
    create_session(box, "first", SCRIPT.format("first"))
    create_session(box, "second", "[[say: here]]", "first")
    wait_for_checks(box, "first")
    box.request("POST", "/api/sessions/first/close")
    wait_for_question(box, "second", "the pull request of app-first was closed")
    create_session(box, "other", SCRIPT.format("other"))
    create_session(box, "later", "[[say: here]]", "other")
    wait_for_checks(box, "other")
    box.ao("stop", "other")
    wait_for_question(box, "later", "app-other was stopped without landing")
    box.ao("restore", "other")
    wait_for_session(box, "later", lambda now: now["waitingFor"] == "app-other to be done", "to wait")
    wait_for_checks(box, "other")
    box.ao("merge", "other")
    wait_for_status(box, "later", "idle")
    assert [question[0] for question in questions(box) if question[0] == "app-later"] == []


def test_a_failed_dependency_is_not_done_and_one_without_a_change_is(box: Sandbox) -> None:
    create_session(box, "bad", "[[exit: 3]]")
    create_session(box, "after-bad", "[[say: here]]", "bad")
    create_session(box, "good", "[[exit: 0]]")
    create_session(box, "after-good", "[[say: here]]", "good")
    wait_for_question(box, "after-bad", "app-bad failed")
    wait_for_status(box, "after-good", "idle")


def test_issues_that_depend_on_a_stopped_session_are_notified(box: Sandbox) -> None:
    box.ao("issue", "new", "First", "-m", "[[sleep: 300]]")
    box.ao("issue", "new", "Second", "--after", "1")
    box.ao("new", "1")
    box.ao("stop", "first")
    title = "app-first: issue 2 waits for issue 1"
    box.wait_until(lambda: dependency_notices(box, "app-first") == [title], "the notification")
    [second] = [entry for entry in box.json("backlog")["entries"] if entry["issue"] == 2]
    assert second["reasons"] == ["issue 1 is open: app-first was stopped without landing"]
    box.ao("issue", "close", "1")
    box.wait_until(
        lambda: next(entry for entry in box.json("backlog")["entries"])["ready"], "the closed issue to count"
    )
