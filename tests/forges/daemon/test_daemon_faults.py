"""Faulty responses of a forge, with a real daemon: the daemon reports the fault, does not repeat requests in a loop, and after the
fault ends the session continues and its change is merged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from tests.forges.daemon.faulty import API_PATHS, GIT_PATHS, REPO, Forge, ForgeDaemon, forge_daemon


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "github"))


@pytest.fixture
def forge(kind: str, request: pytest.FixtureRequest) -> Iterator[Forge]:
    if kind == "gitlab":
        with GitLabServer() as gitlab:
            yield gitlab
    else:
        with GitHubServer(schema=request.getfixturevalue("schema")) as github:
            yield github


@pytest.fixture
def daemon(tmp_path: Path, forge: Forge, kind: str) -> Iterator[ForgeDaemon]:
    with forge_daemon(tmp_path, forge, kind) as started:
        yield started


both_forges = pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)


@pytest.mark.parametrize(
    ("kind", "fault_kind", "expected_text"),
    [
        ("github", 401, "is not accepted by GitHub"),
        ("github", 403, "forbids "),
        ("github", 404, "has no "),
        ("github", 409, "refuses "),
        ("github", 422, "refuses "),
        ("github", 500, "failed with 500"),
        ("github", 503, "failed with 503"),
        ("github", "html", "failed with 502"),
        ("github", "drop", "could not be asked"),
        ("github", "cut", "could not be asked"),
        ("gitlab", 401, "is not accepted by GitLab"),
        ("gitlab", 403, "forbids "),
        ("gitlab", "cut", "could not be asked"),
    ],
    indirect=["kind"],
)
def test_a_session_continues_after_the_forge_refused_requests(
    daemon: ForgeDaemon, forge: Forge, fault_kind: int | str, expected_text: str
) -> None:
    pull = daemon.new_pull_request()
    fault = forge.fail(fault_kind, next=10_000, path=API_PATHS)
    daemon.comment_on_line(pull, "Said meanwhile")
    doctor_check = daemon.wait_for_doctor(expected_text)
    assert "\n" not in doctor_check["detail"]
    assert daemon.count_requests(5) <= 12
    assert not daemon.sent_messages()
    fault.remaining = 0
    daemon.wait_until_sent("Said meanwhile")
    assert not [check for check in daemon.box.request("GET", "/api/doctor")["checks"] if check["name"] == "reading app"]
    daemon.check_and_merge(pull)


@both_forges
def test_news_read_before_a_poll_failed_is_still_delivered(daemon: ForgeDaemon, forge: Forge) -> None:
    pull = daemon.new_pull_request()
    fault = forge.fail(500, next=10_000, path="actions/runs|pipelines")
    daemon.comment_on_line(pull, "Said meanwhile")
    daemon.wait_for_doctor("failed with 500")
    fault.remaining = 0
    daemon.wait_until_sent("Said meanwhile")
    daemon.check_and_merge(pull)


@both_forges
def test_no_request_is_made_before_a_rate_limit_ends_and_the_doctor_shows_the_time(
    daemon: ForgeDaemon, forge: Forge, kind: str
) -> None:
    pull = daemon.new_pull_request()
    ends = time.time() + 8
    if kind == "github":
        forge.fail("secondary", retry_after=8, path=API_PATHS)
    else:
        forge.set_rate(daemon.token, remaining=0, reset=ends)
    daemon.comment_on_line(pull, "Said meanwhile")
    daemon.wait_for_doctor("takes no more requests before")
    daemon.wait_for_doctor("takes no more requests before")
    assert daemon.count_requests(ends - time.time() - 1) == 0
    daemon.wait_until_sent("Said meanwhile")
    assert ends - 1 < time.time() < ends + 6
    daemon.check_and_merge(pull)


def test_a_session_continues_after_a_429_response_and_a_used_up_rate_limit(
    daemon: ForgeDaemon, forge: GitHubServer
) -> None:
    pull = daemon.new_pull_request()
    forge.fail(429, retry_after=4, path=API_PATHS)
    daemon.comment_on_line(pull, "After 429")
    daemon.wait_for_doctor("takes no more requests before")
    daemon.wait_until_sent("After 429")
    forge.set_rate(daemon.token, remaining=0, reset=time.time() + 5, kind="graphql")
    daemon.comment_on_line(pull, "After the reset")
    daemon.wait_for_doctor("takes no more requests before")
    assert daemon.count_requests(2) <= 12  # what costs nothing is still asked
    daemon.wait_until_sent("After the reset")
    daemon.check_and_merge(pull)


def test_a_rate_limit_reset_time_in_the_past_causes_no_immediate_requests(
    daemon: ForgeDaemon, forge: GitHubServer
) -> None:
    pull = daemon.new_pull_request()
    forge.set_rate(daemon.token, remaining=0, reset=time.time() - 500)
    daemon.comment_on_line(pull, "Said meanwhile")
    daemon.wait_for_doctor("takes no more requests before")
    assert daemon.count_requests(10) <= 2
    forge.set_rate(daemon.token, remaining=4_000)
    daemon.wait_until_sent("Said meanwhile")
    daemon.check_and_merge(pull)


@both_forges
def test_an_expired_token_is_reported_and_the_session_continues_once_it_is_renewed(
    daemon: ForgeDaemon, forge: Forge
) -> None:
    daemon.start_session(
        "[[write: b.txt|one]] [[commit: one]] [[wait]] [[write: c.txt|two]] [[commit: two]] [[done: made]]"
    )
    pull = daemon.open_pull_request("draft")
    token = forge.world.tokens[daemon.token]
    token.expired = True
    daemon.comment_on_line(pull, "Said meanwhile")
    assert "scm.token" in daemon.wait_for_doctor("is not accepted by Git")["detail"]
    daemon.box.ao("send", "one", "go on")
    delay = daemon.wait_for_delay("push", "the token is not accepted")
    assert "ao doctor" in delay["remedy"] and "\n" not in delay["error"]
    assert daemon.count_requests(5, git=True) <= 30
    token.expired = False
    daemon.box.wait_until(lambda: pull.head_sha == daemon.box.session("one")["head"] and not pull.draft, "the push", 60)
    assert forge.read(REPO, "feature/one", "c.txt") == "two\n"
    daemon.wait_until_sent("Said meanwhile")
    daemon.box.wait_until(lambda: pull.head_sha == daemon.box.session("one")["head"], "what came of that", 60)
    daemon.check_and_merge(pull)


@both_forges
def test_a_session_continues_after_a_wrong_token_is_replaced_in_the_configuration(
    tmp_path: Path, forge: Forge, kind: str
) -> None:
    with forge_daemon(tmp_path, forge, kind, token="wrong") as daemon:
        daemon.wait_for_doctor("is not accepted by Git")
        daemon.start_session()
        daemon.wait_for_delay("push", "the token is not accepted")
        daemon.configure(daemon.forge.token("dev"))
        daemon.check_and_merge(daemon.open_pull_request())


def test_a_missing_token_scope_is_named(tmp_path: Path, forge: GitHubServer) -> None:
    token = forge.token("dev", scopes=("read:org",))
    with forge_daemon(tmp_path, forge, "github", token=token) as daemon:
        doctor_check = daemon.wait_for_doctor("lacks the scope public_repo")
        assert "gh auth refresh" in doctor_check["remedy"]
        daemon.start_session()
        delay = daemon.wait_for_delay("open-pr", "may not see looks the same")
        assert "\n" not in delay["error"]
        assert daemon.count_requests(4) <= 12
        forge.world.tokens[token].scopes = ("repo",)
        daemon.check_and_merge(daemon.open_pull_request())


@pytest.mark.parametrize(
    ("kind", "fault_kind", "path", "effect", "expected_text"),
    [
        ("github", 401, GIT_PATHS, "push", "the token is not accepted"),
        ("github", 403, GIT_PATHS, "push", "it is forbidden"),
        ("github", 404, GIT_PATHS, "push", "no such repository"),
        ("github", 500, GIT_PATHS, "push", "tried again by itself"),
        ("github", "drop", GIT_PATHS, "push", "tried again by itself"),
        ("github", 403, "pulls$", "open-pr", "forbids"),
        ("github", 409, "pulls$", "open-pr", "refuses"),
        ("github", 422, "pulls$", "open-pr", "Server Error"),
        ("github", 500, "pulls$", "open-pr", "failed with 500"),
        ("gitlab", 401, GIT_PATHS, "push", "the token is not accepted"),
        ("gitlab", 409, "merge_requests$", "open-pr", "refuses"),
    ],
    indirect=["kind"],
)
def test_refused_pushes_and_pull_requests_are_retried(
    daemon: ForgeDaemon, forge: Forge, fault_kind: int | str, path: str, effect: str, expected_text: str
) -> None:
    fault = forge.fail(fault_kind, next=10_000, path=path)
    daemon.start_session()
    daemon.wait_for_delay(effect, expected_text)
    assert daemon.count_requests(4, git=True) <= 30
    delays = [event for event in daemon.box.events("one") if event["type"] == "effect-delayed"]
    assert len(delays) <= 2, delays
    fault.remaining = 0
    daemon.check_and_merge(daemon.open_pull_request())


def test_an_agents_reply_is_posted_once_the_forge_is_reachable_again(daemon: ForgeDaemon, forge: Forge) -> None:
    resume_file = daemon.box.folder / "go-on"
    wait_for_file = f"[[sh: until test -e {resume_file}; do sleep 0.1; done]]"
    daemon.start_session(
        f"[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] {wait_for_file} [[reply: {{comment}}|Because]]"
    )
    pull = daemon.open_pull_request()
    daemon.comment_on_line(pull, "Why?")
    daemon.wait_until_sent("Why?")
    forge.down()
    daemon.wait_for_doctor("could not be asked")
    resume_file.touch()
    daemon.wait_for_delay("reply", "could not be asked")
    forge.up()
    daemon.box.wait_until(lambda: agent_replies(pull), "the reply", 60)
    daemon.check_and_merge(pull)
    assert len(agent_replies(pull)) == 1


def agent_replies(pull: Any) -> list[str]:
    comments = [*pull.comments, *pull.threads[0].comments]
    return [comment.body for comment in comments if "Because" in comment.body]


@pytest.mark.parametrize("updates", ["polling", "webhooks"])
def test_partial_graphql_answers_are_requested_again(tmp_path: Path, forge: GitHubServer, updates: str) -> None:
    with forge_daemon(tmp_path, forge, "github", updates) as daemon:
        pull = daemon.new_pull_request()
        fault = forge.fail("partial", next=3, field="reviewThreads")
        daemon.comment_on_line(pull, "Said meanwhile")
        daemon.wait_until_sent("Said meanwhile")
        assert fault.remaining == 0
        fault = forge.fail("partial", next=10_000, field="reviewThreads")
        daemon.comment_on_line(pull, "Said much later")
        daemon.wait_for_doctor("is not told whole: comments")
        before = forge.ledger.counts()["graphql"]
        daemon.box.wait_until(lambda: no_requests_for(forge, 4), "it to be asked for no more", 60)
        assert forge.ledger.counts()["graphql"] - before <= 20
        fault.remaining = 0
        daemon.comment_on_line(pull, "And another")
        daemon.wait_until_sent("Said much later", "And another")
        daemon.check_and_merge(pull)


def no_requests_for(forge: GitHubServer, seconds: float) -> bool:
    before = forge.ledger.counts()["graphql"]
    time.sleep(seconds)
    return forge.ledger.counts()["graphql"] == before
