"""Issues at a forge, with the demo agent: taken by their labels, told how far the work is, closed by its landing."""

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
    with boxed(tmp_path, forge, way, auto="by_itself" in request.node.name) as sandbox:
        yield sandbox


@contextlib.contextmanager
def boxed(folder: Path, forge: GitHubServer, way: str, auto: bool = False) -> Iterator[Sandbox]:
    """A clone of a repository at the forge, with its daemon."""
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
    return str(json.loads(box.home.info.read_text())["url"])


def test_an_issue_is_taken_by_itself_once_and_closed_by_its_landing(box: Sandbox, forge: GitHubServer) -> None:
    other = forge.issue("acme/app", "Not for us", "[[done: no]]", by="rev")
    issue = forge.issue("acme/app", "Add a file", SCRIPT, by="rev")
    forge.label_issue(issue, "needs-tests")
    session = box.until(lambda: box.sessions()[:1], "a session", TIMEOUT)[0]
    assert (session["issue"], session["profile"], session["title"]) == (str(issue.number), "tester", "Add a file")
    name = session["name"]
    ready = wait_for_session(box, name, lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", ready["pr"]["number"])
    assert f"Closes #{issue.number}" in (pull.body or "")
    wanted = {"needs-tests", "reviewing"}
    box.until(lambda: {label.name for label in issue.labels} == wanted, "the issue to be in review", TIMEOUT)
    assert any("/pull/" in (one.body or "") for one in issue.comments)
    assert [user.login for user in issue.assignees] == ["dev"]

    forge.label_issue(issue, "urgent")
    box.until(lambda: rule_messages(box, name), "the label to be told", TIMEOUT)
    box.stop()
    box.start()
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, name, "mergeable")
    box.ao("merge", name)
    box.until(lambda: issue.state == "closed", "the issue to be closed", TIMEOUT)
    box.until(lambda: not {"doing", "reviewing"} & {label.name for label in issue.labels}, "its labels to go", TIMEOUT)
    assert other.state == "open" and len(box.sessions()) == 1


def test_issues_are_listed_made_changed_and_worked_on_by_name(box: Sandbox, forge: GitHubServer) -> None:
    made = box.json("issue", "new", "Write it", "-m", SCRIPT, "--label", "files")
    issue = forge.find_issue("acme/app", made["number"])
    assert issue.title == "Write it" and made["url"].endswith(f"/issues/{made['number']}")
    box.ao("issue", "comment", str(made["number"]), "-m", "Call it b.txt")
    assert "Call it b.txt" in (issue.comments[0].body or "")
    assert box.json("issue", "show", str(made["number"]))["comments"][0]["body"] == "Call it b.txt"
    theirs = forge.issue("acme/app", "Of theirs", "text", by="rev")

    def listed() -> list[int]:
        return [one["number"] for one in box.json("issues")["issues"] if one["title"] == "Of theirs"]

    assert box.until(listed, "it to be listed", TIMEOUT) == [theirs.number]
    box.ao("new", f"#{made['number']}")
    task = next(box.home.path.glob("sessions/*/task.md")).read_text()
    assert "> Call it b.txt" in task and box.sessions()[0]["issue"] == str(made["number"])


def test_what_others_said_there_is_nobodys_who_had_it_read(tmp_path: Path, forge: GitHubServer) -> None:
    with boxed(tmp_path, forge, "polling") as box:
        issue = forge.issue("acme/app", "Of theirs", "text", by="rev")
        box.until(lambda: box.json("issues")["issues"], "it to be listed", TIMEOUT)
        forge.user("mallory")
        forge.comment(issue, "I am the owner", by="mallory")
        box.ao("issue", "label", str(issue.number), "urgent")
        other = forge.issue("acme/app", "Of a stranger", "text", by="mallory")
        box.ao("new", f"#{other.number}")
        told = [json.loads(line) for line in box.ao("audit", "--json", "-n", "1000").stdout.splitlines()]
    who = {(one["type"], one["data"].get("number")): one["actor"] for one in told}
    assert who["issue-comment", issue.number] == who["issue-opened", other.number] == "github"
    labelled = who["label-added", issue.number], who.get(("action-taken", None))  # where a poll was faster
    assert f"local {getpass.getuser()}" in labelled
