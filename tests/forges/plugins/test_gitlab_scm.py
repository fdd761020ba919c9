"""Our GitLab plugin against the test server: what it reads, says and does, and that nothing is done twice."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import SCM, Merged, PullSpec, Unmergeable, Waiting
from agent_orchestrator.testing.gitlab import GitLabServer, MergeRequest, Project
from tests.forges.plugins.github import landing
from tests.forges.plugins.gitlab import name, scm

pytestmark = pytest.mark.anyio

SPEC = PullSpec("feature/x", "main", "Fix it", "Because", draft=True)


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def repo(forge: GitLabServer) -> Project:
    people = {"dev": "developer", "rev": "developer", "eve": "reporter", "boss": "maintainer"}
    made = forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people=people)
    forge.push(made, "feature/x", {"a.txt": "1\ntwo\n3\n"}, by="dev")
    return made


@pytest.fixture
def pull(forge: GitLabServer, repo: Project) -> MergeRequest:
    return forge.pull(repo, "feature/x", "Fix it", by="dev")


async def test_it_is_what_the_slot_asks_for(forge: GitLabServer, repo: Project) -> None:
    plugin = scm(forge)
    assert isinstance(plugin, SCM)
    assert await plugin.configured()
    login = await plugin.login()
    assert (login.name, login.kind, login.write_access) == ("dev", "person", "yes")
    assert any(line.startswith("core: ") for line in plugin.budget())


@pytest.mark.parametrize(
    ("by", "scopes", "said"),
    [("dev", ("read_api",), "lacks the scope api"), ("eve", ("api",), "may not write to acme/app")],
)
async def test_what_a_token_lacks_is_said(
    forge: GitLabServer, repo: Project, by: str, scopes: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Denied, match=said):
        await scm(forge, token=forge.token(by, scopes)).login()


async def test_a_merge_request_is_opened_once_whatever_happens(forge: GitLabServer, repo: Project) -> None:
    plugin = scm(forge)
    assert await plugin.find("feature/x") is None
    first = await plugin.open(SPEC)
    assert (first.number, first.title, first.draft, first.state) == (1, "Fix it", True, "open")
    assert (first.branch, first.base, first.head) == ("feature/x", "main", repo.head("feature/x"))
    assert first.base_head == repo.head("main")
    assert forge.find_pull(repo, 1).title == "Draft: Fix it"
    assert (await scm(forge).open(SPEC)).id == first.id
    found = await plugin.find("feature/x")
    assert found is not None and found.id == first.id
    assert (await plugin.get(1)).id == first.id
    await plugin.ready(first)
    await plugin.ready(first)
    assert (forge.find_pull(repo, 1).title, forge.find_pull(repo, 1).draft) == ("Fix it", False)


async def test_one_that_was_opened_in_between_is_found(forge: GitLabServer, repo: Project) -> None:
    plugin = scm(forge)
    listed = plugin._listed
    calls = 0

    async def late(branch: str) -> Any:
        nonlocal calls
        calls += 1
        return [] if calls == 1 else await listed(branch)

    plugin._listed = late  # type: ignore[method-assign]
    made = forge.pull(repo, "feature/x")
    assert (await plugin.open(SPEC)).id == name(made)


async def test_a_closed_one_does_not_stand_in_the_way(forge: GitLabServer, repo: Project) -> None:
    plugin = scm(forge)
    first = await plugin.open(SPEC)
    await plugin.close(first)
    closed = await plugin.find("feature/x")
    assert closed is not None and closed.state == "closed"
    assert (await plugin.open(SPEC)).number == 2


async def test_what_cannot_be_opened_or_found_says_so(forge: GitLabServer, repo: Project) -> None:
    plugin = scm(forge)
    with pytest.raises(UsageError, match="push the branch first"):
        await plugin.open(PullSpec("nowhere", "main", "T", "", draft=False))
    with pytest.raises(NotFound, match="no merge request !9"):
        await plugin.get(9)
    assert await plugin.read([f"{repo.id}!9"]) == []


async def test_everything_that_was_said_is_read(forge: GitLabServer, pull: MergeRequest) -> None:
    thread = forge.thread(pull, "a.txt", 2, "Why two?", by="rev")
    forge.reply(thread, "And how?", by="eve")
    whole = forge.thread(pull, None, None, "In general?", by="rev")
    forge.resolve(whole)
    forge.comment(pull, "Nice", by="stranger")
    forge.comment(pull, "Scanned", by="project_7_bot_ab12")
    [state] = await scm(forge).read([name(pull)])
    said = {one.body: one for one in state.comments}
    assert set(said) == {"Why two?", "And how?", "In general?", "Nice", "Scanned"}
    first, second = said["Why two?"], said["And how?"]
    assert (first.path, first.line, first.head, first.resolved) == ("a.txt", 2, pull.head_sha, False)
    assert first.thread == second.thread and first.thread is not None
    assert said["In general?"].resolved and said["In general?"].path is None
    assert said["Nice"].thread is None
    rights = {one.author.name: (one.author.kind, one.author.write_access) for one in state.comments}
    assert rights["rev"] == ("person", "yes")
    assert rights["eve"] == rights["stranger"] == ("person", "no")
    assert rights["project_7_bot_ab12"] == ("bot", "no")


async def test_people_are_asked_about_once(forge: GitLabServer, pull: MergeRequest) -> None:
    forge.comment(pull, "one", by="rev")
    plugin = scm(forge)
    for text in ("two", "three"):
        await plugin.read([name(pull)])
        forge.comment(pull, text, by="rev")
    asked = [one for one in forge.ledger.requests if "/members/all/" in one.path]
    assert len(asked) == 1


async def test_a_thousand_comments_are_read(forge: GitLabServer, pull: MergeRequest) -> None:
    for number in range(1000):
        forge.comment(pull, f"n{number}", by="rev")
    [state] = await scm(forge).read([name(pull)])
    assert len(state.comments) == 1000


async def test_jobs_are_checks(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
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
    for job, (status, more) in states.items():
        forge.check(repo, pull.head_sha, job, status, **more)
    [state] = await scm(forge).read([name(pull)])
    assert {one.name: one.state for one in state.checks} == {
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


async def test_three_hundred_jobs_are_read(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    for number in range(300):
        forge.check(repo, pull.head_sha, f"job {number}", "success")
    [state] = await scm(forge).read([name(pull)])
    assert len(state.checks) == 300


async def test_what_others_report_counts_too(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    plugin = scm(forge)
    forge.check(repo, pull.head_sha, "tests", "success")
    forge.status(repo, pull.head_sha, "scanner", "failed", "3 findings")
    [state] = await plugin.read([name(pull)])
    assert {one.name: (one.state, one.job is None) for one in state.checks} == {
        "tests": ("success", False),
        "scanner": ("failure", True),
    }
    assert next(one for one in state.checks if one.name == "scanner").summary == "3 findings"
    forge.status(repo, pull.head_sha, "scanner", "success")
    [state] = await plugin.read([name(pull)])
    assert {one.name: one.state for one in state.checks} == {"tests": "success", "scanner": "success"}


async def test_a_pipeline_that_could_not_begin_is_a_failure(
    forge: GitLabServer, repo: Project, pull: MergeRequest
) -> None:
    broken = forge.pipeline(repo, pull.head_sha)
    broken.yaml_errors, broken.status = "jobs:tests config should implement a script", "failed"
    [state] = await scm(forge).read([name(pull)])
    [check] = state.checks
    assert (check.name, check.state) == ("pipeline", "failure")
    assert "implement a script" in check.summary


async def test_an_old_heads_pipeline_says_nothing(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    forge.check(repo, pull.head_sha, "tests", "success")
    forge.push(repo, "feature/x", {"b.txt": "b"}, by="dev")
    assert pull.head_pipeline is not None and pull.head_pipeline.sha != pull.head_sha
    [state] = await scm(forge).read([name(pull)])
    assert state.checks == ()


async def test_a_train_or_merged_results_pipeline_counts_for_its_head(
    forge: GitLabServer, repo: Project, pull: MergeRequest
) -> None:
    forge.protect(repo, merge_trains=True)
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    outcome = await plugin.merge(state, landing(state))
    assert isinstance(outcome, Waiting) and "train" in outcome.reason
    sha = forge.train(pull)
    assert sha is not None
    forge.check(repo, sha, "tests", None)
    [state] = await plugin.read([name(pull)])
    assert state.queued and {one.name: one.state for one in state.checks} == {"tests": "running"}
    assert isinstance(await plugin.merge(state, landing(state)), Waiting)
    forge.check(repo, sha, "tests", "success")
    [state] = await plugin.read([name(pull)])
    assert (state.state, state.merged_as) == ("merged", repo.head("main"))
    assert await plugin.merge(state, landing(state)) == Merged(repo.head("main") or "")


@pytest.mark.parametrize("config", [None, "jobs: {}\n"])
async def test_will_there_be_checks(forge: GitLabServer, repo: Project, pull: MergeRequest, config: str | None) -> None:
    if config:
        forge.push(repo, "feature/x", {".gitlab-ci.yml": config}, by="dev")
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    assert state.checks_expected is (None if config else False)
    repo.jobs_enabled = False
    [state] = await scm(forge).read([name(pull)])
    assert state.checks_expected is False


async def test_a_log_is_read_from_its_end(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    forge.check(repo, pull.head_sha, "tests", "failed", log="collecting\n\x1b[31mE   assert 1 == 2\x1b[0m\n")
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    job = state.checks[0].job
    assert job is not None
    text = (await plugin.log(job, 10_000)).decode()
    assert "E   assert 1 == 2\n" in text
    assert "section_" not in text and "\x1b" not in text
    assert len(await plugin.log(job, 20)) <= 20
    with pytest.raises(NotFound):
        await plugin.log("../user", 20)


async def test_a_long_log_is_not_kept(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    def lines() -> Iterator[bytes]:
        for _ in range(20 * 1024):
            yield b"x" * 1023 + b"\n"
        yield b"the end\n"

    forge.check(repo, pull.head_sha, "tests", "failed", log=lines)
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    found = await plugin.log(state.checks[0].job or "", 4096)
    assert found.endswith(b"the end\n") and len(found) == 4096


async def test_failed_jobs_run_again(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    forge.check(repo, pull.head_sha, "tests", "failed")
    forge.check(repo, pull.head_sha, "lint", "success")
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    assert await plugin.rerun(state) == 1
    [state] = await plugin.read([name(pull)])
    assert {one.name: one.state for one in state.checks} == {"tests": "queued", "lint": "success"}
    assert await plugin.rerun(state) == 0


async def test_approvals_and_requested_changes_are_reviews(
    forge: GitLabServer, repo: Project, pull: MergeRequest
) -> None:
    plugin = scm(forge)
    forge.review(pull, "REQUEST_CHANGES", by="rev")
    [state] = await plugin.read([name(pull)])
    [review] = state.reviews
    assert (review.verdict, review.author.name, review.author.write_access) == ("changes_requested", "rev", "yes")
    assert review.head == pull.head_sha and state.blocked == "changes are requested"

    forge.push(repo, "feature/x", {"b.txt": "b"}, by="dev")
    [state] = await plugin.read([name(pull)])
    assert [(one.id, one.head) for one in state.reviews] == [(review.id, "")]

    forge.review(pull, "APPROVE", by="rev")
    [state] = await plugin.read([name(pull)])
    assert [one.verdict for one in state.reviews] == ["commented", "approved"]
    approval = state.reviews[1]
    forge.review(pull, "UNAPPROVE", by="rev")
    [state] = await plugin.read([name(pull)])
    assert {one.id: one.verdict for one in state.reviews}[approval.id] == "commented"
    forge.review(pull, "APPROVE", by="rev")
    [state] = await plugin.read([name(pull)])
    assert [one.id for one in state.reviews if one.verdict == "approved"] == [approval.id]
    forge.review(pull, "REQUEST_CHANGES", by="rev")
    [state] = await plugin.read([name(pull)])
    [anew] = [one for one in state.reviews if one.verdict == "changes_requested"]
    assert anew.id != review.id and anew.head == pull.head_sha
    assert {one.id: one.verdict for one in state.reviews}[review.id] == "commented"


async def test_nothing_is_said_twice_and_our_words_are_known(forge: GitLabServer, pull: MergeRequest) -> None:
    thread = forge.thread(pull, "a.txt", 2, "Why?", by="rev")
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    place = state.comments[0].thread
    assert place is not None
    first = await plugin.reply(state, place, "Because", "k1")
    assert await plugin.reply(state, place, "Because", "k1") == first
    said = await plugin.comment(state, "Done", "k2")
    assert await scm(forge).comment(state, "Done", "k2") == said
    forge.comment(pull, "Done\n\n<!-- ao:k3 -->", by="eve")
    assert len(thread.comments) == 2
    [state] = await plugin.read([name(pull)])
    assert [(one.body, one.author.kind, one.mark) for one in state.comments] == [
        ("Why?", "person", ""),
        ("Because", "agent", "k1"),
        ("Done", "agent", "k2"),
        ("Done", "person", ""),
    ]
    await plugin.resolve(place)
    assert thread.resolved
    with pytest.raises(NotFound):
        await plugin.resolve("nonsense")
    with pytest.raises(NotFound, match="gone"):
        await plugin.reply(state, f"{name(pull)}!abc", "x", "k4")


async def test_people_are_asked_for_review_beside_others(forge: GitLabServer, pull: MergeRequest) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    await plugin.request_review(state, ["@rev"])
    await plugin.request_review(state, ["boss"])
    assert list(pull.reviewers) == ["rev", "boss"]
    with pytest.raises(NotFound, match="nobody"):
        await plugin.request_review(state, ["nobody"])


async def test_what_gitlab_does_not_know_yet_is_unknown(forge: GitLabServer, repo: Project) -> None:
    forge.world.unknown_first = 1
    pull = forge.pull(repo, "feature/x")
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    assert state.mergeable == "unknown"
    [state] = await plugin.read([name(pull)])
    assert state.mergeable == "yes"
    forge.push(repo, "main", {"a.txt": "1\nzwei\n3\n"})
    with pytest.raises(Temporary, match="does not know yet"):
        await plugin.merge(state, landing(state))
    [state] = await plugin.read([name(pull)])
    assert state.mergeable == "no"
    assert await plugin.merge(state, landing(state)) == Unmergeable("it conflicts with its base")


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ({"pipeline_must_succeed": True}, "its pipeline must pass"),
        ({"approvals_required": 1}, "an approving review is required"),
        ({"discussions_must_be_resolved": True}, "discussions must be resolved"),
    ],
)
async def test_what_blocks_is_said_and_it_lands_by_itself_when_that_is_met(
    forge: GitLabServer, repo: Project, pull: MergeRequest, asks: dict[str, Any], said: str
) -> None:
    forge.protect(repo, **asks)
    thread = forge.thread(pull, "a.txt", 2, "Why?", by="rev") if "discussions_must_be_resolved" in asks else None
    plugin = scm(forge, by="boss")
    [state] = await plugin.read([name(pull)])
    assert state.blocked == said
    assert isinstance(await plugin.merge(state, landing(state)), Waiting)
    [state] = await plugin.read([name(pull)])
    assert state.queued
    assert isinstance(await plugin.merge(state, landing(state)), Waiting)
    if thread:
        await plugin.resolve(state.comments[0].thread or "")
    forge.check(repo, pull.head_sha, "tests", "success")
    if "approvals_required" in asks:
        forge.review(pull, "APPROVE", by="rev")
    assert pull.merged


async def test_only_the_named_commit_lands(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    moved = await plugin.merge(state, landing(state, head="0" * 40))
    assert isinstance(moved, Unmergeable) and moved.moved
    done = await plugin.merge(state, landing(state))
    assert done == Merged(repo.head("main") or "")
    assert repo.head("feature/x") is None
    assert await plugin.merge(state, landing(state)) == done
    assert pull.squash_commit == repo.head("main")


async def test_a_merge_commit_bears_our_words_and_the_branch_may_stay(
    forge: GitLabServer, repo: Project, pull: MergeRequest
) -> None:
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    done = await plugin.merge(state, landing(state, strategy="merge", delete_branch=False))
    assert isinstance(done, Merged)
    out = subprocess.run(
        ["git", "-C", str(repo.path), "log", "-1", "--format=%B", done.commit], capture_output=True, text=True
    )
    assert out.stdout.strip() == "Land it\n\nBecause"
    assert repo.head("feature/x") == state.head


async def test_a_fast_forward_project_wants_a_rebase(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    repo.merge_method = "ff"
    forge.push(repo, "main", {"c.txt": "c"})
    plugin = scm(forge)
    [state] = await plugin.read([name(pull)])
    assert (state.mergeable, state.blocked) == ("yes", "its branch must be brought up to date with its base")
    assert isinstance(await plugin.merge(state, landing(state)), Unmergeable)


async def test_who_may_not_merge_is_told(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    plugin = scm(forge, by="eve")
    [state] = await plugin.read([name(pull)])
    outcome = await plugin.merge(state, landing(state))
    assert isinstance(outcome, Unmergeable) and "may not merge" in outcome.reason


async def test_a_closed_or_draft_one_does_not_land(forge: GitLabServer, pull: MergeRequest) -> None:
    plugin = scm(forge)
    forge.edit(pull, title="Draft: Fix it")
    [state] = await plugin.read([name(pull)])
    assert state.draft and state.title == "Fix it" and state.blocked == ""
    assert await plugin.merge(state, landing(state)) == Unmergeable("it is a draft")
    forge.close(pull)
    assert await plugin.merge(state, landing(state)) == Unmergeable("it is closed")


async def test_a_renamed_project_goes_on_as_it_was(forge: GitLabServer, repo: Project, pull: MergeRequest) -> None:
    plugin = scm(forge)
    [before] = await plugin.read([name(pull)])
    forge.rename(repo, "acme/tools/renamed")
    [after] = await plugin.read([before.id])
    assert after.id == before.id
    assert plugin.repo == "acme/tools/renamed"
    assert plugin.push_url()[0].endswith("/acme/tools/renamed.git")
    assert (await scm(forge).get(1)).id == before.id


async def test_a_fork_is_pushed_to_and_merged_from(forge: GitLabServer, repo: Project, tmp_path: Path) -> None:
    fork = forge.fork(repo, "dev")
    forge.push(fork, "mine", {"b.txt": "b"}, by="dev")
    plugin = scm(forge, fork="dev/app")
    state = await plugin.open(PullSpec("mine", "main", "From afar", "", draft=False))
    assert (state.fork, state.branch, state.number) == ("dev/app", "mine", 1)
    assert (await plugin.open(PullSpec("mine", "main", "From afar", "", draft=False))).id == state.id
    forge.check(fork, state.head, "tests", "failed", log="no")
    [state] = await plugin.read([state.id])
    assert [one.state for one in state.checks] == ["failure"]
    assert b"no" in await plugin.log(state.checks[0].job or "", 1000)
    assert plugin.push_url()[0] == forge.git_url("dev/app")


async def test_git_pushes_with_the_token_and_no_word_of_it_is_seen(
    forge: GitLabServer, repo: Project, tmp_path: Path
) -> None:
    url, env = scm(forge).push_url()
    assert "glpat" not in url
    run = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **env}, "check": True}
    subprocess.run(["git", "clone", "-q", url, "clone"], **run)  # type: ignore[call-overload]
    run["cwd"] = tmp_path / "clone"
    subprocess.run(["git", "push", "-q", "origin", "HEAD:refs/heads/pushed"], **run)  # type: ignore[call-overload]
    assert repo.head("pushed") == repo.head("main")
