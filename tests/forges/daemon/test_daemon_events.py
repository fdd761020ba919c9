"""Unusual events at a forge, with a real daemon: branches deleted or force-pushed, repositories renamed, large responses,
and webhooks that are forged, old, large, late or sent twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.forge.hooks import post_delivery
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.github.hooks import delivery_request as signed
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.linear import LinearServer
from tests.acceptance.session_states import wait_for_session
from tests.forges.client import ForgeClient
from tests.forges.daemon.faulty import REPO, Forge, ForgeDaemon, forge_daemon

TWO_COMMITS = (
    "[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] [[write: c.txt|two]] [[commit: two]] [[done: more]]"
)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "github"))


@pytest.fixture
def updates(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "polling"))


@pytest.fixture
def forge(kind: str, request: pytest.FixtureRequest) -> Iterator[Forge]:
    if kind == "gitlab":
        with GitLabServer() as gitlab:
            yield gitlab
    else:
        with GitHubServer(schema=request.getfixturevalue("schema")) as github:
            yield github


@pytest.fixture
def daemon(tmp_path: Path, forge: Forge, kind: str, updates: str) -> Iterator[ForgeDaemon]:
    with forge_daemon(tmp_path, forge, kind, updates) as started:
        yield started


both_forges = pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
webhooks_and_polling = pytest.mark.parametrize("updates", ["polling", "webhooks"], indirect=True)


# -- branches and repositories -----------------------------------------------------------------------------------------


@webhooks_and_polling
def test_a_deleted_branch_closes_the_pull_request_and_restoring_it_continues(
    daemon: ForgeDaemon, forge: GitHubServer
) -> None:
    pull = daemon.new_pull_request()
    head = pull.head_sha
    forge.delete_branch(REPO, "feature/one", by="rev")
    wait_for_session(daemon.box, "one", lambda now: now["pr"]["state"] == "closed", "to be closed")
    assert [event for event in daemon.box.events("one") if event["type"] == "pr-closed"]
    assert daemon.count_requests(3) <= 12
    daemon.git("push", "-q", "origin", f"{head}:refs/heads/feature/one")
    forge.reopen(pull)
    wait_for_session(daemon.box, "one", lambda now: now["pr"]["state"] == "open", "to be open again")
    daemon.check_and_merge(pull)


@pytest.mark.parametrize("kind", ["gitlab"], indirect=True)
def test_a_branch_deleted_under_an_open_merge_request_is_not_pushed_again(
    daemon: ForgeDaemon, forge: GitLabServer
) -> None:
    daemon.start_session(TWO_COMMITS)
    pull = daemon.open_pull_request()
    head = pull.head_sha
    branches = f"/api/v4/projects/{pull.project.id}/repository/branches"
    ForgeClient(forge, daemon.token)("DELETE", f"{branches}/feature%2Fone")
    daemon.box.ao("send", "one", "go on")
    daemon.wait_for_delay("push", "somebody deleted feature/one")
    assert daemon.count_requests(4, git=True) <= 30
    daemon.git("push", "-q", "origin", f"{head}:refs/heads/feature/one")
    daemon.box.wait_until(lambda: pull.head_sha == daemon.box.session("one")["head"] != head, "the push", 60)
    daemon.check_and_merge(pull)


@both_forges
@webhooks_and_polling
def test_a_session_continues_after_its_repository_was_renamed(daemon: ForgeDaemon, forge: Any, kind: str) -> None:
    daemon.start_session(TWO_COMMITS)
    pull = daemon.open_pull_request()
    before = pull.head_sha
    forge.rename(REPO, "renamed" if kind == "github" else "acme/renamed")
    forge.thread(pull, "b.txt", 1, "Said after it", by="rev")
    daemon.wait_until_sent("Said after it")
    daemon.box.wait_until(lambda: pull.head_sha == daemon.box.session("one")["head"] != before, "the push", 60)
    assert forge.read("acme/renamed", "feature/one", "c.txt") == "two\n"
    forge.check("acme/renamed", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_session(daemon.box, "one", lambda now: now["status"] == "mergeable", "to be mergeable")
    daemon.box.ao("merge", "one")
    assert pull.merged


@both_forges
def test_commits_force_pushed_by_another_person_are_not_overwritten(daemon: ForgeDaemon, forge: Forge) -> None:
    daemon.start_session(f"{TWO_COMMITS} [[wait]] [[sh: git pull -q --rebase origin feature/one]] [[done: all]]")
    pull = daemon.open_pull_request()
    pushed_commit = forge.push(REPO, "feature/one", {"theirs.txt": "x\n"}, by="rev", force=True)
    daemon.box.ao("send", "one", "go on")
    delay = daemon.wait_for_delay("push", f"somebody pushed {pushed_commit[:12]} to feature/one")
    assert "git pull --rebase" in delay["remedy"]
    assert daemon.count_requests(4, git=True) <= 30
    assert pull.head_sha == pushed_commit
    daemon.box.ao("send", "one", "take it in")
    daemon.box.wait_until(lambda: pull.head_sha == daemon.box.session("one")["head"] != pushed_commit, "the push", 60)
    for name, text in (("theirs.txt", "x\n"), ("b.txt", "one\n"), ("c.txt", "two\n")):
        assert forge.read(REPO, "feature/one", name) == text
    daemon.check_and_merge(pull)


# -- large answers -----------------------------------------------------------------------------------------------------


@both_forges
def test_all_of_300_checks_are_read(daemon: ForgeDaemon, forge: Forge) -> None:
    pull = daemon.new_pull_request()
    for number in range(300):
        is_failing = number == 271
        forge.check(
            REPO,
            pull.head_sha,
            f"c{number}",
            "failure" if is_failing else "success",
            log="E  boom\n" if is_failing else "ok\n",
        )
    daemon.wait_until_sent("boom")
    now = wait_for_session(
        daemon.box, "one", lambda now: len(now["pr"]["checks"]) >= 300 or now["head"] != pull.head_sha, "them"
    )
    assert len(now["pr"]["checks"]) in (0, 300)
    assert daemon.count_requests(4) <= 25


@both_forges
def test_1000_comments_are_read_and_sent_in_one_message(daemon: ForgeDaemon, forge: Forge) -> None:
    pull = daemon.new_pull_request()
    forge.fail("drop", next=10_000, path="graphql|merge_requests")
    for number in range(1_000):
        forge.comment(pull, f"Remark {number}.", by="rev")
    forge.ledger.faults.clear()
    fault = forge.fail("cut", next=5, path="graphql|discussions")

    def count_read_comments() -> int:
        return sum(event["type"] == "comment-added" for event in all_events(daemon))

    daemon.box.wait_until(lambda: count_read_comments() == 1_000, "all to be read", 120)
    assert fault.remaining == 0
    daemon.box.wait_until(daemon.sent_messages, "the message to be sent", 60)
    [message] = daemon.sent_messages()
    assert "Remark 0." in message and "(cut)" in message and len(message) < 20_000
    assert daemon.count_requests(4) <= 60
    assert count_read_comments() == 1_000


def all_events(daemon: ForgeDaemon) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while page := daemon.box.request("GET", f"/api/events?limit=1000&after={events[-1]['seq'] if events else 0}")[
        "events"
    ]:
        events += page
    return events


@both_forges
def test_a_check_log_of_200_mb_does_not_fill_the_daemons_memory(daemon: ForgeDaemon, forge: Forge) -> None:
    def log_lines() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * (1024 * 1024 - 1) + b"\n"
        yield b"E   assert 1 == 2\nFAILED b.txt\n"

    pull = daemon.new_pull_request()
    before = daemon.memory()
    forge.check(REPO, pull.head_sha, "large", "failure", log=log_lines)
    daemon.wait_until_sent("assert 1 == 2")
    assert daemon.memory("VmHWM") - before < 40


# -- webhooks ----------------------------------------------------------------------------------------------------------


@both_forges
def test_a_webhook_with_a_wrong_signature_is_refused_and_reported_by_the_doctor(
    daemon: ForgeDaemon, forge: Forge
) -> None:
    pull = daemon.new_pull_request()
    hook = forge.hook(REPO, daemon.address, "another secret")
    daemon.comment_on_line(pull, "By polling")
    forge.hooks.wait()
    assert {delivery.status_code for delivery in forge.hooks.sent} == {401}
    doctor_check = daemon.wait_for_doctor("was not taken: its signature matches no secret")
    assert "secret" in doctor_check["remedy"]
    daemon.wait_until_sent("By polling")
    hook.secret = hook.token = "s3cret"  # type: ignore[union-attr]
    forge.comment(pull, "Signed well", by="rev")
    forge.hooks.wait()
    checks = {check["name"]: check for check in daemon.box.request("GET", "/api/doctor")["checks"]}
    assert checks[f"{daemon.kind} webhooks: app"]["state"] == "ok"


def test_an_old_webhook_delivery_is_refused_and_reported_by_the_doctor(tmp_path: Path, forge: GitHubServer) -> None:
    clock = {"shift": 0.0}
    with (
        LinearServer(clock=lambda: time.time() + clock["shift"]) as linear,
        forge_daemon(tmp_path, forge, "github") as daemon,
    ):
        options = f'team: LIN, apiUrl: "{linear.url}/graphql", token: {linear.token("dev")}, poll: 1s'
        daemon.configure(daemon.token, f"{{plugin: linear, {options}, webhook: {{secret: s3cret}}}}")
        daemon.wait_for_event("configuration-changed")
        team = linear.team("LIN")
        linear.hook(daemon.address.replace("github", "linear"), "s3cret")
        clock["shift"] = -400.0
        issue = linear.issue(team, "Old news")
        linear.hooks.wait()
        assert linear.hooks.sent[-1].status_code == 401
        doctor_check = daemon.wait_for_doctor("was not taken: it is too old")
        assert "clocks" in doctor_check["remedy"]
        clock["shift"] = 0.0
        linear.comment(issue, "New words")
        linear.hooks.wait()
        assert linear.hooks.sent[-1].status_code == 202


@both_forges
def test_a_webhook_body_of_30_mb_is_refused_without_filling_the_daemons_memory(
    daemon: ForgeDaemon, forge: Forge
) -> None:
    pull = daemon.new_pull_request()
    before = daemon.memory()
    forge.hook(REPO, daemon.address, "s3cret")
    daemon.comment_on_line(pull, "After it")
    forge.hooks.wait()
    body, headers = signed(forge.hooks.sent[-1]) if daemon.kind == "github" else (b"{}", {"X-Gitlab-Token": "s3cret"})  # type: ignore[arg-type]
    large = json.dumps({"action": "x" * 30 * 1024 * 1024}).encode()
    for _ in range(3):
        assert post_delivery(daemon.address, large, headers) == 413
    assert post_delivery(daemon.address, body[:10], headers) in (401, 422)
    assert daemon.memory("VmHWM") - before < 60
    daemon.wait_until_sent("After it")
    daemon.check_and_merge(pull)


@both_forges
@pytest.mark.parametrize("updates", ["webhooks"], indirect=True)
def test_webhooks_delivered_twice_and_out_of_order_are_sent_to_the_agent_once(
    daemon: ForgeDaemon, forge: Forge
) -> None:
    pull = daemon.new_pull_request()
    forge.hooks.wait()
    forge.hooks.duplicate(50)
    forge.hooks.hold()
    check = forge.check(REPO, pull.head_sha, "tests")
    forge.check(REPO, pull.head_sha, "tests", "failure", log="E   assert 1 == 2\n")
    daemon.comment_on_line(pull, "And this")
    assert check is not None
    before = len(forge.ledger.requests)
    forge.hooks.release("reversed")
    forge.hooks.wait()
    daemon.wait_until_sent("assert 1 == 2", "And this")
    assert {delivery.status_code for delivery in forge.hooks.sent} == {202}
    time.sleep(3)
    assert len([request for request in forge.ledger.requests[before:] if request.kind != "git"]) <= 60
    assert sum("assert 1 == 2" in message for message in daemon.sent_messages()) == 1
    daemon.check_and_merge(pull)
