"""A forge where unusual things happen, seen by a person with a real daemon: branches that go or move, repositories that are renamed,
large answers, and webhooks that are forged, old, large, late or doubled."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.forge.hooks import post
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.github.hooks import request as signed
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.linear import LinearServer
from tests.acceptance.session_states import wait_for_session
from tests.forges.client import Client
from tests.forges.daemon.faulty import REPO, Forge, Play, played

TWICE = (
    "[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] [[write: c.txt|two]] [[commit: two]] [[done: more]]"
)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "github"))


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
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
def play(tmp_path: Path, forge: Forge, kind: str, way: str) -> Iterator[Play]:
    with played(tmp_path, forge, kind, way) as started:
        yield started


both = pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
both_ways = pytest.mark.parametrize("way", ["polling", "webhooks"], indirect=True)


# -- branches and repositories -----------------------------------------------------------------------------------------


@both_ways
def test_a_deleted_branch_closes_and_a_restored_one_goes_on(play: Play, forge: GitHubServer) -> None:
    pull = play.made()
    head = pull.head_sha
    forge.delete_branch(REPO, "feature/one", by="rev")
    wait_for_session(play.box, "one", lambda now: now["pr"]["state"] == "closed", "to be closed")
    assert [one for one in play.box.events("one") if one["type"] == "pr-closed"]
    assert play.asked(3) <= 12
    play.git("push", "-q", "origin", f"{head}:refs/heads/feature/one")
    forge.reopen(pull)
    wait_for_session(play.box, "one", lambda now: now["pr"]["state"] == "open", "to be open again")
    play.lands(pull)


@pytest.mark.parametrize("kind", ["gitlab"], indirect=True)
def test_a_branch_that_was_deleted_under_an_open_change_is_left_alone(play: Play, forge: GitLabServer) -> None:
    play.begin(TWICE)
    pull = play.opened()
    head = pull.head_sha
    branches = f"/api/v4/projects/{pull.project.id}/repository/branches"
    Client(forge, play.token)("DELETE", f"{branches}/feature%2Fone")
    play.box.ao("send", "one", "go on")
    play.delayed("push", "somebody deleted feature/one")
    assert play.asked(4, git=True) <= 30
    play.git("push", "-q", "origin", f"{head}:refs/heads/feature/one")
    play.box.until(lambda: pull.head_sha == play.box.session("one")["head"] != head, "the push", 60)
    play.lands(pull)


@both
@both_ways
def test_a_renamed_repository_goes_on_under_its_new_name(play: Play, forge: Any, kind: str) -> None:
    play.begin(TWICE)
    pull = play.opened()
    before = pull.head_sha
    forge.rename(REPO, "renamed" if kind == "github" else "acme/renamed")
    forge.thread(pull, "b.txt", 1, "Said after it", by="rev")
    play.heard("Said after it")
    play.box.until(lambda: pull.head_sha == play.box.session("one")["head"] != before, "the push", 60)
    assert forge.read("acme/renamed", "feature/one", "c.txt") == "two\n"
    forge.check("acme/renamed", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_session(play.box, "one", lambda now: now["status"] == "mergeable", "to be mergeable")
    play.box.ao("merge", "one")
    assert pull.merged


@both
def test_what_somebody_else_pushed_by_force_is_not_overwritten(play: Play, forge: Forge) -> None:
    play.begin(f"{TWICE} [[wait]] [[sh: git pull -q --rebase origin feature/one]] [[done: all]]")
    pull = play.opened()
    theirs = forge.push(REPO, "feature/one", {"theirs.txt": "x\n"}, by="rev", force=True)
    play.box.ao("send", "one", "go on")
    told = play.delayed("push", f"somebody pushed {theirs[:12]} to feature/one")
    assert "git pull --rebase" in told["remedy"]
    assert play.asked(4, git=True) <= 30
    assert pull.head_sha == theirs
    play.box.ao("send", "one", "take it in")
    play.box.until(lambda: pull.head_sha == play.box.session("one")["head"] != theirs, "the push", 60)
    for name, text in (("theirs.txt", "x\n"), ("b.txt", "one\n"), ("c.txt", "two\n")):
        assert forge.read(REPO, "feature/one", name) == text
    play.lands(pull)


# -- large answers -----------------------------------------------------------------------------------------------------


@both
def test_300_checks_are_all_known(play: Play, forge: Forge) -> None:
    pull = play.made()
    for number in range(300):
        bad = number == 271
        forge.check(
            REPO, pull.head_sha, f"c{number}", "failure" if bad else "success", log="E  boom\n" if bad else "ok\n"
        )
    play.heard("boom")
    now = wait_for_session(
        play.box, "one", lambda now: len(now["pr"]["checks"]) >= 300 or now["head"] != pull.head_sha, "them"
    )
    assert len(now["pr"]["checks"]) in (0, 300)
    assert play.asked(4) <= 25


@both
def test_1000_comments_are_read_and_told_together(play: Play, forge: Forge) -> None:
    pull = play.made()
    forge.fail("drop", next=10_000, path="graphql|merge_requests")
    for number in range(1_000):
        forge.comment(pull, f"Remark {number}.", by="rev")
    forge.ledger.faults.clear()
    cut = forge.fail("cut", next=5, path="graphql|discussions")

    def known() -> int:
        return sum(one["type"] == "comment-added" for one in everything(play))

    play.box.until(lambda: known() == 1_000, "all to be read", 120)
    assert cut.left == 0
    play.box.until(play.sent, "them to be told", 60)
    [told] = play.sent()
    assert "Remark 0." in told and "(cut)" in told and len(told) < 20_000
    assert play.asked(4) <= 60
    assert known() == 1_000


def everything(play: Play) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := play.box.request("GET", f"/api/events?limit=1000&after={found[-1]['seq'] if found else 0}")["events"]:
        found += page
    return found


@both
def test_a_log_of_200_mb_does_not_fill_the_daemon(play: Play, forge: Forge) -> None:
    def printed() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * (1024 * 1024 - 1) + b"\n"
        yield b"E   assert 1 == 2\nFAILED b.txt\n"

    pull = play.made()
    before = play.memory()
    forge.check(REPO, pull.head_sha, "large", "failure", log=printed)
    play.heard("assert 1 == 2")
    assert play.memory("VmHWM") - before < 40


# -- webhooks ----------------------------------------------------------------------------------------------------------


@both
def test_a_webhook_with_a_wrong_signature_is_refused_and_the_doctor_says_so(play: Play, forge: Forge) -> None:
    pull = play.made()
    hook = forge.hook(REPO, play.address, "another secret")
    play.said(pull, "By polling")
    forge.hooks.wait()
    assert {one.status_code for one in forge.hooks.sent} == {401}
    found = play.doctor("was not taken: its signature matches no secret")
    assert "secret" in found["remedy"]
    play.heard("By polling")
    hook.secret = hook.token = "s3cret"  # type: ignore[union-attr]
    forge.comment(pull, "Signed well", by="rev")
    forge.hooks.wait()
    checks = {one["name"]: one for one in play.box.request("GET", "/api/doctor")["checks"]}
    assert checks[f"{play.kind} webhooks: app"]["state"] == "ok"


def test_an_old_delivery_is_not_taken_and_the_doctor_says_so(tmp_path: Path, forge: GitHubServer) -> None:
    now = {"shift": 0.0}
    with LinearServer(clock=lambda: time.time() + now["shift"]) as linear, played(tmp_path, forge, "github") as play:
        options = f'team: LIN, apiUrl: "{linear.url}/graphql", token: {linear.token("dev")}, poll: 1s'
        play.configure(play.token, f"{{plugin: linear, {options}, webhook: {{secret: s3cret}}}}")
        team = linear.team("LIN")
        linear.hook(play.address.replace("github", "linear"), "s3cret")
        now["shift"] = -400.0
        issue = linear.issue(team, "Old news")
        linear.hooks.wait()
        assert linear.hooks.sent[-1].status_code == 401
        found = play.doctor("was not taken: it is too old")
        assert "clocks" in found["remedy"]
        now["shift"] = 0.0
        linear.comment(issue, "New words")
        linear.hooks.wait()
        assert linear.hooks.sent[-1].status_code == 202


@both
def test_a_body_of_30_mb_is_refused_and_does_not_fill_the_daemon(play: Play, forge: Forge) -> None:
    pull = play.made()
    before = play.memory()
    forge.hook(REPO, play.address, "s3cret")
    play.said(pull, "After it")
    forge.hooks.wait()
    body, headers = signed(forge.hooks.sent[-1]) if play.kind == "github" else (b"{}", {"X-Gitlab-Token": "s3cret"})  # type: ignore[arg-type]
    large = json.dumps({"action": "x" * 30 * 1024 * 1024}).encode()
    for _ in range(3):
        assert post(play.address, large, headers) == 413
    assert post(play.address, body[:10], headers) in (401, 422)
    assert play.memory("VmHWM") - before < 60
    play.heard("After it")
    play.lands(pull)


@both
@pytest.mark.parametrize("way", ["webhooks"], indirect=True)
def test_deliveries_out_of_order_and_twice_are_told_once(play: Play, forge: Forge) -> None:
    pull = play.made()
    forge.hooks.wait()
    forge.hooks.duplicate(50)
    forge.hooks.hold()
    check = forge.check(REPO, pull.head_sha, "tests")
    forge.check(REPO, pull.head_sha, "tests", "failure", log="E   assert 1 == 2\n")
    play.said(pull, "And this")
    assert check is not None
    before = len(forge.ledger.requests)
    forge.hooks.release("reversed")
    forge.hooks.wait()
    play.heard("assert 1 == 2", "And this")
    assert {one.status_code for one in forge.hooks.sent} == {202}
    time.sleep(3)
    assert len([one for one in forge.ledger.requests[before:] if one.kind != "git"]) <= 60
    assert sum("assert 1 == 2" in one for one in play.sent()) == 1
    play.lands(pull)
