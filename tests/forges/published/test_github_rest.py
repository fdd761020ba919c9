"""Every REST answer in a pull request's life is as GitHub's OpenAPI description says."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing.github import GitHubServer
from tests.forges import fetch
from tests.forges.client import Client
from tests.forges.conftest import published

pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test-forges")
from tests.forges.published.openapi import Description


@pytest.fixture(scope="module")
def description() -> Description:
    return Description(published(fetch.OPENAPI))


def test_a_whole_life_is_described(description: Description) -> None:
    with GitHubServer() as forge:
        client = live(forge)
    problems = {one for answer in client.answers for one in description.problems(*answer)}
    assert not problems, "\n".join(sorted(problems))
    assert len(client.answers) > 70


def live(forge: GitHubServer) -> Client:
    """Issue, branch, pull request, failing CI, review, threads, fix, approval, merge: everything asked for on the way."""
    repo = forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "admin", "rev": "write"})
    forge.protect(repo, checks=("tests",), approvals=1)
    dev, rev = Client(forge, forge.token("dev")), Client(forge, forge.token("rev"))
    rev.answers = dev.answers
    base = "/repos/acme/app"
    for path in ("/user", "/users/rev", "/meta", "/rate_limit", base, f"{base}/branches", f"{base}/branches/main"):
        dev("GET", path)
    for path in ("protection", "protection/required_status_checks"):
        dev("GET", f"{base}/branches/main/{path}")
    dev("GET", f"{base}/rules/branches/main")
    dev("GET", f"{base}/collaborators/rev/permission")
    hook = dev(
        "POST",
        f"{base}/hooks",
        {"config": {"url": "http://127.0.0.1:9/", "secret": "s", "content_type": "json"}, "events": ["*"]},
    )
    dev("GET", f"{base}/hooks")
    dev("POST", f"{base}/hooks/{hook['id']}/pings")
    dev("GET", f"{base}/hooks/{hook['id']}/deliveries")
    dev("DELETE", f"{base}/hooks/{hook['id']}")

    issue = dev(
        "POST", f"{base}/issues", {"title": "It breaks", "body": "Like this", "labels": ["bug"], "assignees": ["dev"]}
    )
    at = f"{base}/issues/{issue['number']}"
    dev("POST", f"{base}/labels", {"name": "ready", "color": "00ff00"})
    dev("POST", f"{at}/labels", {"labels": ["ready"]})
    dev("GET", f"{at}/labels")
    dev("DELETE", f"{at}/labels/ready")
    dev("PUT", f"{at}/labels", {"labels": ["bug"]})
    dev("DELETE", f"{at}/assignees", {"assignees": ["dev"]})
    dev("POST", f"{at}/assignees", {"assignees": ["dev"]})
    said = dev("POST", f"{at}/comments", {"body": "On it"})
    dev("PATCH", f"{base}/issues/comments/{said['id']}", {"body": "On it now"})
    dev("GET", f"{base}/issues/comments/{said['id']}")
    dev("GET", f"{at}/comments")
    dev("PATCH", at, {"title": "It breaks badly"})
    dev("GET", at)
    assert [one["number"] for one in dev("GET", f"{base}/issues?labels=bug&assignee=dev&state=open")] == [
        issue["number"]
    ]
    dev("GET", f"{base}/labels")

    forge.push(repo, "fix", {"a.txt": "1\n2\n3\n4\n", "b/new.txt": "new\n"}, by="dev")
    pull = dev(
        "POST", f"{base}/pulls", {"title": "Fix it", "head": "fix", "base": "main", "body": f"Fixes #{issue['number']}"}
    )
    of = f"{base}/pulls/{pull['number']}"
    dev("POST", f"{base}/issues/{pull['number']}/labels", {"labels": ["bug"]})
    dev("GET", f"{base}/pulls?state=open&head=acme:fix")
    dev("GET", f"{base}/issues")
    for path in ("", "/files", "/commits", "/reviews", "/comments", "/requested_reviewers"):
        dev("GET", of + path)
    dev("PATCH", of, {"title": "Fix it well"})
    dev("POST", f"{of}/requested_reviewers", {"reviewers": ["rev"]})
    dev("DELETE", f"{of}/requested_reviewers", {"reviewers": ["rev"]})

    sha = pull["head"]["sha"]
    forge.check(
        repo, sha, "tests", "failure", log="assert 1 == 2", summary="1 failed", annotations=[{"message": "boom"}]
    )
    forge.check(repo, sha, "lint", None, app="checks-app")
    dev(
        "POST", f"{base}/statuses/{sha}", {"state": "pending", "context": "deploy", "target_url": "https://example.org"}
    )
    for path in ("check-runs", "check-suites", "status", "statuses", "pulls"):
        dev("GET", f"{base}/commits/{sha}/{path}")
    dev("GET", f"{base}/commits/{sha}")
    run = dev("GET", f"{base}/commits/{sha}/check-runs?check_name=tests")["check_runs"][0]
    dev("GET", f"{base}/check-runs/{run['id']}")
    dev("GET", f"{base}/check-runs/{run['id']}/annotations")
    work = dev("GET", f"{base}/actions/runs?head_sha={sha}")["workflow_runs"][0]
    dev("GET", f"{base}/actions/workflows")
    dev("GET", f"{base}/actions/workflows/{work['workflow_id']}")
    dev("GET", f"{base}/actions/runs/{work['id']}")
    job = dev("GET", f"{base}/actions/runs/{work['id']}/jobs")["jobs"][0]
    dev("GET", f"{base}/actions/jobs/{job['id']}")
    assert dev.ask("GET", f"{base}/actions/jobs/{job['id']}/logs")[0] == 302
    dev("POST", f"{base}/actions/runs/{work['id']}/rerun-failed-jobs")
    forge.check(repo, sha, "tests", "failure")

    assert dev.ask("POST", f"{of}/reviews", {"event": "APPROVE"})[0] == 422
    noted = rev("POST", f"{of}/comments", {"body": "Why 4?", "path": "a.txt", "line": 4, "commit_id": sha})
    dev("POST", f"{of}/comments/{noted['id']}/replies", {"body": "Because"})
    dev("GET", f"{of}/comments")
    dev("GET", f"{base}/pulls/comments/{noted['id']}")
    rev("PATCH", f"{base}/pulls/comments/{noted['id']}", {"body": "Why really?"})
    second = rev("POST", f"{of}/comments", {"body": "Gone soon", "path": "a.txt", "line": 4, "commit_id": sha})
    rev("DELETE", f"{base}/pulls/comments/{second['id']}")
    blocked = rev("POST", f"{of}/reviews", {"event": "REQUEST_CHANGES", "body": "No"})
    assert dev.ask("PUT", f"{of}/merge", {"sha": sha})[0] == 405
    rev("PUT", f"{of}/reviews/{blocked['id']}/dismissals", {"message": "Well"})
    forge.push(repo, "main", {"c.txt": "c\n"})
    dev("PUT", f"{of}/update-branch", {"expected_head_sha": sha})
    sha = dev("GET", of)["head"]["sha"]
    assert dev.ask("PUT", f"{of}/merge", {"sha": pull["head"]["sha"]})[0] == 409
    rev("POST", f"{of}/reviews", {"event": "APPROVE"})
    dev("GET", f"{of}/reviews")
    forge.check(repo, sha, "tests", "success")
    assert dev("GET", of)["mergeable_state"] == "clean"
    dev("GET", f"{base}/git/ref/heads/fix")
    assert dev("PUT", f"{of}/merge", {"sha": sha, "merge_method": "squash"})["merged"]
    dev("DELETE", f"{base}/git/refs/heads/fix")
    dev("POST", f"{base}/git/refs", {"ref": "refs/heads/again", "sha": sha})
    assert dev("GET", of)["merged"]
    assert dev("GET", at)["state"] == "closed"
    dev("GET", f"{base}/pulls?state=all")
    dev("DELETE", f"{base}/issues/comments/{said['id']}")
    assert dev.ask("GET", f"{base}/pulls/99")[0] == 404
    return dev
