"""A change on the local forge: issue, pull request, checks, review, merge and revert, by command line and HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
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
    wait_for_turns,
)

CONFIG = """
defaults: {agent: demo, runtime: process}
ci: {command: "echo looking; test ! -e broken.txt || { echo 'error [[say: seen]]'; exit 1; }"}
"""


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a repository with a check, and its daemon."""
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=CONFIG)
        box.start()
        yield box


def test_an_issue_becomes_a_merged_change(forge: Sandbox) -> None:
    script = "[[write: a.txt|one]] [[commit: add a]] [[wait]] [[done: added]]"
    number = forge.json("issue", "new", "Add a file", "-m", script, "--label", "files")["number"]
    forge.json("issue", "comment", str(number), "-m", "Call it a.txt")
    later = forge.json("issue", "new", "Use the file", "--after", f"#{number}", "-m", "[[done: nothing]]")["number"]
    created = forge.json("new", f"#{number}")
    session = created["id"]
    assert (session, created["branch"], created["title"]) == ("app-add-a-file", f"feature/issue-{number}", "Add a file")
    task = (forge.home.path / "sessions" / session / "task.md").read_text()
    assert "> [[write: a.txt|one]]" in task and "> Call it a.txt" in task
    waiting = forge.json("new", str(later))
    assert (waiting["status"], waiting["waitingFor"]) == ("queued", f"issue {number} to be closed")
    assert_refused(forge.ao("new", "77", check=False), 3, "no issue 77", "ao issues")

    draft = wait_for_status(forge, session, "pr_open")
    assert draft["pr"]["state"] == "draft" and draft["pr"]["checks"] == []
    forge.ao("send", session, "go on")
    wait_for_checks(forge, session)
    ready = wait_for_session(
        forge, session, lambda now: now["pr"]["mergeable"] != "unknown", "the comparison with the base"
    )
    assert (ready["pr"]["state"], ready["pr"]["review"], ready["pr"]["mergeable"]) == ("open", "pending", "yes")
    assert [check["state"] for check in ready["pr"]["checks"]] == ["success"]
    assert "looking" in forge.ao("checks", session, "--log", "default").stdout
    assert forge.json("issue", "show", str(number))["assignee"] == session
    table = forge.ao("status").stdout
    assert "green" in table and f"ao review {session}" in table

    forge.ao(
        "review",
        session,
        "--comment",
        "a.txt:1:Why one? [[reply: {comment}|Because]] [[write: a.txt|two]] [[commit: two]]",
    )
    wait_for_session(forge, session, lambda now: now["head"] != ready["head"], "a commit")
    thread = forge.wait_until(
        lambda: [item for item in forge.json("review", session)["threads"] if len(item["comments"]) == 2],
        "a reply",
        TIMEOUT,
    )[0]
    assert (thread["path"], thread["line"]) == ("a.txt", 1)
    assert [(item["byAgent"], item["body"][:8]) for item in thread["comments"]] == [
        (False, "Why one?"),
        (True, "Because"),
    ]
    assert "Because" in forge.ao("review", session).stdout and "a.txt | 1 +" in forge.ao("review", session).stdout

    wait_for_session(forge, session, lambda now: now["status"] == "review_pending", "its checks")
    assert forge.json("review", session, "--approve", "-m", "Fine")["review"] == "approved"
    wait_for_status(forge, session, "mergeable")
    assert "ao merge app-add-a-file" in forge.ao("status").stdout
    merged = forge.json("merge", session)
    assert (merged["status"], merged["column"], merged["pr"]["state"]) == ("merged", "Done", "merged")
    assert (forge.repo / "a.txt").read_text() == "two\n"
    assert forge.git("log", "-1", "--format=%s%n%b", "main").startswith("Add a file (#3)\nCloses #1")
    assert forge.git("status", "--porcelain") == "?? agent-orchestrator.yaml"
    assert forge.json("issue", "show", str(number))["state"] == "closed"
    wait_for_session(forge, session, lambda now: now["workspacePath"] is None, "its clean-up")
    assert forge.git("branch", "--list", created["branch"]) == ""
    assert forge.json("merge", session)["status"] == "merged"
    assert_refused(forge.ao("new", str(number), check=False), 1, "is closed", "ao issue reopen")
    wait_for_session(forge, waiting["id"], lambda now: now["status"] != "queued", "its turn")


def test_one_review_is_one_message_with_all_comments(forge: Sandbox) -> None:
    create_session(forge, "one", "[[write: a.txt|x]] [[commit: add a]] [[done: added]]")
    wait_for_status(forge, "one", "review_pending")
    forge.ao(
        "review", "one", "--request-changes", "-m", "Not yet [[say: hm]]", "--comment", "a.txt:1:First", "--comment", "a.txt:2:Second"
    )  # fmt: skip
    [text] = forge.wait_until(lambda: rule_messages(forge, "one"), "the message", TIMEOUT)
    assert all(expected in text for expected in ("> Not yet", "a.txt:1", "> First", "a.txt:2", "> Second"))
    assert forge.session("one")["pr"]["review"] == "changes_requested"
    forge.ao("send", "one", "[[write: a.txt|y]] [[commit: better]]")
    wait_for_status(forge, "one", "review_pending")
    assert len(rule_messages(forge, "one")) == 1 and forge.session("one")["pr"]["review"] == "pending"
    assert_refused(forge.ao("review", "one", "--request-changes", check=False), 2, "nothing is said")
    assert_refused(forge.ao("review", "one", "--comment", "a.txt:x", check=False), 2, "FILE:LINE:TEXT")
    body = {"verdict": "comment", "comments": [{"body": "x", "thread": "c-none"}]}
    with pytest.raises(NotFound, match="c-none"):
        forge.request("POST", "/api/sessions/one/review", body)
    with pytest.raises(UsageError):
        forge.request("POST", "/api/sessions/one/review", {"verdict": "maybe"})


def test_a_resolved_thread_is_not_sent_again(forge: Sandbox) -> None:
    create_session(forge, "talk", "[[write: a.txt|x]] [[commit: add a]] [[done: added]]")
    wait_for_status(forge, "talk", "review_pending")
    forge.ao("review", "talk", "--comment", "a.txt:1:First [[reply: {comment}|Because]]")
    [first] = forge.wait_until(
        lambda: [thread for thread in forge.json("review", "talk")["threads"] if len(thread["comments"]) == 2],
        "a reply",
        TIMEOUT,
    )
    assert not first["resolved"]
    resolved = forge.ao("review", "talk", "--resolve", first["comments"][1]["id"])
    assert resolved.stdout.splitlines()[0] == f"app-talk #{forge.session('talk')['pr']['number']}: resolved"
    assert f"({first['id']}, resolved)" in forge.ao("review", "talk").stdout
    forge.ao("review", "talk", "--comment", "a.txt:1:Second [[progress: 1/1 read]]")
    forge.wait_until(lambda: len(rule_messages(forge, "talk")) == 2, "the second comment", TIMEOUT)
    assert "Second" in rule_messages(forge, "talk")[1] and "First" not in rule_messages(forge, "talk")[1]
    forge.request(
        "POST",
        "/api/sessions/talk/review",
        {"comments": [{"body": "Still? [[progress: 1/1 read]]", "thread": first["id"]}]},
    )
    wait_for_turns(forge, "talk", 3)
    assert [thread["resolved"] for thread in forge.json("review", "talk")["threads"]] == [False, False]
    assert all(thread["resolved"] for thread in forge.json("review", "talk", "--resolve", "all")["threads"])

    assert_refused(
        forge.ao("review", "talk", "--resolve", "c-none", check=False), 3, "no discussion c-none", "ao review"
    )
    assert_refused(forge.ao("review", "talk", "--request", "rev", check=False), 1, "nobody else sees it", "--agent A")
    assert_refused(
        forge.ao("review", "talk", "--agent", "demo", "--resolve", "all", check=False), 2, "--agent judges itself"
    )
    token = forge.request("GET", "/api/sessions/talk/environment")["env"]["AO_TOKEN"]
    with pytest.raises(AoError, match="for people"):
        forge.request("POST", "/api/sessions/talk/resolve", {"all": True}, **{"X-AO-Token": token})
    with pytest.raises(UsageError, match="threads, or all"):
        forge.request("POST", "/api/sessions/talk/resolve", {})
    wait_for_session(forge, "talk", lambda now: now["status"] == "review_pending", "its checks")
    forge.ao("review", "talk", "--approve")
    forge.ao("merge", "talk")
    assert_refused(forge.ao("review", "talk", "--resolve", "all", check=False), 1, "is merged")


def test_a_change_with_failing_checks_is_merged_only_with_force(forge: Sandbox) -> None:
    create_session(forge, "red", "[[write: broken.txt|x]] [[commit: break it]] [[done: broken]]")
    wait_for_status(forge, "red", "ci_failed", "working")
    forge.wait_until(lambda: "seen" in forge.ao("logs", "red").stdout, "the message to the agent", TIMEOUT)
    red = wait_for_session(
        forge, "red", lambda now: (now["status"], now["activity"]) == ("ci_failed", "idle"), "its turn's end"
    )
    assert red["attempts"] == {"ci-failed": 1}
    assert [text for text in rule_messages(forge, "red") if "checks fail" in text]
    failing = forge.json("review", "red")["failing"]
    assert [check["name"] for check in failing] == ["default"]
    assert "red: default" in forge.ao("status").stdout
    assert_refused(forge.ao("merge", "red", check=False), 1, "is red: default", "--force")
    with pytest.raises(Conflict):
        forge.request("POST", "/api/sessions/red/merge", {"wait": True})
    assert forge.json("merge", "red", "--force", "--strategy", "merge")["status"] == "merged"
    [request] = [event["data"] for event in forge.events("red") if event["type"] == "merge-requested"]
    assert request == {"strategy": "merge", "force": True}


def test_a_conflict_is_refused_and_sent_to_the_agent(forge: Sandbox) -> None:
    create_session(forge, "a", "[[write: same.txt|a]] [[commit: a]] [[done: a]]")
    create_session(forge, "b", "[[write: same.txt|b]] [[commit: b]] [[done: b]]")
    for name in ("a", "b"):
        wait_for_status(forge, name, "review_pending")
    forge.ao("merge", "a")
    wait_for_status(forge, "b", "conflicted", "working")
    wait_for_session(
        forge, "b", lambda now: now["pr"]["mergeable"] == "no" and now["activity"] == "idle", "the conflict"
    )
    forge.wait_until(
        lambda: "same.txt" in assert_refused(forge.ao("merge", "b", check=False), 1), "the refusal", TIMEOUT
    )
    forge.wait_until(
        lambda: any("same.txt" in text for text in rule_messages(forge, "b")), "the message to the agent", TIMEOUT
    )
    assert (forge.repo / "same.txt").read_text() == "a\n"


def test_the_agent_of_a_clone_is_sent_a_rebase_command_that_fetches_the_base(forge: Sandbox) -> None:
    """A clone has no branch of that name and no commits that were merged since it was made."""
    create_session(forge, "a", "[[write: same.txt|a]] [[commit: a]] [[done: a]]")
    script = "[[write: same.txt|b]] [[commit: b]] [[done: b]]"
    forge.request("POST", "/api/sessions", {"name": "b", "title": "b", "prompt": script, "workspace": "clone"})
    for name in ("a", "b"):
        wait_for_status(forge, name, "review_pending")
    forge.ao("merge", "a")
    conflict_messages = forge.wait_until(
        lambda: [text for text in rule_messages(forge, "b") if "same.txt" in text], "the conflict", TIMEOUT
    )
    command = f"git fetch {forge.repo} main && git rebase FETCH_HEAD"
    assert command in conflict_messages[0]
    result = subprocess.run(
        command, shell=True, cwd=forge.session("b")["workspacePath"], env=forge.env, capture_output=True, text=True
    )
    assert result.returncode and "same.txt" in result.stdout


def test_a_merge_waits_for_a_blocked_checkout_and_shows_in_the_queue(forge: Sandbox) -> None:
    create_session(forge, "w", "[[write: w.txt|agent]] [[commit: w]] [[done: w]]")
    wait_for_status(forge, "w", "review_pending")
    (forge.repo / "w.txt").write_text("person\n")
    requested = forge.request("POST", "/api/sessions/w/merge", {}, **{"Idempotency-Key": "k"})
    assert requested["status"] == "merging"
    [entry] = forge.wait_until(
        lambda: [waiting for waiting in forge.json("queue")["entries"] if waiting["state"] == "waiting"],
        "it waits",
        TIMEOUT,
    )
    assert (entry["session"], entry["position"], entry["base"]) == ("app-w", 1, "main")
    assert "w.txt" in entry["reason"] and "w.txt" in forge.ao("queue").stdout
    assert forge.json("merge", "w", "--no-wait")["status"] == "merging"
    (forge.repo / "w.txt").unlink()
    again = forge.request("POST", "/api/sessions/w/merge", {"wait": True}, **{"Idempotency-Key": "k"})
    assert again["status"] == "merged" and forge.json("queue") == {"entries": []}
    assert len([event for event in forge.events("w") if event["type"] == "merge-requested"]) == 1


def test_undo_creates_a_revert_that_can_be_merged(forge: Sandbox) -> None:
    create_session(forge, "u", "[[write: u.txt|x]] [[commit: u]] [[done: u]]")
    wait_for_status(forge, "u", "review_pending")
    assert_refused(forge.ao("undo", "u", check=False), 1, "has not landed")
    forge.ao("merge", "u")
    reverted = forge.json("undo", "u")
    assert reverted["branch"] == "revert/app-u" and forge.json("undo", "u")["change"]["id"] == reverted["change"]["id"]
    change = reverted["change"]["id"]
    assert wait_for_status(forge, change, "review_pending")["pid"] is None
    assert forge.json("merge", change)["status"] == "merged"
    assert not (forge.repo / "u.txt").exists()


def test_commands_on_a_session_without_a_pull_request_are_refused(forge: Sandbox) -> None:
    create_session(forge, "none", "[[say: nothing]]")
    wait_for_session(forge, "none", lambda now: now["activity"] == "idle", "its end")
    for command in (["merge"], ["review"], ["review", "--approve"], ["checks"], ["undo"]):
        assert_refused(forge.ao(command[0], "none", *command[1:], check=False), 3, "no pull request yet")
    assert_refused(forge.ao("merge", "nobody", check=False), 3, "nobody")
    for path in ("ready", "close", "checks", "undo", "merge"):
        with pytest.raises(NotFound):
            forge.request("POST", f"/api/sessions/none/{path}")


def test_a_pull_request_is_marked_ready_checked_and_closed_by_hand(forge: Sandbox) -> None:
    create_session(forge, "r", "[[write: r.txt|x]] [[commit: r]]")
    wait_for_status(forge, "r", "pr_open")
    assert forge.request("POST", "/api/sessions/r/ready")["state"] == "open"
    wait_for_status(forge, "r", "review_pending")
    assert_refused(forge.ao("checks", "r", "--log", "lint", check=False), 3, "lint", "default")

    def finished_count() -> int:
        return len([event for event in forge.events("r") if event["type"] == "check-finished"])

    before = finished_count()
    forge.ao("checks", "r", "--run")
    forge.wait_until(lambda: finished_count() > before, "a run", TIMEOUT)
    assert forge.request("POST", "/api/sessions/r/close")["state"] == "closed"
    assert forge.session("r")["status"] == "closed"
    with pytest.raises(Conflict):
        forge.request("POST", "/api/sessions/r/review", {"verdict": "approve"})

    def closings() -> list[Json]:
        notifications = forge.request("GET", "/api/notifications")["notifications"]
        return [
            notification
            for notification in notifications
            if (notification["session"], notification["trigger"]) == ("app-r", "pr-closed")
        ]

    [notice] = forge.wait_until(closings, "a notice", TIMEOUT)
    assert set(notice) == {"id", "session", "project", "title", "message", "level", "trigger", "at"}


def test_the_local_tracker_works_over_http_and_survives_a_restart(forge: Sandbox) -> None:
    key = {"Idempotency-Key": "same"}
    created = forge.request("POST", "/api/issues", {"title": "One", "labels": ["a/b"]}, **key)
    assert forge.request("POST", "/api/issues", {"title": "One"}, **key) == created
    second = forge.request("POST", "/api/issues", {"title": "Two", "after": [created["number"]]})
    forge.request("POST", "/api/issues/1/comments", {"body": "hm"})
    forge.request("POST", "/api/issues/1/labels", {"labels": ["ui"]})
    forge.request("DELETE", "/api/issues/1/labels/a%2Fb")
    forge.request("PATCH", "/api/issues/1", {"assignee": "ann", "body": "text"})
    with pytest.raises(UsageError):
        forge.request("PATCH", "/api/issues/1", {"state": "gone"})
    with pytest.raises(NotFound):
        forge.request("GET", "/api/issues/9")
    before = forge.request("GET", "/api/issues?state=all")
    assert [issue["number"] for issue in before["issues"]] == [1, 2]
    issue = before["issues"][0]
    assert (issue["labels"], issue["assignee"], issue["body"], len(issue["comments"])) == (["ui"], "ann", "text", 1)
    forge.stop()
    forge.start()
    assert forge.request("GET", "/api/issues?state=all") == before
    assert forge.request("PATCH", "/api/issues/1", {"assignee": None})["assignee"] is None
    assert [issue["number"] for issue in forge.request("GET", "/api/issues?label=ui")["issues"]] == [1]
    assert "issue 1 to be closed" in forge.ao("issues", "--next").stdout
    forge.ao("issue", "close", "1")
    assert [issue["number"] for issue in forge.json("issues")["issues"]] == [second["number"]]
    assert json.loads(forge.ao("-p", "app", "issue", "reopen", "1", "--json").stdout)["state"] == "open"
    forge.ao("issue", "label", "2", "x", "y")
    assert forge.json("issue", "label", "2", "x", "--remove")["labels"] == ["y"]
    assert forge.json("issue", "assign", "2", "bob")["assignee"] == "bob"
    assert_refused(forge.ao("issue", "show", "9", check=False), 3, "no issue 9")
    assert_refused(forge.ao("issue", "show", "nine", check=False), 2, "nine")
    with pytest.raises(AoError):
        forge.request("POST", "/api/issues", {"title": "x", "unknown": 1})
