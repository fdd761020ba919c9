"""The whole way of a change without any forge: issue, pull request, checks, review, landing, undo, by command line and HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import refused
from tests.acceptance.session_states import PLENTY, Json, checked, messages, status, turned, until, work

CONFIG = """
defaults: {agent: demo, runtime: process}
ci: {command: "echo looking; test ! -e broken.txt || { echo 'error [[say: seen]]'; exit 1; }"}
"""


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Sandbox]:
    """A repository with a check, and its daemon."""
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=CONFIG)
        box.start()
        yield box


def test_from_an_issue_to_the_base(forge: Sandbox) -> None:
    script = "[[write: a.txt|one]] [[commit: add a]] [[wait]] [[done: added]]"
    number = forge.json("issue", "new", "Add a file", "-m", script, "--label", "files")["number"]
    forge.json("issue", "comment", str(number), "-m", "Call it a.txt")
    later = forge.json("issue", "new", "Use the file", "--after", f"#{number}", "-m", "[[done: nothing]]")["number"]
    made = forge.json("new", f"#{number}")
    session = made["id"]
    assert (session, made["branch"], made["title"]) == ("app-add-a-file", f"feature/issue-{number}", "Add a file")
    task = (forge.home.path / "sessions" / session / "task.md").read_text()
    assert "> [[write: a.txt|one]]" in task and "> Call it a.txt" in task
    waits = forge.json("new", str(later))
    assert (waits["status"], waits["waitingFor"]) == ("queued", f"issue {number} to be closed")
    refused(forge.ao("new", "77", check=False), 3, "no issue 77", "ao issues")

    draft = status(forge, session, "pr_open")
    assert draft["pr"]["state"] == "draft" and draft["pr"]["checks"] == []
    forge.ao("send", session, "go on")
    checked(forge, session)
    ready = until(forge, session, lambda now: now["pr"]["mergeable"] != "unknown", "a look at the base")
    assert (ready["pr"]["state"], ready["pr"]["review"], ready["pr"]["mergeable"]) == ("open", "pending", "yes")
    assert [check["state"] for check in ready["pr"]["checks"]] == ["success"]
    assert "looking" in forge.ao("checks", session, "--log", "default").stdout
    assert forge.json("issue", "show", str(number))["assignee"] == session
    shown = forge.ao("status").stdout
    assert "green" in shown and f"ao review {session}" in shown

    forge.ao(
        "review",
        session,
        "--comment",
        "a.txt:1:Why one? [[reply: {comment}|Because]] [[write: a.txt|two]] [[commit: two]]",
    )
    until(forge, session, lambda now: now["head"] != ready["head"], "a commit")
    thread = forge.until(
        lambda: [one for one in forge.json("review", session)["threads"] if len(one["comments"]) == 2],
        "a reply",
        PLENTY,
    )[0]
    assert (thread["path"], thread["line"]) == ("a.txt", 1)
    assert [(one["byAgent"], one["body"][:8]) for one in thread["comments"]] == [(False, "Why one?"), (True, "Because")]
    assert "Because" in forge.ao("review", session).stdout and "a.txt | 1 +" in forge.ao("review", session).stdout

    until(forge, session, lambda now: now["status"] == "review_pending", "its checks")
    assert forge.json("review", session, "--approve", "-m", "Fine")["review"] == "approved"
    status(forge, session, "mergeable")
    assert "ao merge app-add-a-file" in forge.ao("status").stdout
    landed = forge.json("merge", session)
    assert (landed["status"], landed["column"], landed["pr"]["state"]) == ("merged", "Done", "merged")
    assert (forge.repo / "a.txt").read_text() == "two\n"
    assert forge.git("log", "-1", "--format=%s%n%b", "main").startswith("Add a file (#3)\nCloses #1")
    assert forge.git("status", "--porcelain") == "?? agent-orchestrator.yaml"
    assert forge.json("issue", "show", str(number))["state"] == "closed"
    until(forge, session, lambda now: now["workspacePath"] is None, "its clean-up")
    assert forge.git("branch", "--list", made["branch"]) == ""
    assert forge.json("merge", session)["status"] == "merged"
    refused(forge.ao("new", str(number), check=False), 1, "is closed", "ao issue reopen")
    until(forge, waits["id"], lambda now: now["status"] != "queued", "its turn")


def test_one_review_is_one_message_with_all_comments(forge: Sandbox) -> None:
    work(forge, "one", "[[write: a.txt|x]] [[commit: add a]] [[done: added]]")
    status(forge, "one", "review_pending")
    forge.ao(
        "review", "one", "--request-changes", "-m", "Not yet [[say: hm]]", "--comment", "a.txt:1:First", "--comment", "a.txt:2:Second"
    )  # fmt: skip
    [text] = forge.until(lambda: messages(forge, "one"), "the message", PLENTY)
    assert all(word in text for word in ("> Not yet", "a.txt:1", "> First", "a.txt:2", "> Second"))
    assert forge.session("one")["pr"]["review"] == "changes_requested"
    forge.ao("send", "one", "[[write: a.txt|y]] [[commit: better]]")
    status(forge, "one", "review_pending")
    assert len(messages(forge, "one")) == 1 and forge.session("one")["pr"]["review"] == "pending"
    refused(forge.ao("review", "one", "--request-changes", check=False), 2, "nothing is said")
    refused(forge.ao("review", "one", "--comment", "a.txt:x", check=False), 2, "FILE:LINE:TEXT")
    body = {"verdict": "comment", "comments": [{"body": "x", "thread": "c-none"}]}
    with pytest.raises(NotFound, match="c-none"):
        forge.request("POST", "/api/sessions/one/review", body)
    with pytest.raises(UsageError):
        forge.request("POST", "/api/sessions/one/review", {"verdict": "maybe"})


def test_a_settled_discussion_is_not_sent_any_more(forge: Sandbox) -> None:
    work(forge, "talk", "[[write: a.txt|x]] [[commit: add a]] [[done: added]]")
    status(forge, "talk", "review_pending")
    forge.ao("review", "talk", "--comment", "a.txt:1:First [[reply: {comment}|Because]]")
    [first] = forge.until(
        lambda: [one for one in forge.json("review", "talk")["threads"] if len(one["comments"]) == 2], "a reply", PLENTY
    )
    assert not first["resolved"]
    done = forge.ao("review", "talk", "--resolve", first["comments"][1]["id"])
    assert done.stdout.splitlines()[0] == f"app-talk #{forge.session('talk')['pr']['number']}: resolved"
    assert f"({first['id']}, resolved)" in forge.ao("review", "talk").stdout
    forge.ao("review", "talk", "--comment", "a.txt:1:Second [[progress: 1/1 read]]")
    forge.until(lambda: len(messages(forge, "talk")) == 2, "the second comment", PLENTY)
    assert "Second" in messages(forge, "talk")[1] and "First" not in messages(forge, "talk")[1]
    forge.request(
        "POST",
        "/api/sessions/talk/review",
        {"comments": [{"body": "Still? [[progress: 1/1 read]]", "thread": first["id"]}]},
    )
    turned(forge, "talk", 3)
    assert [one["resolved"] for one in forge.json("review", "talk")["threads"]] == [False, False]
    assert all(one["resolved"] for one in forge.json("review", "talk", "--resolve", "all")["threads"])

    refused(forge.ao("review", "talk", "--resolve", "c-none", check=False), 3, "no discussion c-none", "ao review")
    refused(forge.ao("review", "talk", "--request", "rev", check=False), 1, "nobody else sees it", "--agent A")
    refused(forge.ao("review", "talk", "--agent", "demo", "--resolve", "all", check=False), 2, "--agent judges itself")
    token = forge.request("GET", "/api/sessions/talk/environment")["env"]["AO_TOKEN"]
    with pytest.raises(AoError, match="for people"):
        forge.request("POST", "/api/sessions/talk/resolve", {"all": True}, **{"X-AO-Token": token})
    with pytest.raises(UsageError, match="threads, or all"):
        forge.request("POST", "/api/sessions/talk/resolve", {})
    until(forge, "talk", lambda now: now["status"] == "review_pending", "its checks")
    forge.ao("review", "talk", "--approve")
    forge.ao("merge", "talk")
    refused(forge.ao("review", "talk", "--resolve", "all", check=False), 1, "is merged")


def test_red_lands_only_by_force(forge: Sandbox) -> None:
    work(forge, "red", "[[write: broken.txt|x]] [[commit: break it]] [[done: broken]]")
    status(forge, "red", "ci_failed", "working")
    forge.until(lambda: "seen" in forge.ao("logs", "red").stdout, "the agent to be told", PLENTY)
    red = until(forge, "red", lambda now: (now["status"], now["activity"]) == ("ci_failed", "idle"), "its turn's end")
    assert red["attempts"] == {"ci-failed": 1}
    assert [text for text in messages(forge, "red") if "checks fail" in text]
    failing = forge.json("review", "red")["failing"]
    assert [one["name"] for one in failing] == ["default"]
    assert "red: default" in forge.ao("status").stdout
    refused(forge.ao("merge", "red", check=False), 1, "is red: default", "--force")
    with pytest.raises(Conflict):
        forge.request("POST", "/api/sessions/red/merge", {"wait": True})
    assert forge.json("merge", "red", "--force", "--strategy", "merge")["status"] == "merged"
    [word] = [event["data"] for event in forge.events("red") if event["type"] == "merge-requested"]
    assert word == {"strategy": "merge", "force": True}


def test_a_conflict_is_refused_and_sent_to_the_agent(forge: Sandbox) -> None:
    work(forge, "a", "[[write: same.txt|a]] [[commit: a]] [[done: a]]")
    work(forge, "b", "[[write: same.txt|b]] [[commit: b]] [[done: b]]")
    for name in ("a", "b"):
        status(forge, name, "review_pending")
    forge.ao("merge", "a")
    status(forge, "b", "conflicted", "working")
    until(forge, "b", lambda now: now["pr"]["mergeable"] == "no" and now["activity"] == "idle", "the conflict")
    forge.until(lambda: "same.txt" in refused(forge.ao("merge", "b", check=False), 1), "the refusal", PLENTY)
    forge.until(lambda: any("same.txt" in text for text in messages(forge, "b")), "the agent to be told", PLENTY)
    assert (forge.repo / "same.txt").read_text() == "a\n"


def test_the_agent_of_a_clone_is_told_a_command_that_reaches_the_base(forge: Sandbox) -> None:
    """A clone has no branch of that name, and nothing of what landed since it was made."""
    work(forge, "a", "[[write: same.txt|a]] [[commit: a]] [[done: a]]")
    script = "[[write: same.txt|b]] [[commit: b]] [[done: b]]"
    forge.request("POST", "/api/sessions", {"name": "b", "title": "b", "prompt": script, "workspace": "clone"})
    for name in ("a", "b"):
        status(forge, name, "review_pending")
    forge.ao("merge", "a")
    told = forge.until(lambda: [text for text in messages(forge, "b") if "same.txt" in text], "the conflict", PLENTY)
    command = f"git fetch {forge.repo} main && git rebase FETCH_HEAD"
    assert command in told[0]
    tried = subprocess.run(
        command, shell=True, cwd=forge.session("b")["workspacePath"], env=forge.env, capture_output=True, text=True
    )
    assert tried.returncode and "same.txt" in tried.stdout


def test_a_landing_waits_for_the_checkout_and_shows_in_the_queue(forge: Sandbox) -> None:
    work(forge, "w", "[[write: w.txt|agent]] [[commit: w]] [[done: w]]")
    status(forge, "w", "review_pending")
    (forge.repo / "w.txt").write_text("person\n")
    asked = forge.request("POST", "/api/sessions/w/merge", {}, **{"Idempotency-Key": "k"})
    assert asked["status"] == "merging"
    [entry] = forge.until(
        lambda: [one for one in forge.json("queue")["entries"] if one["state"] == "waiting"], "it waits", PLENTY
    )
    assert (entry["session"], entry["position"], entry["base"]) == ("app-w", 1, "main")
    assert "w.txt" in entry["reason"] and "w.txt" in forge.ao("queue").stdout
    assert forge.json("merge", "w", "--no-wait")["status"] == "merging"
    (forge.repo / "w.txt").unlink()
    again = forge.request("POST", "/api/sessions/w/merge", {"wait": True}, **{"Idempotency-Key": "k"})
    assert again["status"] == "merged" and forge.json("queue") == {"entries": []}
    assert len([event for event in forge.events("w") if event["type"] == "merge-requested"]) == 1


def test_a_landing_is_taken_back_by_a_change_of_its_own(forge: Sandbox) -> None:
    work(forge, "u", "[[write: u.txt|x]] [[commit: u]] [[done: u]]")
    status(forge, "u", "review_pending")
    refused(forge.ao("undo", "u", check=False), 1, "has not landed")
    forge.ao("merge", "u")
    made = forge.json("undo", "u")
    assert made["branch"] == "revert/app-u" and forge.json("undo", "u")["change"]["id"] == made["change"]["id"]
    change = made["change"]["id"]
    assert status(forge, change, "review_pending")["pid"] is None
    assert forge.json("merge", change)["status"] == "merged"
    assert not (forge.repo / "u.txt").exists()


def test_without_a_change_there_is_nothing_to_judge(forge: Sandbox) -> None:
    work(forge, "none", "[[say: nothing]]")
    until(forge, "none", lambda now: now["activity"] == "idle", "its end")
    for command in (["merge"], ["review"], ["review", "--approve"], ["checks"], ["undo"]):
        refused(forge.ao(command[0], "none", *command[1:], check=False), 3, "no pull request yet")
    refused(forge.ao("merge", "nobody", check=False), 3, "nobody")
    for path in ("ready", "close", "checks", "undo", "merge"):
        with pytest.raises(NotFound):
            forge.request("POST", f"/api/sessions/none/{path}")


def test_ready_close_and_checks_by_hand(forge: Sandbox) -> None:
    work(forge, "r", "[[write: r.txt|x]] [[commit: r]]")
    status(forge, "r", "pr_open")
    assert forge.request("POST", "/api/sessions/r/ready")["state"] == "open"
    status(forge, "r", "review_pending")
    refused(forge.ao("checks", "r", "--log", "lint", check=False), 3, "lint", "default")

    def finished() -> int:
        return len([event for event in forge.events("r") if event["type"] == "check-finished"])

    before = finished()
    forge.ao("checks", "r", "--run")
    forge.until(lambda: finished() > before, "a run", PLENTY)
    assert forge.request("POST", "/api/sessions/r/close")["state"] == "closed"
    assert forge.session("r")["status"] == "closed"
    with pytest.raises(Conflict):
        forge.request("POST", "/api/sessions/r/review", {"verdict": "approve"})

    def closings() -> list[Json]:
        told = forge.request("GET", "/api/notifications")["notifications"]
        return [one for one in told if (one["session"], one["trigger"]) == ("app-r", "pr-closed")]

    [notice] = forge.until(closings, "a notice", PLENTY)
    assert set(notice) == {"id", "session", "project", "title", "message", "level", "trigger", "at"}


def test_the_tracker_by_http_and_across_a_restart(forge: Sandbox) -> None:
    key = {"Idempotency-Key": "same"}
    made = forge.request("POST", "/api/issues", {"title": "One", "labels": ["a/b"]}, **key)
    assert forge.request("POST", "/api/issues", {"title": "One"}, **key) == made
    two = forge.request("POST", "/api/issues", {"title": "Two", "after": [made["number"]]})
    forge.request("POST", "/api/issues/1/comments", {"body": "hm"})
    forge.request("POST", "/api/issues/1/labels", {"labels": ["ui"]})
    forge.request("DELETE", "/api/issues/1/labels/a%2Fb")
    forge.request("PATCH", "/api/issues/1", {"assignee": "ann", "body": "text"})
    with pytest.raises(UsageError):
        forge.request("PATCH", "/api/issues/1", {"state": "gone"})
    with pytest.raises(NotFound):
        forge.request("GET", "/api/issues/9")
    before = forge.request("GET", "/api/issues?state=all")
    assert [one["number"] for one in before["issues"]] == [1, 2]
    one = before["issues"][0]
    assert (one["labels"], one["assignee"], one["body"], len(one["comments"])) == (["ui"], "ann", "text", 1)
    forge.stop()
    forge.start()
    assert forge.request("GET", "/api/issues?state=all") == before
    assert forge.request("PATCH", "/api/issues/1", {"assignee": None})["assignee"] is None
    assert [one["number"] for one in forge.request("GET", "/api/issues?label=ui")["issues"]] == [1]
    assert "issue 1 to be closed" in forge.ao("issues", "--next").stdout
    forge.ao("issue", "close", "1")
    assert [one["number"] for one in forge.json("issues")["issues"]] == [two["number"]]
    assert json.loads(forge.ao("-p", "app", "issue", "reopen", "1", "--json").stdout)["state"] == "open"
    forge.ao("issue", "label", "2", "x", "y")
    assert forge.json("issue", "label", "2", "x", "--remove")["labels"] == ["y"]
    assert forge.json("issue", "assign", "2", "bob")["assignee"] == "bob"
    refused(forge.ao("issue", "show", "9", check=False), 3, "no issue 9")
    refused(forge.ao("issue", "show", "nine", check=False), 2, "nine")
    with pytest.raises(AoError):
        forge.request("POST", "/api/issues", {"title": "x", "unknown": 1})
