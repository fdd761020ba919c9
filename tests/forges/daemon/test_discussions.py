"""Discussions resolved and reviewers requested from the command line, at GitHub and GitLab."""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, rule_messages, wait_for_session

CONFIG = """
defaults: {{agent: demo, runtime: process}}
reactions: {{review-comment: {{auto: false}}}}
projects:
  app:
    path: .
    repo: acme/app
    scm: {{plugin: {kind}, apiUrl: "{url}", token: "{token}", poll: 1s}}
    tracker: local
"""

Forge = GitHubServer | GitLabServer


@pytest.fixture(params=["github", "gitlab"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(kind: str, request: pytest.FixtureRequest) -> Iterator[Forge]:
    forge_server = GitLabServer() if kind == "gitlab" else GitHubServer(schema=request.getfixturevalue("schema"))
    with forge_server as server:
        yield server


@pytest.fixture
def box(tmp_path: Path, forge: Forge, kind: str) -> Iterator[Sandbox]:
    forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write", "ann": "write"})
    token = forge.token("dev")
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(kind=kind, url=forge.url, token=token))
        login = base64.b64encode(f"x:{token}".encode()).decode()
        sandbox.git("remote", "add", "origin", forge.git_url("acme/app"))
        sandbox.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        sandbox.git("reset", "-q", "--hard", "origin/main")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        yield sandbox


@pytest.fixture
def pull(box: Sandbox, forge: Forge) -> Any:
    """The pull request of the session `one`."""
    script = "[[write: b.txt|one]] [[commit: one]] [[done: made]]"
    box.request("POST", "/api/sessions", {"name": "one", "title": "One", "prompt": script})
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    return forge.find_pull("acme/app", now["pr"]["number"])


def threads(box: Sandbox) -> list[Any]:
    discussions: list[Any] = box.request("GET", "/api/sessions/one/review")["threads"]
    return discussions


def is_resolved(thread: Any) -> bool:
    return bool(thread.resolved_by if hasattr(thread, "resolved_by") else thread.resolved)


def requested_reviewers(pull: Any) -> set[str]:
    return {user.login for user in pull.requested} if hasattr(pull, "requested") else set(pull.reviewers)


def test_resolving_a_discussion_resolves_it_at_the_forge(box: Sandbox, forge: Forge, pull: Any) -> None:
    forge_threads: list[Any] = [forge.thread(pull, "b.txt", 1, f"Question {number}?", by="rev") for number in range(3)]
    box.wait_until(lambda: len(threads(box)) == 3, "the discussions", TIMEOUT)
    first, second, third = threads(box)
    assert f"({first['id']})" in box.ao("review", "one").stdout

    output = box.ao("review", "one", "--resolve", first["id"])
    assert output.stdout.splitlines()[0] == f"app-one #{pull.number}: resolved"
    assert [is_resolved(thread) for thread in forge_threads] == [True, False, False]
    assert f"({first['id']}, resolved)" in box.ao("review", "one").stdout
    discussions = box.json("review", "one", "--resolve", second["comments"][0]["id"])["threads"]
    assert [discussion["resolved"] for discussion in discussions] == [True, True, False]
    assert [is_resolved(thread) for thread in forge_threads] == [True, True, False]
    discussions = box.json("review", "one", "--resolve", "all")["threads"]
    assert all(discussion["resolved"] for discussion in discussions) and all(map(is_resolved, forge_threads))
    box.json("review", "one", "--resolve", third["id"], "--resolve", first["id"])  # they are resolved already

    forge.resolve(forge_threads[0], False)
    forge.comment(pull, "Not yet", by="rev")  # that it was taken up again is told by nobody
    box.wait_until(lambda: not threads(box)[0]["resolved"], "the discussion to be reopened", TIMEOUT)
    events = [event["data"] for event in box.events("one") if event["type"] == "thread-settled"]
    settled = [event["thread"] for event in events if event.get("resolved")]
    assert sorted(settled) == sorted(discussion["id"] for discussion in (first, second, third))


def test_replies_and_summaries_of_agents_contain_no_commands_to_the_forge(box: Sandbox, forge: Forge) -> None:
    """GitLab runs lines that begin with a slash as commands, with the rights of the token's owner: approve, merge."""
    prompt = "/target_branch old\n[[write: b.txt|one]] [[commit: one]] [[done: /approve]]"
    box.request("POST", "/api/sessions", {"name": "one", "title": "One [skip ci]", "prompt": prompt})
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", now["pr"]["number"])
    thread: Any = forge.thread(pull, "b.txt", 1, "Why?", by="rev")
    box.wait_until(lambda: threads(box), "the discussion", TIMEOUT)
    comment_id = threads(box)[0]["comments"][0]["id"]
    box.ao("send", "one", f"[[reply: {comment_id}|/merge, @ann]]")
    box.wait_until(lambda: len(thread.comments) == 2, "the reply", TIMEOUT)
    reply = thread.comments[1].body
    for text in (reply, pull.body):
        assert not re.search(r"(?m)^\s*/\w", text), text
    assert "merge" in reply and "@ann" not in reply
    assert "approve" in pull.body and "target_branch" in pull.body
    assert "[skip ci]" not in pull.title and "skip" in pull.title


def test_discussions_that_cannot_be_resolved_are_refused_in_one_line(
    box: Sandbox, forge: Forge, pull: Any, kind: str
) -> None:
    assert_refused(
        box.ao("review", "one", "--resolve", "nothing", check=False), 3, "no discussion nothing", "ao review"
    )
    forge.comment(pull, "In general", by="rev")
    box.wait_until(lambda: threads(box), "the comment", TIMEOUT)
    assert_refused(box.ao("review", "one", "--resolve", threads(box)[0]["id"], check=False), 2, "on the whole", kind)
    assert box.json("review", "one", "--resolve", "all")["threads"][0]["resolved"] is False
    box.request("POST", "/api/sessions", {"name": "two", "title": "Two", "prompt": "[[wait]]"})
    assert_refused(box.ao("review", "two", "--resolve", "all", check=False), 3, "no pull request yet", "first commit")
    assert_refused(box.ao("review", "two", "--request", "rev", check=False), 3, "no pull request yet", "first commit")


def test_reviewers_are_requested_at_the_forge(box: Sandbox, forge: Forge, pull: Any) -> None:
    output = box.ao("review", "one", "--request", "rev", "--request", "@ann")
    assert output.stdout.splitlines()[0] == f"app-one #{pull.number}: rev, @ann asked to look at it"
    assert requested_reviewers(pull) == {"rev", "ann"}
    assert box.json("review", "one", "--request", "rev")["requested"] == ["rev", "ann"]
    assert requested_reviewers(pull) == {"rev", "ann"}
    assert "asked to look at it: rev, ann" in box.ao("review", "one").stdout
    assert_refused(box.ao("review", "one", "--request", "nobody", check=False), 1, "nobody", "name")
    assert_refused(box.ao("review", "one", "--request", "no body", check=False), 2, "nobody's name", "address")
    assert box.json("review", "one")["requested"] == ["rev", "ann"]


def test_requests_to_an_unreachable_forge_are_made_later(box: Sandbox, forge: Forge, pull: Any) -> None:
    """The daemon is killed in between: the discussion is resolved once and recorded once; the repeated request returns the result."""
    thread = forge.thread(pull, "b.txt", 1, "Why?", by="rev")
    box.wait_until(lambda: threads(box), "the discussion", TIMEOUT)
    thread_id = threads(box)[0]["id"]
    fault = forge.fail(503, next=1000)

    def resolve_thread_request() -> Any:
        return box.request("POST", "/api/sessions/one/resolve", {"threads": [thread_id]}, **{"Idempotency-Key": "k1"})

    def resolve_and_ignore_errors() -> None:
        with contextlib.suppress(AoError):
            resolve_thread_request()

    first_line = box.ao("review", "one", "--request", "rev").stdout.splitlines()[0]
    assert first_line.endswith("the forge cannot be reached just now, it is done as soon as it can")
    resolve_thread = threading.Thread(target=resolve_and_ignore_errors)
    resolve_thread.start()
    box.wait_until(
        lambda: any(event["type"] == "resolve-requested" for event in box.events("one")), "it to be recorded", TIMEOUT
    )
    box.stop(9)
    resolve_thread.join(TIMEOUT)
    fault.remaining = 0
    assert not is_resolved(thread)
    box.start()
    box.wait_until(lambda: is_resolved(thread) and requested_reviewers(pull) == {"rev"}, "it to be done", TIMEOUT)
    assert resolve_thread_request()["threads"][0]["resolved"]
    types = [event["type"] for event in box.events("one")]
    assert (types.count("resolve-requested"), types.count("thread-settled")) == (1, 1)
    assert rule_messages(box, "one") == []
