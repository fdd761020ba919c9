"""The test server's answers and webhooks compared with gitbeaker's types for GitLab, and used by python-gitlab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_orchestrator.testing.gitlab import GitLabMergeRequest, GitLabProject, GitLabServer
from tests.forges import fetch
from tests.forges.client import ForgeClient
from tests.forges.conftest import published
from tests.forges.published.typescript import TypeScriptDeclarations

OPTIONAL_FIELDS = {
    "JobSchema": {"artifacts_file"},
    "SimpleMemberSchema": {"email"},
}
"""Fields that GitLab leaves out at times although the types require them: a job's file, a private email address."""
EVENTS = {
    "Push Hook": "WebhookPushEventSchema",
    "Merge Request Hook": "WebhookMergeRequestEventSchema",
    "Issue Hook": "WebhookIssueEventSchema",
    "Pipeline Hook": "WebhookPipelineEventSchema",
    "Job Hook": "WebhookJobEventSchema",
}
IGNORED_FIELDS = (
    ".event_name", ".source_pipeline", ".escalation_policy", ".escalation_status", ".user.state", ".user.web_url",
    "[].user.state", "[].user.web_url", ".noteable_id", ".private_profile",
)  # fmt: skip
"""Fields where the types differ from GitLab's documented examples: those of incidents and child pipelines only, those missing for a
webhook's user, and two of another type."""


@pytest.fixture(scope="module")
def types() -> TypeScriptDeclarations:
    return TypeScriptDeclarations(published(fetch.GITLAB))


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def pull(forge: GitLabServer) -> GitLabMergeRequest:
    people = {"dev": "developer", "rev": "developer", "boss": "maintainer"}
    repo = forge.repository("acme/app", {"a.txt": "1\n2\n"}, people=people)
    forge.push(repo, "x", {"a.txt": "1\ntwo\n"}, by="dev")
    merge_request = forge.pull(repo, "x", "Fix it", "Closes #1", by="dev")
    forge.issue(repo, "It breaks", labels=("bug",), by="rev", assignees=("dev",))
    forge.check(repo, "x", "tests", "failed", log="no")
    forge.status(repo, "x", "scanner", "success")
    forge.thread(merge_request, "a.txt", 2, "Why?", by="rev")
    forge.comment(merge_request, "Hm", by="rev")
    forge.review(merge_request, "APPROVE", by="rev")
    forge.hook(repo, "http://127.0.0.1:9/", "s3cret")
    return merge_request


def test_every_answer_matches_the_published_types(
    forge: GitLabServer, pull: GitLabMergeRequest, types: TypeScriptDeclarations
) -> None:
    client = ForgeClient(forge, forge.token("boss"))
    job = pull.head_pipeline.jobs[0] if pull.head_pipeline else None
    assert job is not None
    root = f"/api/v4/projects/{pull.project.id}"
    merge_request_path = f"{root}/merge_requests/1"
    answers = {
        "/api/v4/user": "ExpandedUserSchema",
        root: "SimpleProjectSchema",
        f"{root}/members/all": "SimpleMemberSchema",
        f"{root}/repository/branches": "BranchSchema",
        f"{root}/protected_branches": "ProtectedBranchSchema",
        f"{root}/labels": "LabelSchema",
        f"{root}/hooks": "ExpandedHookSchema",
        f"{root}/issues": "IssueSchema",
        f"{root}/issues/1": "IssueSchema",
        f"{root}/merge_requests": "MergeRequestSchemaWithBasicLabels",
        merge_request_path: "ExpandedMergeRequestSchema",
        f"{merge_request_path}/approvals": "MergeRequestLevelMergeRequestApprovalSchema",
        f"{merge_request_path}/discussions": "DiscussionSchema",
        f"{merge_request_path}/notes": "MergeRequestNoteSchema",
        f"{merge_request_path}/pipelines": "PipelineSchema",
        f"{root}/pipelines": "PipelineSchema",
        f"{root}/pipelines/{job.pipeline.id}": "ExpandedPipelineSchema",
        f"{root}/pipelines/{job.pipeline.id}/jobs": "JobSchema",
        f"{root}/repository/commits/{pull.head_sha}/statuses": "CommitStatusSchema",
    }
    problems = []
    for path, name in answers.items():
        answer = client("GET", path)
        for item in answer if isinstance(answer, list) else [answer]:
            lacking = {f"{name} has no {key}" for key in OPTIONAL_FIELDS.get(name, ())}
            type_problems = types.problems(name, item)
            problems += [
                problem
                for problem in type_problems
                if problem not in lacking and not _field_of(problem).endswith(IGNORED_FIELDS)
            ]
    assert not problems, "\n".join(problems)


def test_every_webhook_matches_the_published_types(
    forge: GitLabServer, pull: GitLabMergeRequest, types: TypeScriptDeclarations
) -> None:
    forge.push(pull.project, "x", {"b.txt": "b"}, by="dev")
    forge.check(pull.project, "x", "tests", "success")
    forge.merge(pull)
    problems, events = [], set()
    for event, payload in forge.hooks.keep_payloads:
        events.add(event)
        name = EVENTS.get(event)
        if event == "Note Hook":
            name = "WebhookMergeRequestNoteEventSchema" if "merge_request" in payload else "WebhookIssueNoteEventSchema"
        assert name is not None
        type_problems = types.problems(name, payload)
        problems += [
            problem
            for problem in type_problems
            if not _field_of(problem).endswith(IGNORED_FIELDS) and ".changes" not in problem
        ]
    assert events == {*EVENTS, "Note Hook"}
    assert not problems, "\n".join(sorted(set(problems)))


def _field_of(problem: str) -> str:
    location, lacks, key = problem.partition(" has no ")
    return f"{location}.{key}" if lacks else problem.partition(":")[0].partition(" ")[0]


@pytest.fixture
def client(forge: GitLabServer, pull: GitLabMergeRequest) -> Any:
    gitlab = pytest.importorskip("gitlab", reason="python-gitlab is not installed: make test-forges")
    return gitlab.Gitlab(forge.url, private_token=forge.token("boss"))


def test_python_gitlab_can_open_review_and_merge(forge: GitLabServer, pull: GitLabMergeRequest, client: Any) -> None:
    client.auth()
    assert client.user.username == "boss"
    repo: GitLabProject = pull.project
    project = client.projects.get("acme/app")
    assert project.id == repo.id
    forge.push(repo, "y", {"y.txt": "y"}, by="dev")
    merge_request = project.mergerequests.create({"source_branch": "y", "target_branch": "main", "title": "Draft: Y"})
    assert merge_request.draft and merge_request.detailed_merge_status == "draft_status"
    merge_request.title = "Y"
    merge_request.labels = ["bug", "new"]
    merge_request.save()
    assert {label.name for label in project.labels.list(get_all=True)} == {"bug", "new"}
    note = merge_request.notes.create({"body": "hello"})
    position = {
        **merge_request.diff_refs,
        "position_type": "text",
        "new_path": "y.txt",
        "old_path": "y.txt",
        "new_line": 1,
    }
    thread = merge_request.discussions.create({"body": "why?", "position": position})
    thread.notes.create({"body": "because"})
    thread.resolved = True
    thread.save()
    server_request = forge.find_pull(repo, merge_request.iid)
    assert [note.body for note in server_request.notes] == ["hello", "why?", "because"] and note.id
    assert server_request.threads[0].resolved
    merge_request.approve()
    assert [approval["user"]["username"] for approval in merge_request.approvals.get().approved_by] == ["boss"]
    merge_request = project.mergerequests.get(merge_request.iid)
    project.commits.get(merge_request.sha).statuses.create({"state": "success", "name": "ci"})
    pipeline = project.pipelines.list(get_all=True, sha=merge_request.sha)[0]
    assert pipeline.status == "success"
    merge_request.merge(sha=merge_request.sha, squash=True)
    assert project.mergerequests.get(merge_request.iid).state == "merged"

    failed = project.pipelines.get(pull.head_pipeline.id if pull.head_pipeline else 0)
    [job] = failed.jobs.list(get_all=True)
    assert b"no" in project.jobs.get(job.id).trace()
    failed.retry()
    assert project.pipelines.get(failed.id).status == "pending"

    issue = project.issues.create({"title": "New", "labels": ["bug"]})
    issue.notes.create({"body": "mine"})
    issue.state_event = "close"
    issue.save()
    assert repo.issues[issue.iid].state == "closed"
    hook = project.hooks.create({"url": "http://127.0.0.1:9/", "merge_requests_events": True, "token": "t"})
    assert hook.merge_requests_events and not hook.job_events
    hook.delete()


def test_pages_are_followed_by_links_and_by_keyset(forge: GitLabServer, pull: GitLabMergeRequest, client: Any) -> None:
    project = client.projects.get("acme/app")
    for number in range(45):
        forge.issue(pull.project, f"n{number}")
    assert len(project.issues.list(get_all=True, per_page=20)) == 46
    issues = project.issues.list(iterator=True, per_page=20)
    assert (issues.total, issues.total_pages, issues.next_page) == (46, 3, 2)
    for number in range(30):
        forge.repository(f"acme/r{number}")
    assert len(client.projects.list(get_all=True, pagination="keyset", order_by="id", per_page=10)) == 31


def test_refusals_have_the_status_codes_of_gitlab(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    root = f"/api/v4/projects/{pull.project.id}"
    merge_request_path = f"{root}/merge_requests/1"
    developer, stranger = ForgeClient(forge, forge.token("dev")), ForgeClient(forge, forge.token("stranger"))
    assert developer.ask("PUT", f"{merge_request_path}/merge", {"sha": "0" * 40})[0] == 409
    assert stranger.ask("PUT", f"{merge_request_path}/merge", {})[0] == 401
    assert (
        developer.ask("POST", f"{root}/merge_requests", {"source_branch": "x", "target_branch": "main", "title": "t"})[
            0
        ]
        == 409
    )
    assert developer.ask("POST", f"{root}/merge_requests", {"source_branch": "x"})[0] == 400
    assert developer.ask("GET", f"{root}/hooks")[0] == 403
    assert developer.ask("GET", "/api/v4/projects/9999")[0] == 404
    pull.project.private = True
    assert stranger.ask("GET", root)[0] == 404
    reader = ForgeClient(forge, forge.token("dev", ("read_api",)))
    assert reader.ask("POST", f"{merge_request_path}/notes", {"body": "x"}) == (
        403,
        {
            "error": "insufficient_scope",
            "error_description": "The request requires higher privileges than provided by the access token.",
            "scope": "api",
        },
    )
    assert reader.ask("GET", merge_request_path)[0] == 200
    assert {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "etag"} <= set(reader.headers)
    assert reader.ask("GET", merge_request_path, **{"If-None-Match": reader.headers["etag"]})[0] == 304
