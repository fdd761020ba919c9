"""REST answers from opening to merging a pull request match GitHub's OpenAPI description."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing.github import GitHubServer
from tests.forges import fetch
from tests.forges.client import ForgeClient
from tests.forges.conftest import published

pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test-forges")
from tests.forges.published.openapi import OpenApiDescription


@pytest.fixture(scope="module")
def description() -> OpenApiDescription:
    return OpenApiDescription(published(fetch.OPENAPI))


def test_all_answers_match_the_published_description(description: OpenApiDescription) -> None:
    with GitHubServer() as forge:
        client = play_pull_request(forge)
    problems = {problem for answer in client.answers for problem in description.problems(*answer)}
    assert not problems, "\n".join(sorted(problems))
    assert len(client.answers) > 70


def play_pull_request(forge: GitHubServer) -> ForgeClient:
    """Play issue, branch, pull request, failing CI, review, threads, fix, approval and merge with many requests; return the client."""
    repo = forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "admin", "rev": "write"})
    forge.protect(repo, checks=("tests",), approvals=1)
    dev, rev = ForgeClient(forge, forge.token("dev")), ForgeClient(forge, forge.token("rev"))
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
    issue_path = f"{base}/issues/{issue['number']}"
    dev("POST", f"{base}/labels", {"name": "ready", "color": "00ff00"})
    dev("POST", f"{issue_path}/labels", {"labels": ["ready"]})
    dev("GET", f"{issue_path}/labels")
    dev("DELETE", f"{issue_path}/labels/ready")
    dev("PUT", f"{issue_path}/labels", {"labels": ["bug"]})
    dev("DELETE", f"{issue_path}/assignees", {"assignees": ["dev"]})
    dev("POST", f"{issue_path}/assignees", {"assignees": ["dev"]})
    comment = dev("POST", f"{issue_path}/comments", {"body": "On it"})
    dev("PATCH", f"{base}/issues/comments/{comment['id']}", {"body": "On it now"})
    dev("GET", f"{base}/issues/comments/{comment['id']}")
    dev("GET", f"{issue_path}/comments")
    dev("PATCH", issue_path, {"title": "It breaks badly"})
    dev("GET", issue_path)
    assert [
        listed_issue["number"] for listed_issue in dev("GET", f"{base}/issues?labels=bug&assignee=dev&state=open")
    ] == [issue["number"]]
    dev("GET", f"{base}/labels")

    forge.push(repo, "fix", {"a.txt": "1\n2\n3\n4\n", "b/new.txt": "new\n"}, by="dev")
    pull = dev(
        "POST", f"{base}/pulls", {"title": "Fix it", "head": "fix", "base": "main", "body": f"Fixes #{issue['number']}"}
    )
    pull_path = f"{base}/pulls/{pull['number']}"
    dev("POST", f"{base}/issues/{pull['number']}/labels", {"labels": ["bug"]})
    dev("GET", f"{base}/pulls?state=open&head=acme:fix")
    dev("GET", f"{base}/issues")
    for path in ("", "/files", "/commits", "/reviews", "/comments", "/requested_reviewers"):
        dev("GET", pull_path + path)
    dev("PATCH", pull_path, {"title": "Fix it well"})
    dev("POST", f"{pull_path}/requested_reviewers", {"reviewers": ["rev"]})
    dev("DELETE", f"{pull_path}/requested_reviewers", {"reviewers": ["rev"]})

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
    check_run = dev("GET", f"{base}/commits/{sha}/check-runs?check_name=tests")["check_runs"][0]
    dev("GET", f"{base}/check-runs/{check_run['id']}")
    dev("GET", f"{base}/check-runs/{check_run['id']}/annotations")
    workflow_run = dev("GET", f"{base}/actions/runs?head_sha={sha}")["workflow_runs"][0]
    dev("GET", f"{base}/actions/workflows")
    dev("GET", f"{base}/actions/workflows/{workflow_run['workflow_id']}")
    dev("GET", f"{base}/actions/runs/{workflow_run['id']}")
    job = dev("GET", f"{base}/actions/runs/{workflow_run['id']}/jobs")["jobs"][0]
    dev("GET", f"{base}/actions/jobs/{job['id']}")
    assert dev.ask("GET", f"{base}/actions/jobs/{job['id']}/logs")[0] == 302
    dev("POST", f"{base}/actions/runs/{workflow_run['id']}/rerun-failed-jobs")
    forge.check(repo, sha, "tests", "failure")

    assert dev.ask("POST", f"{pull_path}/reviews", {"event": "APPROVE"})[0] == 422
    review_comment = rev(
        "POST", f"{pull_path}/comments", {"body": "Why 4?", "path": "a.txt", "line": 4, "commit_id": sha}
    )
    dev("POST", f"{pull_path}/comments/{review_comment['id']}/replies", {"body": "Because"})
    dev("GET", f"{pull_path}/comments")
    dev("GET", f"{base}/pulls/comments/{review_comment['id']}")
    rev("PATCH", f"{base}/pulls/comments/{review_comment['id']}", {"body": "Why really?"})
    second = rev("POST", f"{pull_path}/comments", {"body": "Gone soon", "path": "a.txt", "line": 4, "commit_id": sha})
    rev("DELETE", f"{base}/pulls/comments/{second['id']}")
    blocked = rev("POST", f"{pull_path}/reviews", {"event": "REQUEST_CHANGES", "body": "No"})
    assert dev.ask("PUT", f"{pull_path}/merge", {"sha": sha})[0] == 405
    rev("PUT", f"{pull_path}/reviews/{blocked['id']}/dismissals", {"message": "Well"})
    forge.push(repo, "main", {"c.txt": "c\n"})
    dev("PUT", f"{pull_path}/update-branch", {"expected_head_sha": sha})
    sha = dev("GET", pull_path)["head"]["sha"]
    assert dev.ask("PUT", f"{pull_path}/merge", {"sha": pull["head"]["sha"]})[0] == 409
    rev("POST", f"{pull_path}/reviews", {"event": "APPROVE"})
    dev("GET", f"{pull_path}/reviews")
    forge.check(repo, sha, "tests", "success")
    assert dev("GET", pull_path)["mergeable_state"] == "clean"
    dev("GET", f"{base}/git/ref/heads/fix")
    assert dev("PUT", f"{pull_path}/merge", {"sha": sha, "merge_method": "squash"})["merged"]
    dev("DELETE", f"{base}/git/refs/heads/fix")
    dev("POST", f"{base}/git/refs", {"ref": "refs/heads/again", "sha": sha})
    assert dev("GET", pull_path)["merged"]
    assert dev("GET", issue_path)["state"] == "closed"
    dev("GET", f"{base}/pulls?state=all")
    dev("DELETE", f"{base}/issues/comments/{comment['id']}")
    assert dev.ask("GET", f"{base}/pulls/99")[0] == 404
    return dev
