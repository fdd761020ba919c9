"""The test server's answers and webhooks beside the types that gitbeaker publishes for GitLab, and driven by python-gitlab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_orchestrator.testing.gitlab import GitLabServer, MergeRequest, Project
from tests.forges import fetch
from tests.forges.client import Client
from tests.forges.conftest import published
from tests.forges.published.typescript import Declarations

LACKING = {
    "JobSchema": {"artifacts_file"},
    "SimpleMemberSchema": {"email"},
}
"""What GitLab gives only at times, although the types have it always: a file where there is one, an address where it is public."""
EVENTS = {
    "Push Hook": "WebhookPushEventSchema",
    "Merge Request Hook": "WebhookMergeRequestEventSchema",
    "Issue Hook": "WebhookIssueEventSchema",
    "Pipeline Hook": "WebhookPipelineEventSchema",
    "Job Hook": "WebhookJobEventSchema",
}
ODD = (
    ".event_name", ".source_pipeline", ".escalation_policy", ".escalation_status", ".user.state", ".user.web_url",
    "[].user.state", "[].user.web_url", ".noteable_id", ".private_profile",
)  # fmt: skip
"""Where the types differ from GitLab's documented examples: what only incidents and child pipelines have, what a webhook's user has
not, and two that are of another kind."""


@pytest.fixture(scope="module")
def types() -> Declarations:
    return Declarations(published(fetch.GITLAB))


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def pull(forge: GitLabServer) -> MergeRequest:
    people = {"dev": "developer", "rev": "developer", "boss": "maintainer"}
    repo = forge.repository("acme/app", {"a.txt": "1\n2\n"}, people=people)
    forge.push(repo, "x", {"a.txt": "1\ntwo\n"}, by="dev")
    made = forge.pull(repo, "x", "Fix it", "Closes #1", by="dev")
    forge.issue(repo, "It breaks", labels=("bug",), by="rev", assignees=("dev",))
    forge.check(repo, "x", "tests", "failed", log="no")
    forge.status(repo, "x", "scanner", "success")
    forge.thread(made, "a.txt", 2, "Why?", by="rev")
    forge.comment(made, "Hm", by="rev")
    forge.review(made, "APPROVE", by="rev")
    forge.hook(repo, "http://127.0.0.1:9/", "s3cret")
    return made


def test_every_answer_is_as_the_types_say(forge: GitLabServer, pull: MergeRequest, types: Declarations) -> None:
    ask = Client(forge, forge.token("boss"))
    job = pull.head_pipeline.jobs[0] if pull.head_pipeline else None
    assert job is not None
    root = f"/api/v4/projects/{pull.project.id}"
    one = f"{root}/merge_requests/1"
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
        one: "ExpandedMergeRequestSchema",
        f"{one}/approvals": "MergeRequestLevelMergeRequestApprovalSchema",
        f"{one}/discussions": "DiscussionSchema",
        f"{one}/notes": "MergeRequestNoteSchema",
        f"{one}/pipelines": "PipelineSchema",
        f"{root}/pipelines": "PipelineSchema",
        f"{root}/pipelines/{job.pipeline.id}": "ExpandedPipelineSchema",
        f"{root}/pipelines/{job.pipeline.id}/jobs": "JobSchema",
        f"{root}/repository/commits/{pull.head_sha}/statuses": "CommitStatusSchema",
    }
    problems = []
    for path, name in answers.items():
        given = ask("GET", path)
        for item in given if isinstance(given, list) else [given]:
            lacking = {f"{name} has no {key}" for key in LACKING.get(name, ())}
            found = types.problems(name, item)
            problems += [one for one in found if one not in lacking and not _about(one).endswith(ODD)]
    assert not problems, "\n".join(problems)


def test_every_webhook_is_as_the_types_say(forge: GitLabServer, pull: MergeRequest, types: Declarations) -> None:
    forge.push(pull.project, "x", {"b.txt": "b"}, by="dev")
    forge.check(pull.project, "x", "tests", "success")
    forge.merge(pull)
    problems, seen = [], set()
    for event, payload in forge.hooks.keep_payloads:
        seen.add(event)
        name = EVENTS.get(event)
        if event == "Note Hook":
            name = "WebhookMergeRequestNoteEventSchema" if "merge_request" in payload else "WebhookIssueNoteEventSchema"
        assert name is not None
        found = types.problems(name, payload)
        problems += [one for one in found if not _about(one).endswith(ODD) and ".changes" not in one]
    assert seen == {*EVENTS, "Note Hook"}
    assert not problems, "\n".join(sorted(set(problems)))


def _about(problem: str) -> str:
    place, lacks, key = problem.partition(" has no ")
    return f"{place}.{key}" if lacks else problem.partition(":")[0].partition(" ")[0]


@pytest.fixture
def client(forge: GitLabServer, pull: MergeRequest) -> Any:
    gitlab = pytest.importorskip("gitlab", reason="python-gitlab is not installed: make test-forges")
    return gitlab.Gitlab(forge.url, private_token=forge.token("boss"))


def test_another_client_goes_the_whole_way(forge: GitLabServer, pull: MergeRequest, client: Any) -> None:
    client.auth()
    assert client.user.username == "boss"
    repo: Project = pull.project
    project = client.projects.get("acme/app")
    assert project.id == repo.id
    forge.push(repo, "y", {"y.txt": "y"}, by="dev")
    made = project.mergerequests.create({"source_branch": "y", "target_branch": "main", "title": "Draft: Y"})
    assert made.draft and made.detailed_merge_status == "draft_status"
    made.title = "Y"
    made.labels = ["bug", "new"]
    made.save()
    assert {label.name for label in project.labels.list(get_all=True)} == {"bug", "new"}
    note = made.notes.create({"body": "hello"})
    position = {**made.diff_refs, "position_type": "text", "new_path": "y.txt", "old_path": "y.txt", "new_line": 1}
    thread = made.discussions.create({"body": "why?", "position": position})
    thread.notes.create({"body": "because"})
    thread.resolved = True
    thread.save()
    own = forge.find_pull(repo, made.iid)
    assert [one.body for one in own.notes] == ["hello", "why?", "because"] and note.id
    assert own.threads[0].resolved
    made.approve()
    assert [one["user"]["username"] for one in made.approvals.get().approved_by] == ["boss"]
    made = project.mergerequests.get(made.iid)
    project.commits.get(made.sha).statuses.create({"state": "success", "name": "ci"})
    pipeline = project.pipelines.list(get_all=True, sha=made.sha)[0]
    assert pipeline.status == "success"
    made.merge(sha=made.sha, squash=True)
    assert project.mergerequests.get(made.iid).state == "merged"

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


def test_pages_go_on_by_links_and_by_keyset(forge: GitLabServer, pull: MergeRequest, client: Any) -> None:
    project = client.projects.get("acme/app")
    for number in range(45):
        forge.issue(pull.project, f"n{number}")
    assert len(project.issues.list(get_all=True, per_page=20)) == 46
    listed = project.issues.list(iterator=True, per_page=20)
    assert (listed.total, listed.total_pages, listed.next_page) == (46, 3, 2)
    for number in range(30):
        forge.repository(f"acme/r{number}")
    assert len(client.projects.list(get_all=True, pagination="keyset", order_by="id", per_page=10)) == 31


def test_what_is_refused_is_refused_as_gitlab_does(forge: GitLabServer, pull: MergeRequest) -> None:
    root = f"/api/v4/projects/{pull.project.id}"
    one = f"{root}/merge_requests/1"
    ask, stranger = Client(forge, forge.token("dev")), Client(forge, forge.token("stranger"))
    assert ask.ask("PUT", f"{one}/merge", {"sha": "0" * 40})[0] == 409
    assert stranger.ask("PUT", f"{one}/merge", {})[0] == 401
    assert (
        ask.ask("POST", f"{root}/merge_requests", {"source_branch": "x", "target_branch": "main", "title": "t"})[0]
        == 409
    )
    assert ask.ask("POST", f"{root}/merge_requests", {"source_branch": "x"})[0] == 400
    assert ask.ask("GET", f"{root}/hooks")[0] == 403
    assert ask.ask("GET", "/api/v4/projects/9999")[0] == 404
    pull.project.private = True
    assert stranger.ask("GET", root)[0] == 404
    reader = Client(forge, forge.token("dev", ("read_api",)))
    assert reader.ask("POST", f"{one}/notes", {"body": "x"}) == (
        403,
        {
            "error": "insufficient_scope",
            "error_description": "The request requires higher privileges than provided by the access token.",
            "scope": "api",
        },
    )
    assert reader.ask("GET", one)[0] == 200
    assert {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "etag"} <= set(reader.headers)
    assert reader.ask("GET", one, **{"If-None-Match": reader.headers["etag"]})[0] == 304
