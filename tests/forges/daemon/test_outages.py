"""A token that expires during work: one notification when it is rejected, one when it is accepted again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, wait_for_session
from tests.forges.daemon.test_issues import SCRIPT, issue_sandbox


def reading_notifications(box: Sandbox) -> list[Any]:
    notifications = box.request("GET", "/api/notifications")["notifications"]
    return [notification for notification in reversed(notifications) if notification["trigger"].startswith("reading-")]


def expire(forge: GitHubServer, expired: bool) -> None:
    for token in forge.world.tokens.values():
        token.expired = expired


def test_an_expired_token_and_its_renewal_are_each_notified_once(tmp_path: Path, forge: GitHubServer) -> None:
    with issue_sandbox(tmp_path, forge, "polling") as box:
        box.request("POST", "/api/sessions", {"name": "one", "title": "One", "prompt": SCRIPT})
        now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
        assert "unread" not in box.json("status")
        expire(forge, True)
        [first] = box.wait_until(lambda: reading_notifications(box), "the notification", TIMEOUT)
        assert (first["project"], first["level"]) == ("app", "action")
        assert first["title"] == "github of app cannot be read"
        assert "is not accepted by GitHub" in first["message"] and "gh auth login" in first["message"]
        [unread] = box.json("status")["unread"]
        assert (unread["project"], unread["name"]) == ("app", "github") and "not accepted" in unread["why"]
        last = box.ao("status").stdout.splitlines()[-1]
        assert last.startswith("github of app cannot be read for ") and "gh auth login" in last

        box.stop()
        box.start()
        request_count = len(forge.ledger.requests)
        box.wait_until(lambda: len(forge.ledger.requests) > request_count + 2, "both to be tried again", TIMEOUT)
        assert len(reading_notifications(box)) == 1

        pull = forge.find_pull("acme/app", now["pr"]["number"])
        forge.check("acme/app", pull.head_sha, "tests", "success")
        expire(forge, False)
        box.wait_until(lambda: len(reading_notifications(box)) == 2, "the notification of the renewal", TIMEOUT)
        second = reading_notifications(box)[1]
        assert (second["title"], second["level"]) == ("github of app can be read again", "info")
        assert "unread" not in box.json("status") and "cannot be read" not in box.ao("status").stdout
        wait_for_session(box, "one", lambda now: now["pr"]["checks"], "what happened meanwhile")
        assert [event["type"] for event in box.events() if event["type"].startswith("reading-")] == [
            "reading-failed",
            "reading-resumed",
        ]
