"""The GitLab plugin against the test server: what it reads and writes, and that it repeats nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import SCM, Merged, MergeQueued, PullRequestSpec, Unmergeable
from agent_orchestrator.testing.gitlab import GitLabMergeRequest, GitLabProject, GitLabServer
from tests.forges.plugins.github import merge_request
from tests.forges.plugins.gitlab import merge_request_id, scm

pytestmark = pytest.mark.anyio

SPEC = PullRequestSpec("feature/x", "main", "Fix it", "Because", draft=True)


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def repo(forge: GitLabServer) -> GitLabProject:
    people = {"dev": "developer", "rev": "developer", "eve": "reporter", "boss": "maintainer"}
    project = forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people=people)
    forge.push(project, "feature/x", {"a.txt": "1\ntwo\n3\n"}, by="dev")
    return project


@pytest.fixture
def pull(forge: GitLabServer, repo: GitLabProject) -> GitLabMergeRequest:
    return forge.pull(repo, "feature/x", "Fix it", by="dev")


async def test_the_plugin_fills_the_scm_slot_and_reports_its_login(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    assert isinstance(plugin, SCM)
    assert await plugin.configured()
    login = await plugin.login()
    assert (login.name, login.kind, login.write_access) == ("dev", "person", "yes")
    assert any(line.startswith("core: ") for line in plugin.budget())


@pytest.mark.parametrize(
    ("by", "scopes", "reason"),
    [("dev", ("read_api",), "lacks the scope api"), ("eve", ("api",), "may not write to acme/app")],
)
async def test_login_names_what_the_token_lacks(
    forge: GitLabServer, repo: GitLabProject, by: str, scopes: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Denied, match=reason):
        await scm(forge, token=forge.token(by, scopes)).login()


async def test_opening_a_merge_request_twice_returns_the_first(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    assert await plugin.find("feature/x") is None
    first = await plugin.open(SPEC)
    assert (first.number, first.title, first.draft, first.state) == (1, "Fix it", True, "open")
    assert (first.branch, first.base, first.head) == ("feature/x", "main", repo.head("feature/x"))
    assert first.base_head == repo.head("main")
    assert forge.find_pull(repo, 1).title == "Draft: Fix it"
    assert (await scm(forge).open(SPEC)).id == first.id
    open_request = await plugin.find("feature/x")
    assert open_request is not None and open_request.id == first.id
    assert (await plugin.get(1)).id == first.id
    await plugin.ready(first)
    await plugin.ready(first)
    assert (forge.find_pull(repo, 1).title, forge.find_pull(repo, 1).draft) == ("Fix it", False)


async def test_one_opened_after_an_outdated_listing_is_found(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    list_requests = plugin._list_by_branch
    calls = 0

    async def list_late(branch: str) -> Any:
        nonlocal calls
        calls += 1
        return [] if calls == 1 else await list_requests(branch)

    plugin._list_by_branch = list_late  # type: ignore[method-assign]
    existing_request = forge.pull(repo, "feature/x")
    assert (await plugin.open(SPEC)).id == merge_request_id(existing_request)


async def test_a_closed_one_does_not_prevent_opening_a_new_one(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    first = await plugin.open(SPEC)
    await plugin.close(first)
    closed = await plugin.find("feature/x")
    assert closed is not None and closed.state == "closed"
    assert (await plugin.open(SPEC)).number == 2


async def test_unknown_branches_and_merge_requests_are_refused(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    with pytest.raises(UsageError, match="push the branch first"):
        await plugin.open(PullRequestSpec("nowhere", "main", "T", "", draft=False))
    with pytest.raises(NotFound, match="no merge request !9"):
        await plugin.get(9)
    assert await plugin.read([f"{repo.id}!9"]) == []


async def test_all_comments_and_reviews_are_read_with_their_authors_rights(
    forge: GitLabServer, pull: GitLabMergeRequest
) -> None:
    thread = forge.thread(pull, "a.txt", 2, "Why two?", by="rev")
    forge.reply(thread, "And how?", by="eve")
    general_thread = forge.thread(pull, None, None, "In general?", by="rev")
    forge.resolve(general_thread)
    forge.comment(pull, "Nice", by="stranger")
    forge.comment(pull, "Scanned", by="project_7_bot_ab12")
    [state] = await scm(forge).read([merge_request_id(pull)])
    comments = {comment.body: comment for comment in state.comments}
    assert set(comments) == {"Why two?", "And how?", "In general?", "Nice", "Scanned"}
    first, second = comments["Why two?"], comments["And how?"]
    assert (first.path, first.line, first.head, first.resolved) == ("a.txt", 2, pull.head_sha, False)
    assert first.thread == second.thread and first.thread is not None
    assert comments["In general?"].resolved and comments["In general?"].path is None
    assert comments["Nice"].thread is None
    rights = {comment.author.name: (comment.author.kind, comment.author.write_access) for comment in state.comments}
    assert rights["rev"] == ("person", "yes")
    assert rights["eve"] == rights["stranger"] == ("person", "no")
    assert rights["project_7_bot_ab12"] == ("bot", "no")


async def test_the_rights_of_a_member_are_read_once(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    forge.comment(pull, "one", by="rev")
    plugin = scm(forge)
    for text in ("two", "three"):
        await plugin.read([merge_request_id(pull)])
        forge.comment(pull, text, by="rev")
    member_requests = [request for request in forge.ledger.requests if "/members/all/" in request.path]
    assert len(member_requests) == 1


async def test_a_thousand_comments_are_read(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    for number in range(1000):
        forge.comment(pull, f"n{number}", by="rev")
    [state] = await scm(forge).read([merge_request_id(pull)])
    assert len(state.comments) == 1000


async def test_job_states_are_read_as_check_states(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    states: dict[str, tuple[str, dict[str, Any]]] = {
        "good": ("success", {}),
        "bad": ("failed", {}),
        "may fail": ("failed", {"allow_failure": True}),
        "late": ("failed", {"failure_reason": "job_execution_timeout"}),
        "by hand": ("manual", {"allow_failure": True}),
        "gate": ("manual", {}),
        "over": ("canceled", {}),
        "now": ("running", {}),
        "soon": ("pending", {}),
        "not": ("skipped", {}),
    }
    for job, (status, options) in states.items():
        forge.check(repo, pull.head_sha, job, status, **options)
    [state] = await scm(forge).read([merge_request_id(pull)])
    assert {check.name: check.state for check in state.checks} == {
        "good": "success",
        "bad": "failure",
        "may fail": "skipped",
        "late": "timed_out",
        "by hand": "skipped",
        "gate": "queued",
        "over": "cancelled",
        "now": "running",
        "soon": "queued",
        "not": "skipped",
    }


async def test_three_hundred_jobs_are_read(forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest) -> None:
    for number in range(300):
        forge.check(repo, pull.head_sha, f"job {number}", "success")
    [state] = await scm(forge).read([merge_request_id(pull)])
    assert len(state.checks) == 300


async def test_statuses_of_external_services_are_read_as_checks(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge)
    forge.check(repo, pull.head_sha, "tests", "success")
    forge.status(repo, pull.head_sha, "scanner", "failed", "3 findings")
    [state] = await plugin.read([merge_request_id(pull)])
    assert {check.name: (check.state, check.job is None) for check in state.checks} == {
        "tests": ("success", False),
        "scanner": ("failure", True),
    }
    assert next(check for check in state.checks if check.name == "scanner").summary == "3 findings"
    forge.status(repo, pull.head_sha, "scanner", "success")
    [state] = await plugin.read([merge_request_id(pull)])
    assert {check.name: check.state for check in state.checks} == {"tests": "success", "scanner": "success"}


async def test_a_pipeline_with_invalid_yaml_is_a_failed_check(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    broken = forge.pipeline(repo, pull.head_sha)
    broken.yaml_errors, broken.status = "jobs:tests config should implement a script", "failed"
    [state] = await scm(forge).read([merge_request_id(pull)])
    [check] = state.checks
    assert (check.name, check.state) == ("pipeline", "failure")
    assert "implement a script" in check.summary


async def test_the_pipeline_of_an_old_head_is_ignored(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    forge.check(repo, pull.head_sha, "tests", "success")
    forge.push(repo, "feature/x", {"b.txt": "b"}, by="dev")
    assert pull.head_pipeline is not None and pull.head_pipeline.sha != pull.head_sha
    [state] = await scm(forge).read([merge_request_id(pull)])
    assert state.checks == ()


async def test_the_pipeline_of_a_merge_train_counts_for_the_head(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    forge.protect(repo, merge_trains=True)
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    outcome = await plugin.merge(state, merge_request(state))
    assert isinstance(outcome, MergeQueued) and "train" in outcome.reason
    sha = forge.train(pull)
    assert sha is not None
    forge.check(repo, sha, "tests", None)
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.queued and {check.name: check.state for check in state.checks} == {"tests": "running"}
    assert isinstance(await plugin.merge(state, merge_request(state)), MergeQueued)
    forge.check(repo, sha, "tests", "success")
    [state] = await plugin.read([merge_request_id(pull)])
    assert (state.state, state.merged_as) == ("merged", repo.head("main"))
    assert await plugin.merge(state, merge_request(state)) == Merged(repo.head("main") or "")


@pytest.mark.parametrize("config", [None, "jobs: {}\n"])
async def test_checks_are_expected_only_with_a_ci_configuration(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest, config: str | None
) -> None:
    if config:
        forge.push(repo, "feature/x", {".gitlab-ci.yml": config}, by="dev")
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.checks_expected is (None if config else False)
    repo.jobs_enabled = False
    [state] = await scm(forge).read([merge_request_id(pull)])
    assert state.checks_expected is False


async def test_the_end_of_a_job_log_is_read_without_control_characters(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    forge.check(repo, pull.head_sha, "tests", "failed", log="collecting\n\x1b[31mE   assert 1 == 2\x1b[0m\n")
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    job = state.checks[0].job
    assert job is not None
    text = (await plugin.log(job, 10_000)).decode()
    assert "E   assert 1 == 2\n" in text
    assert "section_" not in text and "\x1b" not in text
    assert len(await plugin.log(job, 20)) <= 20
    with pytest.raises(NotFound):
        await plugin.log("../user", 20)


async def test_only_the_end_of_a_long_log_is_kept(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    def lines() -> Iterator[bytes]:
        for _ in range(20 * 1024):
            yield b"x" * 1023 + b"\n"
        yield b"the end\n"

    forge.check(repo, pull.head_sha, "tests", "failed", log=lines)
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    log_end = await plugin.log(state.checks[0].job or "", 4096)
    assert log_end.endswith(b"the end\n") and len(log_end) == 4096


async def test_failed_jobs_are_rerun(forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest) -> None:
    forge.check(repo, pull.head_sha, "tests", "failed")
    forge.check(repo, pull.head_sha, "lint", "success")
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    assert await plugin.rerun(state) == 1
    [state] = await plugin.read([merge_request_id(pull)])
    assert {check.name: check.state for check in state.checks} == {"tests": "queued", "lint": "success"}
    assert await plugin.rerun(state) == 0


async def test_approvals_and_requested_changes_are_reviews(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge)
    forge.review(pull, "REQUEST_CHANGES", by="rev")
    [state] = await plugin.read([merge_request_id(pull)])
    [change_request] = state.reviews
    assert (change_request.verdict, change_request.author.name, change_request.author.write_access) == (
        "changes_requested",
        "rev",
        "yes",
    )
    assert change_request.head == pull.head_sha and state.blocked == "changes are requested"

    forge.push(repo, "feature/x", {"b.txt": "b"}, by="dev")
    [state] = await plugin.read([merge_request_id(pull)])
    assert [(review.id, review.head) for review in state.reviews] == [(change_request.id, "")]

    forge.review(pull, "APPROVE", by="rev")
    [state] = await plugin.read([merge_request_id(pull)])
    assert [review.verdict for review in state.reviews] == ["commented", "approved"]
    approval = state.reviews[1]
    forge.review(pull, "UNAPPROVE", by="rev")
    [state] = await plugin.read([merge_request_id(pull)])
    assert {review.id: review.verdict for review in state.reviews}[approval.id] == "commented"
    forge.review(pull, "APPROVE", by="rev")
    [state] = await plugin.read([merge_request_id(pull)])
    assert [review.id for review in state.reviews if review.verdict == "approved"] == [approval.id]
    forge.review(pull, "REQUEST_CHANGES", by="rev")
    [state] = await plugin.read([merge_request_id(pull)])
    [second_review] = [review for review in state.reviews if review.verdict == "changes_requested"]
    assert second_review.id != change_request.id and second_review.head == pull.head_sha
    assert {review.id: review.verdict for review in state.reviews}[change_request.id] == "commented"


async def test_comments_and_replies_are_posted_once_and_recognized_as_ours(
    forge: GitLabServer, pull: GitLabMergeRequest
) -> None:
    thread = forge.thread(pull, "a.txt", 2, "Why?", by="rev")
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    thread_id = state.comments[0].thread
    assert thread_id is not None
    first = await plugin.reply(state, thread_id, "Because", "k1")
    assert await plugin.reply(state, thread_id, "Because", "k1") == first
    comment_id = await plugin.comment(state, "Done", "k2")
    assert await scm(forge).comment(state, "Done", "k2") == comment_id
    forge.comment(pull, "Done\n\n<!-- ao:k3 -->", by="eve")
    assert len(thread.comments) == 2
    [state] = await plugin.read([merge_request_id(pull)])
    assert [(comment.body, comment.author.kind, comment.mark) for comment in state.comments] == [
        ("Why?", "person", ""),
        ("Because", "agent", "k1"),
        ("Done", "agent", "k2"),
        ("Done", "person", ""),
    ]
    await plugin.resolve(thread_id)
    assert thread.resolved
    with pytest.raises(NotFound):
        await plugin.resolve("nonsense")
    with pytest.raises(NotFound, match="gone"):
        await plugin.reply(state, f"{merge_request_id(pull)}!abc", "x", "k4")


async def test_requesting_a_review_keeps_the_other_reviewers(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    await plugin.request_review(state, ["@rev"])
    await plugin.request_review(state, ["boss"])
    assert list(pull.reviewers) == ["rev", "boss"]
    with pytest.raises(NotFound, match="nobody"):
        await plugin.request_review(state, ["nobody"])


async def test_a_merge_status_that_gitlab_still_computes_is_unknown(forge: GitLabServer, repo: GitLabProject) -> None:
    forge.world.unknown_first = 1
    pull = forge.pull(repo, "feature/x")
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.mergeable == "unknown"
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.mergeable == "yes"
    forge.push(repo, "main", {"a.txt": "1\nzwei\n3\n"})
    with pytest.raises(Temporary, match="does not know yet"):
        await plugin.merge(state, merge_request(state))
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.mergeable == "no"
    assert await plugin.merge(state, merge_request(state)) == Unmergeable("it conflicts with its base")


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ({"pipeline_must_succeed": True}, "its pipeline must pass"),
        ({"approvals_required": 1}, "an approving review is required"),
        ({"discussions_must_be_resolved": True}, "discussions must be resolved"),
    ],
)
async def test_a_blocked_merge_shows_the_reason_and_merges_once_it_is_resolved(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest, requirement: dict[str, Any], reason: str
) -> None:
    forge.protect(repo, **requirement)
    thread = forge.thread(pull, "a.txt", 2, "Why?", by="rev") if "discussions_must_be_resolved" in requirement else None
    plugin = scm(forge, by="boss")
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.blocked == reason
    assert isinstance(await plugin.merge(state, merge_request(state)), MergeQueued)
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.queued
    assert isinstance(await plugin.merge(state, merge_request(state)), MergeQueued)
    if thread:
        await plugin.resolve(state.comments[0].thread or "")
    forge.check(repo, pull.head_sha, "tests", "success")
    if "approvals_required" in requirement:
        forge.review(pull, "APPROVE", by="rev")
    assert pull.merged


async def test_only_the_named_commit_is_merged(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    outcome = await plugin.merge(state, merge_request(state, head="0" * 40))
    assert isinstance(outcome, Unmergeable) and outcome.moved
    merged = await plugin.merge(state, merge_request(state))
    assert merged == Merged(repo.head("main") or "")
    assert repo.head("feature/x") is None
    assert await plugin.merge(state, merge_request(state)) == merged
    assert pull.squash_commit == repo.head("main")


async def test_a_merge_commit_has_our_message_and_the_branch_can_be_kept(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    merged = await plugin.merge(state, merge_request(state, strategy="merge", delete_branch=False))
    assert isinstance(merged, Merged)
    output = subprocess.run(
        ["git", "-C", str(repo.path), "log", "-1", "--format=%B", merged.commit], capture_output=True, text=True
    )
    assert output.stdout.strip() == "Merge it\n\nBecause"
    assert repo.head("feature/x") == state.head


async def test_a_fast_forward_project_requires_a_rebase(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    repo.merge_method = "ff"
    forge.push(repo, "main", {"c.txt": "c"})
    plugin = scm(forge)
    [state] = await plugin.read([merge_request_id(pull)])
    assert (state.mergeable, state.blocked) == ("yes", "its branch must be brought up to date with its base")
    assert isinstance(await plugin.merge(state, merge_request(state)), Unmergeable)


async def test_a_merge_without_permission_is_refused(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge, by="eve")
    [state] = await plugin.read([merge_request_id(pull)])
    outcome = await plugin.merge(state, merge_request(state))
    assert isinstance(outcome, Unmergeable) and "may not merge" in outcome.reason


async def test_closed_and_draft_merge_requests_are_not_merged(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    plugin = scm(forge)
    forge.edit(pull, title="Draft: Fix it")
    [state] = await plugin.read([merge_request_id(pull)])
    assert state.draft and state.title == "Fix it" and state.blocked == ""
    assert await plugin.merge(state, merge_request(state)) == Unmergeable("it is a draft")
    forge.close(pull)
    assert await plugin.merge(state, merge_request(state)) == Unmergeable("it is closed")


async def test_a_renamed_project_keeps_its_merge_requests(
    forge: GitLabServer, repo: GitLabProject, pull: GitLabMergeRequest
) -> None:
    plugin = scm(forge)
    [before] = await plugin.read([merge_request_id(pull)])
    forge.rename(repo, "acme/tools/renamed")
    [after] = await plugin.read([before.id])
    assert after.id == before.id
    assert plugin.repo == "acme/tools/renamed"
    assert plugin.push_url()[0].endswith("/acme/tools/renamed.git")
    assert (await scm(forge).get(1)).id == before.id


async def test_a_fork_is_pushed_to_and_merged_from(forge: GitLabServer, repo: GitLabProject, tmp_path: Path) -> None:
    fork = forge.fork(repo, "dev")
    forge.push(fork, "mine", {"b.txt": "b"}, by="dev")
    plugin = scm(forge, fork="dev/app")
    state = await plugin.open(PullRequestSpec("mine", "main", "From afar", "", draft=False))
    assert (state.fork, state.branch, state.number) == ("dev/app", "mine", 1)
    assert (await plugin.open(PullRequestSpec("mine", "main", "From afar", "", draft=False))).id == state.id
    forge.check(fork, state.head, "tests", "failed", log="no")
    [state] = await plugin.read([state.id])
    assert [check.state for check in state.checks] == ["failure"]
    assert b"no" in await plugin.log(state.checks[0].job or "", 1000)
    assert plugin.push_url()[0] == forge.git_url("dev/app")


async def test_git_pushes_with_the_token_without_showing_it(
    forge: GitLabServer, repo: GitLabProject, tmp_path: Path
) -> None:
    url, env = scm(forge).push_url()
    assert "glpat" not in url
    options = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **env}, "check": True}
    subprocess.run(["git", "clone", "-q", url, "clone"], **options)  # type: ignore[call-overload]
    options["cwd"] = tmp_path / "clone"
    subprocess.run(["git", "push", "-q", "origin", "HEAD:refs/heads/pushed"], **options)  # type: ignore[call-overload]
    assert repo.head("pushed") == repo.head("main")
