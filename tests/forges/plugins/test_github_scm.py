"""The GitHub plugin against the test server: what it reads and writes, and that it repeats nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.merge import delete_branch, merge_now
from agent_orchestrator.protocols.forge import SCM, Merged, MergeQueued, PullRequestSpec, Unmergeable
from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.plugins.github import merge_request, scm, settled_counts

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(forge: GitHubServer) -> Repo:
    repository = forge.repository(
        "acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "write", "rev": "write", "eve": "read"}
    )
    forge.push(repository, "feature/x", {"a.txt": "1\ntwo\n3\n"}, by="dev")
    return repository


SPEC = PullRequestSpec("feature/x", "main", "Fix it", "Because", draft=True)


async def test_the_plugin_fills_the_scm_slot_and_reports_its_login(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    assert isinstance(plugin, SCM)
    assert plugin.repo == "acme/app"
    assert await plugin.configured()
    login = await plugin.login()
    assert (login.name, login.kind, login.write_access) == ("dev", "person", "yes")


async def test_opening_a_pull_request_twice_returns_the_first(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    assert await plugin.find("feature/x") is None
    first = await plugin.open(SPEC)
    assert (first.number, first.title, first.draft, first.state) == (1, "Fix it", True, "open")
    assert (first.branch, first.base, first.head) == ("feature/x", "main", repo.head("feature/x"))
    assert first.base_head == repo.head("main")
    second = await scm(forge).open(SPEC)
    assert second.id == first.id
    open_pull = await plugin.find("feature/x")
    assert open_pull is not None and open_pull.id == first.id
    assert (await plugin.get(1)).id == first.id


async def test_one_opened_after_an_outdated_listing_is_found(forge: GitHubServer, repo: Repo) -> None:
    """The listing is outdated; GitHub refuses the second pull request with 422."""
    plugin = scm(forge)
    list_pulls = plugin._list_by_branch
    calls = 0

    async def list_late(branch: str) -> Any:
        nonlocal calls
        calls += 1
        return [] if calls == 1 else await list_pulls(branch)

    plugin._list_by_branch = list_late  # type: ignore[method-assign]
    existing_pull = forge.pull(repo, "feature/x")
    assert (await plugin.open(SPEC)).id == existing_pull.node_id


async def test_a_closed_one_does_not_prevent_opening_a_new_one(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    first = await plugin.open(SPEC)
    await plugin.close(first)
    await plugin.close(first)
    closed_pull = await plugin.find("feature/x")
    assert closed_pull is not None and closed_pull.state == "closed"
    second = await plugin.open(SPEC)
    assert second.number == 2
    open_pull = await plugin.find("feature/x")
    assert open_pull is not None and open_pull.number == 2


@pytest.mark.parametrize(("branch", "reason"), [("nowhere", "head"), ("main", "No commits")])
async def test_a_pull_request_that_cannot_be_opened_is_refused_with_the_reason(
    forge: GitHubServer, repo: Repo, branch: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        await scm(forge).open(PullRequestSpec(branch, "main", "T", "", draft=False))


async def test_all_comments_and_reviews_are_read_with_their_authors_rights(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.label_issue(pull, "bug", "ui")
    forge.comment(pull, "looks odd", by="eve", association="NONE")
    forge.comment(pull, "I am a machine", by="helper[bot]", association="NONE")
    forge.review(pull, "COMMENT", "only a body", by="rev", association="COLLABORATOR")
    forge.review(pull, "REQUEST_CHANGES", "no", by="rev", association="MEMBER")
    thread = forge.thread(pull, "a.txt", 2, "why two?", by="rev", association="MEMBER")
    forge.reply(thread, "tell me", by="eve", association="FIRST_TIME_CONTRIBUTOR")
    (state,) = await scm(forge).read([pull.node_id])
    assert state.labels == ("bug", "ui")
    assert [
        (review.verdict, review.body, review.author.name, review.author.write_access) for review in state.reviews
    ] == [
        ("commented", "only a body", "rev", "yes"),
        ("changes_requested", "no", "rev", "yes"),
    ]
    comments = [
        (
            comment.body,
            comment.author.name,
            comment.author.kind,
            comment.author.write_access,
            comment.path,
            comment.line,
        )
        for comment in state.comments
    ]
    assert comments == [
        ("looks odd", "eve", "person", "no", None, None),
        ("I am a machine", "helper[bot]", "bot", "no", None, None),
        ("why two?", "rev", "person", "yes", "a.txt", 2),
        ("tell me", "eve", "person", "no", "a.txt", 2),
    ]
    assert {comment.thread for comment in state.comments} == {None, thread.node_id}
    assert state.unread == ()


async def test_all_kinds_of_checks_are_read_with_their_logs(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    forge.check(repo, "feature/x", "tests", "failure", log="line 1\nline 2\nit broke\n")
    forge.check(repo, "feature/x", "lint", None)
    forge.status(repo, "feature/x", "ci/other", "success", "fine")
    plugin = scm(forge)
    (state,) = await plugin.read([pull.node_id])
    checks = {check.name.rpartition(" / ")[2]: check for check in state.checks}
    assert {name: check.state for name, check in checks.items()} == {
        "tests": "failure",
        "lint": "running",
        "ci/other": "success",
    }
    assert state.checks_expected is True
    job = checks["tests"].job
    assert job is not None
    assert await plugin.log(job, 9) == b"it broke\n"
    assert (await plugin.log(job, 1000)).startswith(b"line 1")
    with pytest.raises(NotFound):
        await plugin.log("999999", 10)


async def test_a_fork_workflow_that_awaits_approval_is_shown_as_queued(forge: GitHubServer, repo: Repo) -> None:
    fork = forge.fork(repo, "eve")
    forge.push(fork, "fix", {"a.txt": "eve\n"}, by="eve")
    forge.pull(repo, "fix", by="eve", head_repo=fork)
    forge.await_approval(repo, fork.head("fix") or "", by="eve")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert [(check.name, check.state) for check in pull.checks] == [("CI", "queued")]
    assert "maintainer" in pull.checks[0].summary
    assert await plugin.rerun(pull) == 0


async def test_checks_expected_is_false_only_if_no_checks_can_come(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    (state,) = await scm(forge).read([pull.node_id])
    assert (state.checks, state.checks_expected) == ((), False)
    forge.check(repo, "main", "tests", "success", log="ok")
    (state,) = await scm(forge).read([pull.node_id])
    assert (state.checks, state.checks_expected) == ((), None)


async def test_300_checks_and_1000_comments_are_all_read(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    for number in range(300):
        forge.check(repo, "feature/x", f"job {number}", "success")
    for number in range(1000):
        forge.comment(pull, f"comment {number}", by="rev")
    (state,) = await scm(forge).read([pull.node_id])
    assert len(state.checks) == 300
    assert [comment.body for comment in state.comments] == [f"comment {number}" for number in range(1000)]
    assert state.unread == ()


async def test_many_pull_requests_are_read_in_few_requests_without_deleted_ones(
    forge: GitHubServer, repo: Repo
) -> None:
    ids = []
    for number in range(25):
        forge.push(repo, f"b{number}", {"b.txt": str(number)})
        ids.append(forge.pull(repo, f"b{number}").node_id)
    plugin = scm(forge)
    await plugin.login()
    await settled_counts(forge)
    before = len(forge.ledger.requests)
    states = await plugin.read([*ids, "PR_gone"])
    assert [state.id for state in states] == ids
    assert (await settled_counts(forge, before))["graphql"] == 2


async def test_a_comment_is_posted_once_and_recognized_as_ours(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    plugin = scm(forge)
    (state,) = await plugin.read([pull.node_id])
    first = await plugin.comment(state, "It is done.", "session:1")
    assert await scm(forge).comment(state, "It is done.", "session:1") == first
    forge.comment(pull, "<!-- ao:session:2 -->", by="eve")
    assert await plugin.comment(state, "More", "session:2") != first
    (state,) = await plugin.read([pull.node_id])
    assert [
        (comment.body, comment.author.kind, comment.mark) for comment in state.comments if comment.author.name == "dev"
    ] == [
        ("It is done.", "agent", "session:1"),
        ("More", "agent", "session:2"),
    ]
    assert first == state.comments[0].id


async def test_a_discussion_gets_one_reply_and_is_resolved(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    thread = forge.thread(pull, "a.txt", 2, "why?", by="rev")
    plugin = scm(forge)
    (state,) = await plugin.read([pull.node_id])
    thread_id = state.comments[0].thread
    assert thread_id is not None
    first = await plugin.reply(state, thread_id, "because", "k")
    assert await scm(forge).reply(state, thread_id, "because", "k") == first
    await plugin.resolve(thread_id)
    await plugin.resolve(thread_id)
    (state,) = await plugin.read([pull.node_id])
    assert [(comment.body, comment.mark, comment.resolved) for comment in state.comments] == [
        ("why?", "", True),
        ("because", "k", True),
    ]
    assert len(thread.comments) == 2


async def test_ready_and_review_requests(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = await plugin.open(SPEC)
    await plugin.ready(pull)
    await plugin.ready(pull)
    assert not (await plugin.get(pull.number)).draft
    await plugin.request_review(pull, ["rev"])
    assert [user.login for user in forge.find_pull(repo, pull.number).requested] == ["rev"]


async def test_only_the_named_commit_is_merged_and_its_branch_is_deleted(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    new_head = forge.push(repo, "feature/x", {"a.txt": "other\n"})
    refused = await plugin.merge(pull, merge_request(pull))
    assert isinstance(refused, Unmergeable) and refused.moved
    merged = await plugin.merge(pull, merge_request(pull, head=new_head))
    assert isinstance(merged, Merged)
    assert merged.commit == repo.head("main")
    assert forge.log(repo)[0].message.startswith("Merge it")
    assert repo.head("feature/x") is None
    assert await plugin.merge(pull, merge_request(pull, head=new_head)) == merged
    (state,) = await plugin.read([pull.id])
    assert (state.state, state.merged_as) == ("merged", merged.commit)


async def test_a_push_right_before_the_merge_request_prevents_the_merge(forge: GitHubServer, repo: Repo) -> None:
    """The push happens between the plugin's check and its merge request."""
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    forge.push(repo, "feature/x", {"a.txt": "other\n"})
    refused = await merge_now(await plugin._github.http(), plugin.repo, pull, merge_request(pull))
    assert isinstance(refused, Unmergeable) and refused.moved


async def test_a_branch_pushed_to_after_the_merge_is_not_deleted(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = forge.pull(repo, "feature/x")
    http = await plugin._github.http()
    newer = forge.push(repo, "feature/x", {"c.txt": "more"})
    await delete_branch(http, plugin.repo, "feature/x", "0" * 40)
    assert repo.head("feature/x") == newer == pull.head_sha


@pytest.mark.parametrize("reason", ["draft", "closed", "conflict"])
async def test_a_pull_request_that_cannot_be_merged_is_refused_with_the_reason(
    forge: GitHubServer, repo: Repo, reason: str
) -> None:
    plugin = scm(forge)
    pull_request = forge.pull(repo, "feature/x", draft=reason == "draft")
    if reason == "conflict":
        forge.push(repo, "main", {"a.txt": "1\nzwei\n3\n"})
    pull = await plugin.get(1)
    if reason == "closed":
        forge.close(pull_request)
    if reason == "conflict":
        pull = await plugin.get(1)
        assert pull.mergeable == "no"
    refused = await plugin.merge(pull, merge_request(pull))
    assert isinstance(refused, Unmergeable)
    assert reason[:6] in refused.reason


async def test_a_blocked_merge_waits_for_githubs_auto_merge(forge: GitHubServer, repo: Repo) -> None:
    forge.protect(repo, checks=("tests",), approvals=1)
    pull_request = forge.pull(repo, "feature/x", by="dev")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert "required checks have not passed: tests" in pull.blocked
    assert "an approving review is required" in pull.blocked
    assert isinstance(await plugin.merge(pull, merge_request(pull)), MergeQueued)
    assert isinstance(await plugin.merge(pull, merge_request(pull)), MergeQueued)
    assert (await plugin.get(1)).queued
    forge.check(repo, "feature/x", "tests", "success")
    forge.review(pull_request, "APPROVE", by="rev")
    state = await plugin.get(1)
    assert state.state == "merged"
    assert forge.log(repo)[0].message.startswith("Merge it")


async def test_a_merge_queue_is_used_if_the_branch_has_one(forge: GitHubServer, repo: Repo) -> None:
    forge.protect(repo, checks=("tests",), merge_queue=True)
    pull_request = forge.pull(repo, "feature/x")
    forge.check(repo, "feature/x", "tests", "success")
    plugin = scm(forge)
    pull = await plugin.get(1)
    outcome = await plugin.merge(pull, merge_request(pull))
    assert isinstance(outcome, MergeQueued) and "merge queue" in outcome.reason
    assert (await plugin.get(1)).queued
    group = forge.group(pull_request)
    assert group is not None
    forge.check(repo, group, "tests", "success")
    assert (await plugin.get(1)).state == "merged"


async def test_failed_jobs_are_rerun_once(forge: GitHubServer, repo: Repo) -> None:
    forge.pull(repo, "feature/x")
    forge.check(repo, "feature/x", "tests", "failure", log="no")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert await plugin.rerun(pull) == 1
    assert {check.state for check in (await plugin.get(1)).checks} <= {"queued", "running"}
    assert await plugin.rerun(pull) == 0


async def test_git_pushes_with_the_token_and_no_prompt(forge: GitHubServer, repo: Repo, tmp_path: Path) -> None:
    url, env = scm(forge).push_url()
    assert forge.git_url("acme/app") == url

    def git(*argv: str) -> None:
        subprocess.run(
            ["git", *argv], cwd=tmp_path, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", **env}
        )

    git("clone", "-q", url, "clone")
    options = ("-C", "clone", "-c", "user.name=t", "-c", "user.email=t@t")
    git(*options, "checkout", "-qb", "mine")
    git(*options, "commit", "-q", "--allow-empty", "-m", "x")
    git(*options, "push", "-q", url, "mine")
    assert repo.head("mine") is not None
    assert "ghp_" not in url + Path(tmp_path, "clone/.git/config").read_text()


async def test_a_renamed_repository_is_still_found(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    forge.rename(repo, "better")
    assert await plugin.find("feature/x") is not None
    (state,) = await plugin.read([pull.id])
    assert state.number == 1
    assert plugin.repo == "acme/better"
    assert isinstance(await plugin.merge(pull, merge_request(pull)), Merged)


async def test_a_fork_is_pushed_to_and_opened_from(forge: GitHubServer, repo: Repo) -> None:
    fork = forge.fork(repo, "eve")
    head = forge.push(fork, "fix", {"a.txt": "eve\n"}, by="eve")
    plugin = scm(forge, by="eve", fork="eve/app")
    assert plugin.push_url()[0] == forge.git_url("eve/app")
    await plugin.login()
    pull = await plugin.open(PullRequestSpec("fix", "main", "T", ""))
    assert (pull.head, pull.fork) == (head, "eve/app")
    open_pull = await plugin.find("fix")
    assert open_pull is not None and open_pull.id == pull.id


async def test_a_deleted_branch_leaves_a_pull_request_that_can_be_read(forge: GitHubServer, repo: Repo) -> None:
    forge.pull(repo, "feature/x")
    forge.delete_branch(repo, "feature/x")
    state = await scm(forge).get(1)
    assert (state.state, state.branch) == ("closed", "feature/x")


async def test_login_names_what_the_token_may_not_do(forge: GitHubServer, repo: Repo) -> None:
    with pytest.raises(Denied, match="lacks the scope"):
        await scm(forge, token=forge.token("dev", ("gist",))).login()
    with pytest.raises(Denied, match="may not write to acme/app"):
        await scm(forge, by="eve").login()
    with pytest.raises(Denied, match="not accepted"):
        await scm(forge, token=forge.token("dev", expired=True)).login()
    with pytest.raises(NotFound, match=r"the token .* may not see"):
        await scm(forge, repo="acme/none").login()


async def test_an_unknown_pull_request_number_is_not_found(forge: GitHubServer, repo: Repo) -> None:
    with pytest.raises(NotFound, match="no pull request #77"):
        await scm(forge).get(77)


def _permission_requests(forge: GitHubServer) -> list[str]:
    return [
        request.path.rpartition("/collaborators/")[2]
        for request in forge.ledger.requests
        if "/collaborators/" in request.path
    ]


async def test_a_member_with_read_access_only_has_no_write_access(forge: GitHubServer, repo: Repo) -> None:
    now = 1_000_000.0
    plugin = scm(forge, clock=lambda: now)
    pull = forge.pull(repo, "feature/x", by="dev")
    for name, association in (("eve", "COLLABORATOR"), ("eve", "MEMBER"), ("rev", "MEMBER"), ("zoe", "NONE")):
        forge.comment(pull, "listen", by=name, association=association)
    (state,) = await plugin.read([pull.node_id])
    access = [(comment.author.name, comment.author.write_access) for comment in state.comments]
    assert access == [("eve", "no"), ("eve", "no"), ("rev", "yes"), ("zoe", "no")]
    await plugin.read([pull.node_id])
    await settled_counts(forge)
    assert sorted(_permission_requests(forge)) == ["eve/permission", "rev/permission"], "each member once, no others"
    repo.people |= {"eve": "write", "rev": "triage"}
    now += 3_601
    (state,) = await plugin.read([pull.node_id])
    assert [comment.author.write_access for comment in state.comments] == ["yes", "yes", "no", "no"]


async def test_the_rights_of_reviewers_are_read_without_extra_requests(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.review(pull, "APPROVE", "fine", by="eve", association="MEMBER")
    forge.review(pull, "APPROVE", "fine too", by="rev", association="MEMBER")
    forge.comment(pull, "as I said", by="rev", association="MEMBER")
    (state,) = await scm(forge).read([pull.node_id])
    assert [(review.author.name, review.author.write_access) for review in state.reviews] == [
        ("eve", "no"),
        ("rev", "yes"),
    ]
    assert [comment.author.write_access for comment in state.comments] == ["yes"]
    await settled_counts(forge)
    assert _permission_requests(forge) == []


async def test_rights_are_unknown_if_the_token_may_not_read_them(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.comment(pull, "listen", by="rev", association="MEMBER")
    (state,) = await scm(forge, by="eve").read([pull.node_id])
    assert [comment.author.write_access for comment in state.comments] == ["unknown"]


async def test_rights_are_unknown_while_they_cannot_be_read(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.comment(pull, "listen", by="rev", association="MEMBER")
    plugin = scm(forge)
    forge.fail(500, path="/collaborators/", next=9)
    (state,) = await plugin.read([pull.node_id])
    assert [comment.author.write_access for comment in state.comments] == ["unknown"]
    forge.clear_faults()
    (state,) = await plugin.read([pull.node_id])
    assert [comment.author.write_access for comment in state.comments] == ["yes"]
    forge.fail("rate", path="/collaborators/")
    with pytest.raises(Temporary):
        await scm(forge).read([pull.node_id])
