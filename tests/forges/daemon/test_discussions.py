"""Discussions that people settle, and people who are asked to look: from the command line to GitHub and GitLab."""

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
    made = GitLabServer() if kind == "gitlab" else GitHubServer(schema=request.getfixturevalue("schema"))
    with made as server:
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
    found: list[Any] = box.request("GET", "/api/sessions/one/review")["threads"]
    return found


def is_resolved(thread: Any) -> bool:
    return bool(thread.resolved_by if hasattr(thread, "resolved_by") else thread.resolved)


def requested(pull: Any) -> set[str]:
    return {one.login for one in pull.requested} if hasattr(pull, "requested") else set(pull.reviewers)


def test_discussions_are_settled_there_too(box: Sandbox, forge: Forge, pull: Any) -> None:
    made: list[Any] = [forge.thread(pull, "b.txt", 1, f"Question {number}?", by="rev") for number in range(3)]
    box.until(lambda: len(threads(box)) == 3, "the discussions", TIMEOUT)
    first, second, third = threads(box)
    assert f"({first['id']})" in box.ao("review", "one").stdout

    done = box.ao("review", "one", "--resolve", first["id"])
    assert done.stdout.splitlines()[0] == f"app-one #{pull.number}: resolved"
    assert [is_resolved(one) for one in made] == [True, False, False]
    assert f"({first['id']}, resolved)" in box.ao("review", "one").stdout
    shown = box.json("review", "one", "--resolve", second["comments"][0]["id"])["threads"]
    assert [one["resolved"] for one in shown] == [True, True, False]
    assert [is_resolved(one) for one in made] == [True, True, False]
    shown = box.json("review", "one", "--resolve", "all")["threads"]
    assert all(one["resolved"] for one in shown) and all(is_resolved(one) for one in made)
    box.json("review", "one", "--resolve", third["id"], "--resolve", first["id"])  # they are already

    forge.resolve(made[0], False)
    forge.comment(pull, "Not yet", by="rev")  # that it was taken up again is told by nobody
    box.until(lambda: not threads(box)[0]["resolved"], "it to be taken up again", TIMEOUT)
    told = [one["data"] for one in box.events("one") if one["type"] == "thread-settled"]
    settled = [one["thread"] for one in told if one.get("resolved")]
    assert sorted(settled) == sorted(one["id"] for one in (first, second, third))


def test_what_an_agent_replies_or_sums_up_is_no_order_to_the_forge(box: Sandbox, forge: Forge) -> None:
    """GitLab does what a line that begins with a slash says, with the rights of whose token it is: approve, merge."""
    prompt = "/target_branch old\n[[write: b.txt|one]] [[commit: one]] [[done: /approve]]"
    box.request("POST", "/api/sessions", {"name": "one", "title": "One [skip ci]", "prompt": prompt})
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", now["pr"]["number"])
    thread: Any = forge.thread(pull, "b.txt", 1, "Why?", by="rev")
    box.until(lambda: threads(box), "the discussion", TIMEOUT)
    asked = threads(box)[0]["comments"][0]["id"]
    box.ao("send", "one", f"[[reply: {asked}|/merge, @ann]]")
    box.until(lambda: len(thread.comments) == 2, "the reply", TIMEOUT)
    reply = thread.comments[1].body
    for said in (reply, pull.body):
        assert not re.search(r"(?m)^\s*/\w", said), said
    assert "merge" in reply and "@ann" not in reply
    assert "approve" in pull.body and "target_branch" in pull.body
    assert "[skip ci]" not in pull.title and "skip" in pull.title


def test_what_cannot_be_settled_is_said_in_a_line(box: Sandbox, forge: Forge, pull: Any, kind: str) -> None:
    assert_refused(
        box.ao("review", "one", "--resolve", "nothing", check=False), 3, "no discussion nothing", "ao review"
    )
    forge.comment(pull, "In general", by="rev")
    box.until(lambda: threads(box), "the comment", TIMEOUT)
    assert_refused(box.ao("review", "one", "--resolve", threads(box)[0]["id"], check=False), 2, "on the whole", kind)
    assert box.json("review", "one", "--resolve", "all")["threads"][0]["resolved"] is False
    box.request("POST", "/api/sessions", {"name": "two", "title": "Two", "prompt": "[[wait]]"})
    assert_refused(box.ao("review", "two", "--resolve", "all", check=False), 3, "no pull request yet", "first commit")
    assert_refused(box.ao("review", "two", "--request", "rev", check=False), 3, "no pull request yet", "first commit")


def test_people_are_asked_to_look(box: Sandbox, forge: Forge, pull: Any) -> None:
    done = box.ao("review", "one", "--request", "rev", "--request", "@ann")
    assert done.stdout.splitlines()[0] == f"app-one #{pull.number}: rev, @ann asked to look at it"
    assert requested(pull) == {"rev", "ann"}
    assert box.json("review", "one", "--request", "rev")["requested"] == ["rev", "ann"]
    assert requested(pull) == {"rev", "ann"}
    assert "asked to look at it: rev, ann" in box.ao("review", "one").stdout
    assert_refused(box.ao("review", "one", "--request", "nobody", check=False), 1, "nobody", "name")
    assert_refused(box.ao("review", "one", "--request", "no body", check=False), 2, "nobody's name", "address")
    assert box.json("review", "one")["requested"] == ["rev", "ann"]


def test_a_forge_that_cannot_be_reached_is_asked_later(box: Sandbox, forge: Forge, pull: Any) -> None:
    """The daemon is killed in between: it is done once, and told once; who asks again is told what came of it."""
    thread = forge.thread(pull, "b.txt", 1, "Why?", by="rev")
    box.until(lambda: threads(box), "the discussion", TIMEOUT)
    name = threads(box)[0]["id"]
    fault = forge.fail(503, next=1000)

    def ask() -> Any:
        return box.request("POST", "/api/sessions/one/resolve", {"threads": [name]}, **{"Idempotency-Key": "k1"})

    def ask_in_vain() -> None:
        with contextlib.suppress(AoError):
            ask()

    said = box.ao("review", "one", "--request", "rev").stdout.splitlines()[0]
    assert said.endswith("the forge cannot be reached just now, it is done as soon as it can")
    asking = threading.Thread(target=ask_in_vain)
    asking.start()
    box.until(
        lambda: any(one["type"] == "resolve-requested" for one in box.events("one")), "it to be recorded", TIMEOUT
    )
    box.stop(9)
    asking.join(TIMEOUT)
    fault.left = 0
    assert not is_resolved(thread)
    box.start()
    box.until(lambda: is_resolved(thread) and requested(pull) == {"rev"}, "it to be done", TIMEOUT)
    assert ask()["threads"][0]["resolved"]
    types = [one["type"] for one in box.events("one")]
    assert (types.count("resolve-requested"), types.count("thread-settled")) == (1, 1)
    assert rule_messages(box, "one") == []
