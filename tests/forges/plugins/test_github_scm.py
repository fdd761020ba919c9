"""Our GitHub plugin against the test server: what it reads, says and does, and that nothing is done twice."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.merge import delete_branch, merge_now
from agent_orchestrator.protocols.forge import SCM, Merged, PullSpec, Unmergeable, Waiting
from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.plugins.github import counted, landing, scm

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(forge: GitHubServer) -> Repo:
    made = forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "write", "rev": "write", "eve": "read"})
    forge.push(made, "feature/x", {"a.txt": "1\ntwo\n3\n"}, by="dev")
    return made


SPEC = PullSpec("feature/x", "main", "Fix it", "Because", draft=True)


async def test_it_is_what_the_slot_asks_for(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    assert isinstance(plugin, SCM)
    assert plugin.repo == "acme/app"
    assert await plugin.configured()
    login = await plugin.login()
    assert (login.name, login.kind, login.write_access) == ("dev", "person", "yes")


async def test_a_pull_request_is_opened_once_whatever_happens(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    assert await plugin.find("feature/x") is None
    first = await plugin.open(SPEC)
    assert (first.number, first.title, first.draft, first.state) == (1, "Fix it", True, "open")
    assert (first.branch, first.base, first.head) == ("feature/x", "main", repo.head("feature/x"))
    assert first.base_head == repo.head("main")
    again = await scm(forge).open(SPEC)
    assert again.id == first.id
    found = await plugin.find("feature/x")
    assert found is not None and found.id == first.id
    assert (await plugin.get(1)).id == first.id


async def test_one_that_was_opened_in_between_is_found(forge: GitHubServer, repo: Repo) -> None:
    """The answer to our listing is old; GitHub refuses the second one with 422."""
    plugin = scm(forge)
    listed = plugin._listed
    calls = 0

    async def late(branch: str) -> Any:
        nonlocal calls
        calls += 1
        return [] if calls == 1 else await listed(branch)

    plugin._listed = late  # type: ignore[method-assign]
    made = forge.pull(repo, "feature/x")
    assert (await plugin.open(SPEC)).id == made.node_id


async def test_a_closed_one_does_not_stand_in_the_way(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    first = await plugin.open(SPEC)
    await plugin.close(first)
    await plugin.close(first)
    closed = await plugin.find("feature/x")
    assert closed is not None and closed.state == "closed"
    second = await plugin.open(SPEC)
    assert second.number == 2
    found = await plugin.find("feature/x")
    assert found is not None and found.number == 2


@pytest.mark.parametrize(("branch", "said"), [("nowhere", "head"), ("main", "No commits")])
async def test_what_cannot_be_opened_says_why(forge: GitHubServer, repo: Repo, branch: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await scm(forge).open(PullSpec(branch, "main", "T", "", draft=False))


async def test_everything_that_was_said_is_read(forge: GitHubServer, repo: Repo) -> None:
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
    assert [(one.verdict, one.body, one.author.name, one.author.write_access) for one in state.reviews] == [
        ("commented", "only a body", "rev", "yes"),
        ("changes_requested", "no", "rev", "yes"),
    ]
    said = [
        (one.body, one.author.name, one.author.kind, one.author.write_access, one.path, one.line)
        for one in state.comments
    ]
    assert said == [
        ("looks odd", "eve", "person", "no", None, None),
        ("I am a machine", "helper[bot]", "bot", "no", None, None),
        ("why two?", "rev", "person", "yes", "a.txt", 2),
        ("tell me", "eve", "person", "no", "a.txt", 2),
    ]
    assert {one.thread for one in state.comments} == {None, thread.node_id}
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


async def test_a_strangers_workflow_that_waits_for_a_word_is_neither_green_nor_red(
    forge: GitHubServer, repo: Repo
) -> None:
    fork = forge.fork(repo, "eve")
    forge.push(fork, "fix", {"a.txt": "eve\n"}, by="eve")
    forge.pull(repo, "fix", by="eve", head_repo=fork)
    forge.await_approval(repo, fork.head("fix") or "", by="eve")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert [(check.name, check.state) for check in pull.checks] == [("CI", "queued")]
    assert "maintainer" in pull.checks[0].summary
    assert await plugin.rerun(pull) == 0


async def test_no_checks_are_none_only_where_none_can_come(forge: GitHubServer, repo: Repo) -> None:
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
    assert [one.body for one in state.comments] == [f"comment {number}" for number in range(1000)]
    assert state.unread == ()


async def test_many_are_read_by_few_requests_and_the_gone_are_left_out(forge: GitHubServer, repo: Repo) -> None:
    ids = []
    for number in range(25):
        forge.push(repo, f"b{number}", {"b.txt": str(number)})
        ids.append(forge.pull(repo, f"b{number}").node_id)
    plugin = scm(forge)
    await plugin.login()
    await counted(forge)
    before = len(forge.ledger.requests)
    found = await plugin.read([*ids, "PR_gone"])
    assert [one.id for one in found] == ids
    assert (await counted(forge, before))["graphql"] == 2


async def test_a_comment_is_said_once_and_known_as_ours(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    plugin = scm(forge)
    (state,) = await plugin.read([pull.node_id])
    first = await plugin.comment(state, "It is done.", "session:1")
    assert await scm(forge).comment(state, "It is done.", "session:1") == first
    forge.comment(pull, "<!-- ao:session:2 -->", by="eve")
    assert await plugin.comment(state, "More", "session:2") != first
    (state,) = await plugin.read([pull.node_id])
    assert [(one.body, one.author.kind, one.mark) for one in state.comments if one.author.name == "dev"] == [
        ("It is done.", "agent", "session:1"),
        ("More", "agent", "session:2"),
    ]
    assert first == state.comments[0].id


async def test_a_discussion_is_answered_once_and_resolved(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x")
    thread = forge.thread(pull, "a.txt", 2, "why?", by="rev")
    plugin = scm(forge)
    (state,) = await plugin.read([pull.node_id])
    name = state.comments[0].thread
    assert name is not None
    first = await plugin.reply(state, name, "because", "k")
    assert await scm(forge).reply(state, name, "because", "k") == first
    await plugin.resolve(name)
    await plugin.resolve(name)
    (state,) = await plugin.read([pull.node_id])
    assert [(one.body, one.mark, one.resolved) for one in state.comments] == [
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


async def test_it_lands_at_exactly_the_commit_and_its_branch_goes(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    moved = forge.push(repo, "feature/x", {"a.txt": "other\n"})
    refused = await plugin.merge(pull, landing(pull))
    assert isinstance(refused, Unmergeable) and refused.moved
    done = await plugin.merge(pull, landing(pull, head=moved))
    assert isinstance(done, Merged)
    assert done.commit == repo.head("main")
    assert forge.log(repo)[0].message.startswith("Land it")
    assert repo.head("feature/x") is None
    assert await plugin.merge(pull, landing(pull, head=moved)) == done
    (state,) = await plugin.read([pull.id])
    assert (state.state, state.merged_as) == ("merged", done.commit)


async def test_a_head_that_moves_in_the_last_moment_does_not_land(forge: GitHubServer, repo: Repo) -> None:
    """Between our look and the request itself."""
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    forge.push(repo, "feature/x", {"a.txt": "other\n"})
    refused = await merge_now(await plugin._at.http(), plugin.repo, pull, landing(pull))
    assert isinstance(refused, Unmergeable) and refused.moved


async def test_a_branch_that_moved_on_after_the_merge_stays(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = forge.pull(repo, "feature/x")
    http = await plugin._at.http()
    newer = forge.push(repo, "feature/x", {"c.txt": "more"})
    await delete_branch(http, plugin.repo, "feature/x", "0" * 40)
    assert repo.head("feature/x") == newer == pull.head_sha


@pytest.mark.parametrize("why", ["draft", "closed", "conflict"])
async def test_what_cannot_land_says_why(forge: GitHubServer, repo: Repo, why: str) -> None:
    plugin = scm(forge)
    made = forge.pull(repo, "feature/x", draft=why == "draft")
    if why == "conflict":
        forge.push(repo, "main", {"a.txt": "1\nzwei\n3\n"})
    pull = await plugin.get(1)
    if why == "closed":
        forge.close(made)
    if why == "conflict":
        pull = await plugin.get(1)
        assert pull.mergeable == "no"
    refused = await plugin.merge(pull, landing(pull))
    assert isinstance(refused, Unmergeable)
    assert why[:6] in refused.reason


async def test_what_the_rules_forbid_waits_where_github_can_land_it_itself(forge: GitHubServer, repo: Repo) -> None:
    forge.protect(repo, checks=("tests",), approvals=1)
    made = forge.pull(repo, "feature/x", by="dev")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert "required checks have not passed: tests" in pull.blocked
    assert "an approving review is required" in pull.blocked
    assert isinstance(await plugin.merge(pull, landing(pull)), Waiting)
    assert isinstance(await plugin.merge(pull, landing(pull)), Waiting)
    assert (await plugin.get(1)).queued
    forge.check(repo, "feature/x", "tests", "success")
    forge.review(made, "APPROVE", by="rev")
    state = await plugin.get(1)
    assert state.state == "merged"
    assert forge.log(repo)[0].message.startswith("Land it")


async def test_a_merge_queue_is_used_where_there_is_one(forge: GitHubServer, repo: Repo) -> None:
    forge.protect(repo, checks=("tests",), merge_queue=True)
    made = forge.pull(repo, "feature/x")
    forge.check(repo, "feature/x", "tests", "success")
    plugin = scm(forge)
    pull = await plugin.get(1)
    waits = await plugin.merge(pull, landing(pull))
    assert isinstance(waits, Waiting) and "merge queue" in waits.reason
    assert (await plugin.get(1)).queued
    group = forge.group(made)
    assert group is not None
    forge.check(repo, group, "tests", "success")
    assert (await plugin.get(1)).state == "merged"


async def test_failed_jobs_run_again_once(forge: GitHubServer, repo: Repo) -> None:
    forge.pull(repo, "feature/x")
    forge.check(repo, "feature/x", "tests", "failure", log="no")
    plugin = scm(forge)
    pull = await plugin.get(1)
    assert await plugin.rerun(pull) == 1
    assert {check.state for check in (await plugin.get(1)).checks} <= {"queued", "running"}
    assert await plugin.rerun(pull) == 0


async def test_git_pushes_without_asking(forge: GitHubServer, repo: Repo, tmp_path: Path) -> None:
    url, env = scm(forge).push_url()
    assert forge.git_url("acme/app") == url

    def git(*argv: str) -> None:
        subprocess.run(
            ["git", *argv], cwd=tmp_path, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", **env}
        )

    git("clone", "-q", url, "clone")
    where = ("-C", "clone", "-c", "user.name=t", "-c", "user.email=t@t")
    git(*where, "checkout", "-qb", "mine")
    git(*where, "commit", "-q", "--allow-empty", "-m", "x")
    git(*where, "push", "-q", url, "mine")
    assert repo.head("mine") is not None
    assert "ghp_" not in url + Path(tmp_path, "clone/.git/config").read_text()


async def test_a_renamed_repository_is_still_known(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.pull(repo, "feature/x")
    pull = await plugin.get(1)
    forge.rename(repo, "better")
    assert await plugin.find("feature/x") is not None
    (state,) = await plugin.read([pull.id])
    assert state.number == 1
    assert plugin.repo == "acme/better"
    assert isinstance(await plugin.merge(pull, landing(pull)), Merged)


async def test_a_fork_is_pushed_to_and_opened_from(forge: GitHubServer, repo: Repo) -> None:
    fork = forge.fork(repo, "eve")
    head = forge.push(fork, "fix", {"a.txt": "eve\n"}, by="eve")
    plugin = scm(forge, by="eve", fork="eve/app")
    assert plugin.push_url()[0] == forge.git_url("eve/app")
    await plugin.login()
    pull = await plugin.open(PullSpec("fix", "main", "T", ""))
    assert (pull.head, pull.fork) == (head, "eve/app")
    found = await plugin.find("fix")
    assert found is not None and found.id == pull.id


async def test_a_deleted_branch_leaves_a_pull_request_that_can_be_read(forge: GitHubServer, repo: Repo) -> None:
    forge.pull(repo, "feature/x")
    forge.delete_branch(repo, "feature/x")
    state = await scm(forge).get(1)
    assert (state.state, state.branch) == ("closed", "feature/x")


async def test_what_a_token_may_not_do_is_said_at_sign_in(forge: GitHubServer, repo: Repo) -> None:
    with pytest.raises(Denied, match="lacks the scope"):
        await scm(forge, token=forge.token("dev", ("gist",))).login()
    with pytest.raises(Denied, match="may not write to acme/app"):
        await scm(forge, by="eve").login()
    with pytest.raises(Denied, match="not accepted"):
        await scm(forge, token=forge.token("dev", expired=True)).login()
    with pytest.raises(NotFound, match=r"the token .* may not see"):
        await scm(forge, repo="acme/none").login()


async def test_there_is_no_such_number(forge: GitHubServer, repo: Repo) -> None:
    with pytest.raises(NotFound, match="no pull request #77"):
        await scm(forge).get(77)


def _asked_of_rights(forge: GitHubServer) -> list[str]:
    return [one.path.rpartition("/collaborators/")[2] for one in forge.ledger.requests if "/collaborators/" in one.path]


async def test_a_member_who_may_only_read_is_a_stranger(forge: GitHubServer, repo: Repo) -> None:
    now = 1_000_000.0
    plugin = scm(forge, clock=lambda: now)
    pull = forge.pull(repo, "feature/x", by="dev")
    for name, association in (("eve", "COLLABORATOR"), ("eve", "MEMBER"), ("rev", "MEMBER"), ("zoe", "NONE")):
        forge.comment(pull, "listen", by=name, association=association)
    (state,) = await plugin.read([pull.node_id])
    access = [(one.author.name, one.author.write_access) for one in state.comments]
    assert access == [("eve", "no"), ("eve", "no"), ("rev", "yes"), ("zoe", "no")]
    await plugin.read([pull.node_id])
    await counted(forge)
    assert sorted(_asked_of_rights(forge)) == ["eve/permission", "rev/permission"], "each member once, nobody else"
    repo.people |= {"eve": "write", "rev": "triage"}
    now += 3_601
    (state,) = await plugin.read([pull.node_id])
    assert [one.author.write_access for one in state.comments] == ["yes", "yes", "no", "no"]


async def test_of_reviewers_github_tells_beside_what_they_may(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.review(pull, "APPROVE", "fine", by="eve", association="MEMBER")
    forge.review(pull, "APPROVE", "fine too", by="rev", association="MEMBER")
    forge.comment(pull, "as I said", by="rev", association="MEMBER")
    (state,) = await scm(forge).read([pull.node_id])
    assert [(one.author.name, one.author.write_access) for one in state.reviews] == [("eve", "no"), ("rev", "yes")]
    assert [one.author.write_access for one in state.comments] == ["yes"]
    await counted(forge)
    assert _asked_of_rights(forge) == []


async def test_who_may_not_ask_about_rights_knows_none(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.comment(pull, "listen", by="rev", association="MEMBER")
    (state,) = await scm(forge, by="eve").read([pull.node_id])
    assert [one.author.write_access for one in state.comments] == ["unknown"]


async def test_while_rights_cannot_be_asked_about_nothing_is_concluded(forge: GitHubServer, repo: Repo) -> None:
    pull = forge.pull(repo, "feature/x", by="dev")
    forge.comment(pull, "listen", by="rev", association="MEMBER")
    plugin = scm(forge)
    forge.fail(500, path="/collaborators/", next=9)
    (state,) = await plugin.read([pull.node_id])
    assert [one.author.write_access for one in state.comments] == ["unknown"]
    forge.mend()
    (state,) = await plugin.read([pull.node_id])
    assert [one.author.write_access for one in state.comments] == ["yes"]
    forge.fail("rate", path="/collaborators/")
    with pytest.raises(Temporary):
        await scm(forge).read([pull.node_id])
