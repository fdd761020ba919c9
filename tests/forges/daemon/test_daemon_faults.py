"""A forge that misbehaves, seen by a person with a real daemon: it is said what is wrong, the forge is not asked again and again, and
when the fault ends the session goes on and its change lands. Here: what it answers when it is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from tests.forges.daemon.faulty import GIT, NOT_GIT, REPO, Forge, Play, played


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
def play(tmp_path: Path, forge: Forge, kind: str) -> Iterator[Play]:
    with played(tmp_path, forge, kind) as started:
        yield started


both = pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)


@pytest.mark.parametrize(
    ("kind", "what", "said"),
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
def test_a_forge_that_says_no_is_waited_for(play: Play, forge: Forge, what: int | str, said: str) -> None:
    pull = play.made()
    fault = forge.fail(what, next=10_000, path=NOT_GIT)
    play.said(pull, "Said meanwhile")
    found = play.doctor(said)
    assert "\n" not in found["detail"]
    assert play.asked(5) <= 12
    assert not play.sent()
    fault.left = 0
    play.heard("Said meanwhile")
    assert not [one for one in play.box.request("GET", "/api/doctor")["checks"] if one["name"] == "reading app"]
    play.lands(pull)


@both
def test_what_a_poll_had_found_before_it_failed_is_not_forgotten(play: Play, forge: Forge) -> None:
    pull = play.made()
    fault = forge.fail(500, next=10_000, path="actions/runs|pipelines")
    play.said(pull, "Said meanwhile")
    play.doctor("failed with 500")
    fault.left = 0
    play.heard("Said meanwhile")
    play.lands(pull)


@both
def test_a_limit_is_kept_to_the_second_and_people_read_until_when(play: Play, forge: Forge, kind: str) -> None:
    pull = play.made()
    ends = time.time() + 8
    if kind == "github":
        forge.fail("secondary", retry_after=8, path=NOT_GIT)
    else:
        forge.set_rate(play.token, remaining=0, reset=ends)
    play.said(pull, "Said meanwhile")
    play.doctor("takes no more requests before")
    play.doctor("takes no more requests before")
    assert play.asked(ends - time.time() - 1) == 0
    play.heard("Said meanwhile")
    assert ends - 1 < time.time() < ends + 6
    play.lands(pull)


def test_too_many_requests_and_a_used_up_budget_are_waited_for(play: Play, forge: GitHubServer) -> None:
    pull = play.made()
    forge.fail(429, retry_after=4, path=NOT_GIT)
    play.said(pull, "After 429")
    play.doctor("takes no more requests before")
    play.heard("After 429")
    forge.set_rate(play.token, remaining=0, reset=time.time() + 5, kind="graphql")
    play.said(pull, "After the reset")
    play.doctor("takes no more requests before")
    assert play.asked(2) <= 12  # what costs nothing is still asked
    play.heard("After the reset")
    play.lands(pull)


def test_a_reset_time_in_the_past_is_no_reason_to_ask_again_at_once(play: Play, forge: GitHubServer) -> None:
    pull = play.made()
    forge.set_rate(play.token, remaining=0, reset=time.time() - 500)
    play.said(pull, "Said meanwhile")
    play.doctor("takes no more requests before")
    assert play.asked(10) <= 2
    forge.set_rate(play.token, remaining=4_000)
    play.heard("Said meanwhile")
    play.lands(pull)


@both
def test_a_token_that_expires_is_said_and_one_that_is_renewed_goes_on(play: Play, forge: Forge) -> None:
    play.begin("[[write: b.txt|one]] [[commit: one]] [[wait]] [[write: c.txt|two]] [[commit: two]] [[done: made]]")
    pull = play.opened("draft")
    token = forge.world.tokens[play.token]
    token.expired = True
    play.said(pull, "Said meanwhile")
    assert "scm.token" in play.doctor("is not accepted by Git")["detail"]
    play.box.ao("send", "one", "go on")
    told = play.delayed("push", "the token is not accepted")
    assert "ao doctor" in told["remedy"] and "\n" not in told["error"]
    assert play.asked(5, git=True) <= 30
    token.expired = False
    play.box.until(lambda: pull.head_sha == play.box.session("one")["head"] and not pull.draft, "the push", 60)
    assert forge.read(REPO, "feature/one", "c.txt") == "two\n"
    play.heard("Said meanwhile")
    play.box.until(lambda: pull.head_sha == play.box.session("one")["head"], "what came of that", 60)
    play.lands(pull)


@both
def test_a_wrong_token_is_replaced_in_the_configuration(tmp_path: Path, forge: Forge, kind: str) -> None:
    with played(tmp_path, forge, kind, token="wrong") as play:
        play.doctor("is not accepted by Git")
        play.begin()
        play.delayed("push", "the token is not accepted")
        play.configure(play.forge.token("dev"))
        play.lands(play.opened())


def test_a_scope_that_is_missing_is_named(tmp_path: Path, forge: GitHubServer) -> None:
    token = forge.token("dev", scopes=("read:org",))
    with played(tmp_path, forge, "github", token=token) as play:
        found = play.doctor("lacks the scope public_repo")
        assert "gh auth refresh" in found["remedy"]
        play.begin()
        told = play.delayed("open-pr", "may not see looks the same")
        assert "\n" not in told["error"]
        assert play.asked(4) <= 12
        forge.world.tokens[token].scopes = ("repo",)
        play.lands(play.opened())


@pytest.mark.parametrize(
    ("kind", "what", "path", "effect", "said"),
    [
        ("github", 401, GIT, "push", "the token is not accepted"),
        ("github", 403, GIT, "push", "it is forbidden"),
        ("github", 404, GIT, "push", "no such repository"),
        ("github", 500, GIT, "push", "tried again by itself"),
        ("github", "drop", GIT, "push", "tried again by itself"),
        ("github", 403, "pulls$", "open-pr", "forbids"),
        ("github", 409, "pulls$", "open-pr", "refuses"),
        ("github", 422, "pulls$", "open-pr", "Server Error"),
        ("github", 500, "pulls$", "open-pr", "failed with 500"),
        ("gitlab", 401, GIT, "push", "the token is not accepted"),
        ("gitlab", 409, "merge_requests$", "open-pr", "refuses"),
    ],
    indirect=["kind"],
)
def test_work_that_the_forge_does_not_take_is_brought_later(
    play: Play, forge: Forge, what: int | str, path: str, effect: str, said: str
) -> None:
    fault = forge.fail(what, next=10_000, path=path)
    play.begin()
    play.delayed(effect, said)
    assert play.asked(4, git=True) <= 30
    told = [one for one in play.box.events("one") if one["type"] == "effect-delayed"]
    assert len(told) <= 2, told
    fault.left = 0
    play.lands(play.opened())


def test_a_forge_out_of_reach_is_waited_for_and_so_is_what_the_agent_answers(play: Play, forge: Forge) -> None:
    go_on = play.box.folder / "go-on"
    held = f"[[sh: until test -e {go_on}; do sleep 0.1; done]]"
    play.begin(f"[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] {held} [[reply: {{comment}}|Because]]")
    pull = play.opened()
    play.said(pull, "Why?")
    play.heard("Why?")
    forge.down()
    play.doctor("could not be asked")
    go_on.touch()
    play.delayed("reply", "could not be asked")
    forge.up()
    play.box.until(lambda: answers(pull), "the reply", 60)
    play.lands(pull)
    assert len(answers(pull)) == 1


def answers(pull: Any) -> list[str]:
    said = [*pull.comments, *pull.threads[0].comments]
    return [one.body for one in said if "Because" in one.body]


@pytest.mark.parametrize("way", ["polling", "webhooks"])
def test_what_graphql_tells_only_in_part_is_asked_for_again(tmp_path: Path, forge: GitHubServer, way: str) -> None:
    with played(tmp_path, forge, "github", way) as play:
        pull = play.made()
        fault = forge.fail("partial", next=3, field="reviewThreads")
        play.said(pull, "Said meanwhile")
        play.heard("Said meanwhile")
        assert fault.left == 0
        fault = forge.fail("partial", next=10_000, field="reviewThreads")
        play.said(pull, "Said much later")
        play.doctor("is not told whole: comments")
        before = forge.ledger.counts()["graphql"]
        play.box.until(lambda: quiet(forge, 4), "it to be asked for no more", 60)
        assert forge.ledger.counts()["graphql"] - before <= 20
        fault.left = 0
        play.said(pull, "And another")
        play.heard("Said much later", "And another")
        play.lands(pull)


def quiet(forge: GitHubServer, seconds: float) -> bool:
    before = forge.ledger.counts()["graphql"]
    time.sleep(seconds)
    return forge.ledger.counts()["graphql"] == before
