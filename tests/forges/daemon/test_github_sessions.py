"""Sessions on GitHub beside the main way: taking over what is there, closing it, what the doctor says, unsigned webhooks."""

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
from tests.forges.daemon.test_issues import address, boxed


@pytest.fixture(params=["webhooks", "polling"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, forge: GitHubServer, way: str) -> Iterator[Sandbox]:
    with boxed(tmp_path, forge, way) as sandbox:
        yield sandbox


def test_a_pull_request_is_taken_over_and_closed(box: Sandbox, forge: GitHubServer) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c", by="rev")
    made = box.json("new", "--pr", str(pull.number), "[[edit: c.txt|more]] [[commit: more]] [[done: made]]")
    assert (made["branch"], made["base"]) == ("theirs", "main")
    box.until(lambda: forge.read("acme/app", "theirs", "c.txt") == "c\nmore\n", "the push", TIMEOUT)
    now = wait_for_session(
        box, made["name"], lambda now: now["pr"]["head"] == pull.head_sha, "the same commit here and there"
    )
    assert now["pr"]["number"] == pull.number
    assert_refused(box.ao("new", "--pr", str(pull.number), check=False), 1, "works on pull request", "ao stop")
    box.request("POST", f"/api/sessions/{made['name']}/close")
    box.until(lambda: pull.state == "closed", "it to be closed there", TIMEOUT)
    assert_refused(box.ao("new", "--pr", str(pull.number), check=False), 1, "is closed", "new session")
    assert_refused(box.ao("new", "--pr", "77", check=False), 3, "77")
    assert_refused(
        box.ao("new", "[[wait]]", "--after", made["name"], "--stack", check=False), 2, "local forge", "--stack"
    )


def test_what_others_called_it_orders_nothing_where_it_lands(box: Sandbox, forge: GitHubServer) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c [skip ci] for @ann", by="rev")
    made = box.json("new", "--pr", str(pull.number), "[[edit: c.txt|more]] [[commit: more]] [[done: made]]")
    wait_for_session(
        box, made["name"], lambda now: now["pr"]["head"] == pull.head_sha != "", "the same commit here and there"
    )
    box.until(lambda: forge.read("acme/app", "theirs", "c.txt") == "c\nmore\n", "the push", TIMEOUT)
    box.ao("merge", made["name"], "--force")
    box.until(lambda: pull.merged, "it to land", TIMEOUT)
    landed = forge.log("acme/app")[0].message
    assert landed.replace("\u200c", "").startswith("Add c [skip ci] for @ann")
    assert "[skip ci]" not in landed and "@ann" not in landed


def test_the_doctor_says_who_we_are_and_whether_webhooks_come(box: Sandbox, forge: GitHubServer, way: str) -> None:
    box.json("new", "[[wait]]", "--name", "any")
    forge.issue("acme/app", "Any", by="rev")
    wanted = "ok" if way == "webhooks" else "warning"

    def found() -> Any:
        checks = {one["name"]: one for one in box.json("doctor")["checks"]}
        return checks if checks["github webhooks: app"]["state"] == wanted else None

    checks = box.until(found, "the doctor to have heard of it", TIMEOUT)
    assert checks["github: app"]["state"] == "ok" and "as dev" in checks["github: app"]["detail"]
    if way == "polling":
        assert "/api/webhooks/github" in checks["github webhooks: app"]["remedy"]


def test_a_webhook_that_nobody_signed_is_refused(box: Sandbox) -> None:
    for headers in (
        {},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64, "X-GitHub-Delivery": "1", "X-GitHub-Event": "push"},
    ):
        asked = urllib.request.Request(f"{address(box)}/api/webhooks/github", b"{}", headers)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(asked)
        with refusal.value as answer:
            assert answer.code == 401
