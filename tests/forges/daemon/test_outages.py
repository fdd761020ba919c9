"""A token that ends while work goes on: a person is told at once, in one place and once, and again when it is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, wait_for_session
from tests.forges.daemon.test_issues import SCRIPT, boxed


def told(box: Sandbox) -> list[Any]:
    found = box.request("GET", "/api/notifications")["notifications"]
    return [one for one in reversed(found) if one["trigger"].startswith("reading-")]


def expire(forge: GitHubServer, expired: bool) -> None:
    for token in forge.world.tokens.values():
        token.expired = expired


def test_an_expired_token_is_told_once_and_its_renewal_too(tmp_path: Path, forge: GitHubServer) -> None:
    with boxed(tmp_path, forge, "polling") as box:
        box.request("POST", "/api/sessions", {"name": "one", "title": "One", "prompt": SCRIPT})
        now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
        assert "unread" not in box.json("status")
        expire(forge, True)
        [first] = box.until(lambda: told(box), "it to be told", TIMEOUT)
        assert (first["project"], first["level"]) == ("app", "action")
        assert first["title"] == "github of app cannot be read"
        assert "is not accepted by GitHub" in first["message"] and "gh auth login" in first["message"]
        [unread] = box.json("status")["unread"]
        assert (unread["project"], unread["name"]) == ("app", "github") and "not accepted" in unread["why"]
        last = box.ao("status").stdout.splitlines()[-1]
        assert last.startswith("github of app cannot be read for ") and "gh auth login" in last

        box.stop()
        box.start()
        tried = len(forge.ledger.requests)
        box.until(lambda: len(forge.ledger.requests) > tried + 2, "both to be tried again", TIMEOUT)
        assert len(told(box)) == 1

        pull = forge.find_pull("acme/app", now["pr"]["number"])
        forge.check("acme/app", pull.head_sha, "tests", "success")
        expire(forge, False)
        box.until(lambda: len(told(box)) == 2, "the renewal to be told", TIMEOUT)
        second = told(box)[1]
        assert (second["title"], second["level"]) == ("github of app can be read again", "info")
        assert "unread" not in box.json("status") and "cannot be read" not in box.ao("status").stdout
        wait_for_session(box, "one", lambda now: now["pr"]["checks"], "what happened meanwhile")
        assert [one["type"] for one in box.events() if one["type"].startswith("reading-")] == [
            "reading-failed",
            "reading-resumed",
        ]
