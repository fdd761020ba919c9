"""A change from its task to the merge at a forge, with the demo agent: by webhooks, and by polling alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, Json, rule_messages, wait_for_session, wait_for_status

CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{autoAssign: true}}
agents:
  tester: {{tool: demo, filters: {{labels: [needs-tests]}}}}
projects:
  app:
    path: .
    repo: acme/app
    scm: &at {{plugin: {kind}, apiUrl: "{url}", token: "{token}", poll: 1s, webhook: {{secret: s3cret}}}}
    tracker: {{<<: *at, labels: {{inProgress: doing, inReview: reviewing}}}}
"""


Forge = GitHubServer | GitLabServer


@pytest.fixture(params=["github", "gitlab"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(kind: str, request: pytest.FixtureRequest) -> Iterator[Forge]:
    if kind == "gitlab":
        with GitLabServer() as gitlab:
            yield gitlab
    else:
        with GitHubServer(schema=request.getfixturevalue("schema")) as github:
            yield github


@pytest.fixture(params=["webhooks", "polling"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, forge: Forge, kind: str, way: str) -> Iterator[Sandbox]:
    """Yield a sandbox with a clone of a repository at the forge, and its daemon."""
    forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(kind=kind, url=forge.url, token=forge.token("dev")))
        sandbox.git("remote", "add", "origin", forge.git_url("acme/app"))
        sandbox.git("-c", f"http.extraHeader={authorization_header(forge)}", "fetch", "-q", "origin")
        sandbox.git("reset", "-q", "--hard", "origin/main")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        if way == "webhooks":
            forge.hook("acme/app", f"{address(sandbox)}/api/webhooks/{kind}", "s3cret")
        yield sandbox


def authorization_header(forge: Forge) -> str:
    import base64

    return "Authorization: Basic " + base64.b64encode(f"x:{forge.token('dev')}".encode()).decode()


def address(box: Sandbox) -> str:
    import json

    return str(json.loads(box.home.daemon_info.read_text())["url"])


def start_session(box: Sandbox, name: str, script: str, **options: Any) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script, **options})


def test_a_task_becomes_a_pull_request_and_is_merged(box: Sandbox, forge: Forge) -> None:
    start_session(box, "one", "[[write: b.txt|one]] [[commit: one]] [[wait]] [[done: made]]")
    draft = wait_for_session(box, "one", lambda now: now["pr"], "a pull request")
    pull = forge.find_pull("acme/app", draft["pr"]["number"])
    assert pull.draft and draft["pr"]["url"]
    box.ao("send", "one", "go on")
    wait_for_session(box, "one", lambda now: now["pr"]["state"] == "open", "to be ready")
    assert not pull.draft
    fix_review_and_merge(box, forge, "one", draft)


def test_a_labelled_issue_becomes_a_pull_request_and_is_closed_by_the_merge(box: Sandbox, forge: Forge) -> None:
    issue: Any = forge.issue("acme/app", "Add a file", "[[write: b.txt|one]] [[commit: one]] [[done: made]]", by="rev")
    other = forge.issue("acme/app", "Not for us", "[[done: no]]", by="rev")
    forge.label_issue(issue, "needs-tests")
    [session] = box.wait_until(box.sessions, "a session", TIMEOUT)
    name = session["name"]
    assert (session["profile"], session["title"]) == ("tester", "Add a file")
    ready = wait_for_session(box, name, lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    labels = {"needs-tests", "reviewing"}
    box.wait_until(
        lambda: {str(getattr(label, "name", label)) for label in issue.labels} == labels, "it to be in review", TIMEOUT
    )
    fix_review_and_merge(box, forge, name, ready)
    box.wait_until(lambda: issue.state == "closed", "the issue to be closed", TIMEOUT)
    assert other.state != "closed" and len(box.sessions()) == 1


def fix_review_and_merge(box: Sandbox, forge: Forge, name: str, draft: Json) -> None:
    """Fail a check that the agent fixes, comment as a reviewer so that it replies and changes the file, approve, and merge."""
    pull: Any = forge.find_pull("acme/app", draft["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests", "failure", log="collected 1\nE   assert 1 == 2\nFAILED b.txt\n")
    box.wait_until(lambda: rule_messages(box, name), "the failure to be sent", TIMEOUT)
    [message] = rule_messages(box, name)
    assert "assert 1 == 2" in message
    session = wait_for_session(box, name, lambda now: now["head"] != draft["head"], "a commit")
    box.wait_until(lambda: pull.head_sha == box.session(name)["head"], "the push", TIMEOUT)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(
        box, name, lambda now: now["pr"]["checks"] and now["pr"]["checks"][0]["state"] == "success", "the check"
    )

    forge.thread(pull, "b.txt", 1, "Why? [[reply: {comment}|Because]] [[write: b.txt|two]] [[commit: two]]", by="rev")
    box.wait_until(lambda: len(rule_messages(box, name)) == 2, "the comment to be sent", TIMEOUT)
    box.wait_until(
        lambda: any(comment.body.startswith("Because") for comment in pull.threads[0].comments), "the reply", TIMEOUT
    )
    box.wait_until(lambda: pull.head_sha not in (draft["head"], session["head"]), "the next push", TIMEOUT)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, name, "mergeable")
    box.ao("merge", name)
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "two\n"
    merged = wait_for_session(box, name, lambda now: now["pr"]["state"] == "merged", "to be merged")
    assert merged["status"] in ("merged", "stopped", "cleaning_up"), merged["status"]
