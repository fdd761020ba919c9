"""Sessions at GitHub beside the main path: taking over a pull request, closing it, the doctor's checks, unsigned webhooks."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, wait_for_session
from tests.forges.daemon.test_issues import address, issue_sandbox


@pytest.fixture(params=["webhooks", "polling"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, forge: GitHubServer, way: str) -> Iterator[Sandbox]:
    with issue_sandbox(tmp_path, forge, way) as sandbox:
        yield sandbox


def test_a_pull_request_is_taken_over_and_closed(box: Sandbox, forge: GitHubServer) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c", by="rev")
    session = box.json("new", "--pr", str(pull.number), "[[edit: c.txt|more]] [[commit: more]] [[done: made]]")
    assert (session["branch"], session["base"]) == ("theirs", "main")
    box.wait_until(lambda: forge.read("acme/app", "theirs", "c.txt") == "c\nmore\n", "the push", TIMEOUT)
    session = wait_for_session(
        box, session["name"], lambda session: session["pr"]["head"] == pull.head_sha, "the same commit here and there"
    )
    assert session["pr"]["number"] == pull.number
    assert_refused(box.ao("new", "--pr", str(pull.number), check=False), 1, "works on pull request", "ao stop")
    box.request("POST", f"/api/sessions/{session['name']}/close")
    box.wait_until(lambda: pull.state == "closed", "it to be closed there", TIMEOUT)
    assert_refused(box.ao("new", "--pr", str(pull.number), check=False), 1, "is closed", "new session")
    assert_refused(box.ao("new", "--pr", "77", check=False), 3, "77")
    assert_refused(
        box.ao("new", "[[wait]]", "--after", session["name"], "--stack", check=False), 2, "local forge", "--stack"
    )


def test_a_foreign_pull_request_title_cannot_skip_ci_or_mention_people_in_the_merge(
    box: Sandbox, forge: GitHubServer
) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c [skip ci] for @ann", by="rev")
    session = box.json("new", "--pr", str(pull.number), "[[edit: c.txt|more]] [[commit: more]] [[done: made]]")
    wait_for_session(
        box, session["name"], lambda now: now["pr"]["head"] == pull.head_sha != "", "the same commit here and there"
    )
    box.wait_until(lambda: forge.read("acme/app", "theirs", "c.txt") == "c\nmore\n", "the push", TIMEOUT)
    box.ao("merge", session["name"], "--force")
    box.wait_until(lambda: pull.merged, "it to be merged", TIMEOUT)
    message = forge.log("acme/app")[0].message
    assert message.replace("\u200c", "").startswith("Add c [skip ci] for @ann")
    assert "[skip ci]" not in message and "@ann" not in message


def test_the_doctor_shows_the_account_and_whether_webhooks_arrive(box: Sandbox, forge: GitHubServer, way: str) -> None:
    box.json("new", "[[wait]]", "--name", "any")
    forge.issue("acme/app", "Any", by="rev")
    expected_state = "ok" if way == "webhooks" else "warning"

    def matching_checks() -> Any:
        checks = {check["name"]: check for check in box.json("doctor")["checks"]}
        return checks if checks["github webhooks: app"]["state"] == expected_state else None

    checks = box.wait_until(matching_checks, "the doctor to have heard of it", TIMEOUT)
    assert checks["github: app"]["state"] == "ok" and "as dev" in checks["github: app"]["detail"]
    if way == "polling":
        assert "/api/webhooks/github" in checks["github webhooks: app"]["remedy"]


def test_an_unsigned_webhook_is_refused(box: Sandbox) -> None:
    for headers in (
        {},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64, "X-GitHub-Delivery": "1", "X-GitHub-Event": "push"},
    ):
        request = urllib.request.Request(f"{address(box)}/api/webhooks/github", b"{}", headers)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request)
        with refusal.value as response:
            assert response.code == 401
