"""Issues at a forge, with the demo agent: assigned by their labels, labelled with the progress, closed by the merge."""

from __future__ import annotations

import base64
import contextlib
import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, rule_messages, wait_for_session, wait_for_status

CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{autoAssign: {auto}}}
agents:
  tester: {{tool: demo, filters: {{labels: [needs-tests]}}}}
projects:
  app:
    path: .
    repo: acme/app
    scm: {{plugin: github, apiUrl: "{url}", token: "{token}", poll: 1s, webhook: {{secret: s3cret}}}}
    tracker:
      plugin: github
      apiUrl: "{url}"
      token: "{token}"
      poll: 1s
      labels: {{inProgress: doing, inReview: reviewing}}
      webhook: {{secret: s3cret}}
reactions:
  label-added: {{action: send-to-agent, condition: "label == 'urgent'", message: "It got {{{{label}}}} [[say: I see]]"}}
"""

SCRIPT = "[[write: b.txt|one]] [[commit: one]] [[done: made]]"


@pytest.fixture(params=["webhooks", "polling"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, forge: GitHubServer, way: str, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with issue_sandbox(tmp_path, forge, way, auto="auto_assign" in request.node.name) as sandbox:
        yield sandbox


@contextlib.contextmanager
def issue_sandbox(folder: Path, forge: GitHubServer, way: str, auto: bool = False) -> Iterator[Sandbox]:
    """Yield a sandbox with a clone of a repository at the forge, and its daemon."""
    forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    token = forge.token("dev")
    with Sandbox(folder, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(url=forge.url, token=token, auto=str(auto).lower()))
        sandbox.git("remote", "add", "origin", forge.git_url("acme/app"))
        login = base64.b64encode(f"x:{token}".encode()).decode()
        sandbox.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        sandbox.git("reset", "-q", "--hard", "origin/main")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        if way == "webhooks":
            forge.hook("acme/app", f"{address(sandbox)}/api/webhooks/github", "s3cret")
        yield sandbox


def address(box: Sandbox) -> str:
    return str(json.loads(box.home.daemon_info.read_text())["url"])


def test_auto_assign_starts_one_session_for_an_issue_and_the_merge_closes_it(box: Sandbox, forge: GitHubServer) -> None:
    other = forge.issue("acme/app", "Not for us", "[[done: no]]", by="rev")
    issue = forge.issue("acme/app", "Add a file", SCRIPT, by="rev")
    forge.label_issue(issue, "needs-tests")
    session = box.wait_until(lambda: box.sessions()[:1], "a session", TIMEOUT)[0]
    assert (session["issue"], session["profile"], session["title"]) == (str(issue.number), "tester", "Add a file")
    name = session["name"]
    ready = wait_for_session(box, name, lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", ready["pr"]["number"])
    assert f"Closes #{issue.number}" in (pull.body or "")
    labels = {"needs-tests", "reviewing"}
    box.wait_until(lambda: {label.name for label in issue.labels} == labels, "the issue to be in review", TIMEOUT)
    assert any("/pull/" in (comment.body or "") for comment in issue.comments)
    assert [user.login for user in issue.assignees] == ["dev"]

    forge.label_issue(issue, "urgent")
    box.wait_until(lambda: rule_messages(box, name), "the label to be told", TIMEOUT)
    box.stop()
    box.start()
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, name, "mergeable")
    box.ao("merge", name)
    box.wait_until(lambda: issue.state == "closed", "the issue to be closed", TIMEOUT)
    box.wait_until(
        lambda: not {"doing", "reviewing"} & {label.name for label in issue.labels}, "its labels to go", TIMEOUT
    )
    assert other.state == "open" and len(box.sessions()) == 1


def test_issues_are_listed_opened_commented_and_started_by_number(box: Sandbox, forge: GitHubServer) -> None:
    new_issue = box.json("issue", "new", "Write it", "-m", SCRIPT, "--label", "files")
    issue = forge.find_issue("acme/app", new_issue["number"])
    assert issue.title == "Write it" and new_issue["url"].endswith(f"/issues/{new_issue['number']}")
    box.ao("issue", "comment", str(new_issue["number"]), "-m", "Call it b.txt")
    assert "Call it b.txt" in (issue.comments[0].body or "")
    assert box.json("issue", "show", str(new_issue["number"]))["comments"][0]["body"] == "Call it b.txt"
    other_issue = forge.issue("acme/app", "Of theirs", "text", by="rev")

    def listed_numbers() -> list[int]:
        return [
            listed_issue["number"]
            for listed_issue in box.json("issues")["issues"]
            if listed_issue["title"] == "Of theirs"
        ]

    assert box.wait_until(listed_numbers, "it to be listed", TIMEOUT) == [other_issue.number]
    box.ao("new", f"#{new_issue['number']}")
    task = next(box.home.path.glob("sessions/*/task.md")).read_text()
    assert "> Call it b.txt" in task and box.sessions()[0]["issue"] == str(new_issue["number"])


def test_comments_by_others_are_not_recorded_under_the_person_whose_request_read_them(
    tmp_path: Path, forge: GitHubServer
) -> None:
    with issue_sandbox(tmp_path, forge, "polling") as box:
        issue = forge.issue("acme/app", "Of theirs", "text", by="rev")
        box.wait_until(lambda: box.json("issues")["issues"], "it to be listed", TIMEOUT)
        forge.user("mallory")
        forge.comment(issue, "I am the owner", by="mallory")
        box.ao("issue", "label", str(issue.number), "urgent")
        other = forge.issue("acme/app", "Of a stranger", "text", by="mallory")
        box.ao("new", f"#{other.number}")
        audit_records = [json.loads(line) for line in box.ao("audit", "--json", "-n", "1000").stdout.splitlines()]
    actors = {(record["type"], record["data"].get("number")): record["actor"] for record in audit_records}
    assert actors["issue-comment", issue.number] == actors["issue-opened", other.number] == "github"
    labelled = actors["label-added", issue.number], actors.get(("action-taken", None))  # where a poll was faster
    assert f"local {getpass.getuser()}" in labelled
