"""Merges at a forge: only the commit that was checked and approved is merged; afterwards local branches are updated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.protocols.forge import MergeQueued
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, Json, wait_for_session, wait_for_status
from tests.forges.daemon.test_loop import CONFIG, Forge, address, authorization_header, start_session
from tests.forges.plugins import github, gitlab

TASK = (
    "[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] [[write: b.txt|two]] [[commit: two]] [[done: more]]"
)
pytestmark = pytest.mark.anyio
RULES = "reactions:\n  approved-and-green: {auto: true}\n"


@pytest.fixture(params=["github", "gitlab"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(kind: str, request: pytest.FixtureRequest) -> Iterator[Forge]:
    if kind == "gitlab":
        with GitLabServer() as gitlab_server:
            yield gitlab_server
    else:
        with GitHubServer(schema=request.getfixturevalue("schema")) as github_server:
            yield github_server


@pytest.fixture
def box(tmp_path: Path, forge: Forge, kind: str, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yield a sandbox with a clone of a repository at the forge, and its daemon, which gets webhooks."""
    forge.repository("acme/app", {"a.txt": "1\n", "c.txt": "c\n"}, people={"dev": "write", "rev": "write"})
    config = CONFIG.format(kind=kind, url=forge.url, token=forge.token("dev"))
    if "reaction_rule" in request.node.name:
        config += RULES
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=config)
        sandbox.git("remote", "add", "origin", forge.git_url("acme/app"))
        sandbox.git("-c", f"http.extraHeader={authorization_header(forge)}", "fetch", "-q", "origin")
        sandbox.git("reset", "-q", "--hard", "origin/main")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        forge.hook("acme/app", f"{address(sandbox)}/api/webhooks/{kind}", "s3cret")
        yield sandbox


def require_checks(forge: Forge, **options: Any) -> None:
    """Protect the base branch: a pull request needs a passed check."""
    if isinstance(forge, GitLabServer):
        forge.protect("acme/app", pipeline_must_succeed=True, **options)
    else:
        forge.protect("acme/app", checks=("tests",), **options)


def forge_will_merge(pull: Any) -> bool:
    """Return whether the forge is set to merge the pull request automatically."""
    return bool(pull.auto_merge or getattr(pull, "queue", None) or getattr(pull, "train", None))


def hand_over_to_forge(box: Sandbox, forge: Forge) -> Any:
    """Start a session and ask for its merge; return the pull request, which the forge is to merge once its check has passed."""
    start_session(box, "one", TASK)
    session = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", session["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_session(
        box, "one", lambda now: now["pr"]["checks"] and now["pr"]["mergeable"] == "yes", "its check to be seen"
    )
    box.ao("merge", "one", "--no-wait")
    box.wait_until(lambda: forge_will_merge(pull), "the forge to wait for it", TIMEOUT)
    wait_for_session(box, "one", lambda now: now["waitingFor"], "the session to wait")
    return pull


def merge_failures(box: Sandbox) -> list[Json]:
    return [event["data"] for event in box.events("one") if event["type"] == "landing-failed"]


def test_a_push_before_the_merge_cancels_the_forges_automatic_merge(box: Sandbox, forge: Forge) -> None:
    require_checks(forge)
    pull = hand_over_to_forge(box, forge)
    first = pull.head_sha
    forge.ci("acme/app", lambda repo, sha: forge.check(repo, sha, "tests", "success") and None)  # type: ignore[arg-type]
    box.ao("send", "one", "go on")
    box.wait_until(lambda: pull.head_sha != first, "the push", TIMEOUT)
    box.wait_until(lambda: merge_failures(box), "the merge failure to be recorded", TIMEOUT)
    assert [failure["cause"] for failure in merge_failures(box)] == ["moved"]
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, "one", "mergeable")
    assert not pull.merged and not forge_will_merge(pull)
    box.ao("merge", "one")
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "two\n"


def test_a_commit_pushed_by_another_person_is_not_merged(box: Sandbox, forge: Forge, kind: str) -> None:
    require_checks(forge)
    pull = hand_over_to_forge(box, forge)
    forge.push("acme/app", pull.head_ref if kind == "github" else pull.branch, {"b.txt": "theirs\n"}, by="rev")
    box.wait_until(lambda: not forge_will_merge(pull), "the forge not to wait for it any more", TIMEOUT)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    if kind == "github":  # GitLab does so itself, and is asked later
        box.wait_until(lambda: merge_failures(box), "the merge failure to be recorded", TIMEOUT)
        assert merge_failures(box)[0]["cause"] == "moved" and pull.head_sha[:12] in merge_failures(box)[0]["reason"]
    assert not pull.merged


def test_a_person_cancels_the_automatic_merge(box: Sandbox, forge: Forge) -> None:
    require_checks(forge)
    pull = hand_over_to_forge(box, forge)
    box.ao("merge", "one", "--cancel")
    assert not forge_will_merge(pull)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(box, "one", lambda now: now["status"] != "merging", "it to be called off")
    assert not pull.merged and [failure["cause"] for failure in merge_failures(box)] == ["called-off"]
    assert_refused(box.ao("merge", "one", "--cancel", check=False), 1, "not to land", "ao queue")


def test_a_reaction_rule_puts_a_pull_request_into_the_forges_queue_again(box: Sandbox, forge: Forge) -> None:
    require_checks(forge, **({"merge_trains": True} if isinstance(forge, GitLabServer) else {"merge_queue": True}))
    start_session(box, "one", TASK)
    session = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", session["pr"]["number"])
    first = pull.head_sha
    forge.check("acme/app", first, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    box.wait_until(lambda: forge_will_merge(pull), "the queue", TIMEOUT)
    box.ao("send", "one", "go on")
    box.wait_until(lambda: pull.head_sha != first, "the push", TIMEOUT)
    assert not forge_will_merge(pull)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev") if isinstance(forge, GitHubServer) else None
    box.wait_until(lambda: forge_will_merge(pull), "the queue again", TIMEOUT)
    assert not pull.merged
    group = box.wait_until(
        lambda: forge.train(pull) if isinstance(forge, GitLabServer) else forge.group(pull), "its group"
    )
    forge.check("acme/app", group or "", "tests", "success")
    merged_session = wait_for_status(box, "one", "merged")
    assert (
        pull.merged and forge.read("acme/app", "main", "b.txt") == "two\n" and merged_session["pr"]["state"] == "merged"
    )


def merge_session(box: Sandbox, forge: Forge) -> Any:
    start_session(box, "one", "[[write: b.txt|one]] [[commit: one]] [[commit: again]] [[done: made]]")
    session = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", session["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, "one", "mergeable")
    box.ao("merge", "one")
    wait_for_session(
        box, "one", lambda now: now["status"] == "merged" and not now["workspacePath"], "it to be cleaned up"
    )
    return pull


def branches(box: Sandbox) -> list[str]:
    return box.git("branch", "--format=%(refname:short)").split()


def base_head(forge: Forge) -> str:
    repo: Any = forge.world.repos["acme/app"] if isinstance(forge, GitHubServer) else forge._project("acme/app")
    return str(repo.head("main"))


def test_a_merge_updates_the_local_base_branch_and_deletes_the_session_branch(box: Sandbox, forge: Forge) -> None:
    merge_session(box, forge)
    box.wait_until(lambda: box.git("rev-parse", "main") == base_head(forge), "the base to follow", TIMEOUT)
    assert box.git("rev-parse", "origin/main") == base_head(forge)
    assert (box.repo / "b.txt").read_text() == "one\n" and not box.git("status", "--porcelain", "-uno")
    assert branches(box) == ["main"]
    assert box.git("for-each-ref", "--format=%(refname)", "refs/ao/landed/app-one/")
    assert box.git("worktree", "list").count("\n") == 0


def test_uncommitted_files_in_the_users_checkout_stay_unchanged(box: Sandbox, forge: Forge) -> None:
    before = box.git("rev-parse", "main")
    (box.repo / "b.txt").write_text("mine\n")
    merge_session(box, forge)
    box.wait_until(lambda: box.git("rev-parse", "origin/main") == base_head(forge), "the base to be fetched", TIMEOUT)
    assert (box.repo / "b.txt").read_text() == "mine\n" and box.git("rev-parse", "main") == before
    assert branches(box) == ["main"]


def test_a_branch_with_commits_that_were_not_merged_is_kept(box: Sandbox, forge: Forge) -> None:
    start_session(box, "one", "[[write: b.txt|one]] [[commit: one]] [[done: made]]")
    session = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", session["pr"]["number"])
    box.stop()
    workspace = Path(session["workspacePath"])
    (workspace / "d.txt").write_text("more\n")
    box.git("add", "d.txt", cwd=workspace)
    box.git("commit", "-q", "-m", "more", cwd=workspace)
    forge.merge(pull, by="rev")
    box.start()
    wait_for_session(
        box, "one", lambda now: now["status"] == "merged" and not now["workspacePath"], "it to be cleaned up"
    )
    assert box.git("show", "feature/one:d.txt") == "more"
    assert "more" not in forge.read("acme/app", "main", "b.txt")


@pytest.mark.parametrize("queue", [False, True])
async def test_the_plugin_cancels_an_automatic_merge(forge: Forge, kind: str, queue: bool) -> None:
    repo: Any = forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    trains = {"merge_trains": True} if kind == "gitlab" else {"merge_queue": True}
    require_checks(forge, **(trains if queue else {}))
    forge.push(repo, "feature/x", {"a.txt": "2\n"}, by="dev")
    pull: Any = forge.pull(repo, "feature/x", by="dev")
    if queue:
        forge.check(repo, "feature/x", "tests", "success")
    elif kind == "gitlab":
        forge.check(repo, "feature/x", "tests")
    plugin: Any = gitlab.scm(forge, by="dev") if isinstance(forge, GitLabServer) else github.scm(forge)
    state = await plugin.get(1)
    await plugin.call_off(state)
    assert isinstance(await plugin.merge(state, github.merge_request(state)), MergeQueued)
    assert forge_will_merge(pull)
    if kind == "github" and not queue:  # GitHub keeps it on when somebody who may push does
        forge.push(repo, "feature/x", {"a.txt": "3\n"}, by="dev")
        assert forge_will_merge(pull)
    await plugin.call_off(state)
    assert not forge_will_merge(pull)
    await plugin.call_off(state)
    forge.check(repo, "feature/x", "tests", "success")
    assert not pull.merged


def test_the_board_shows_the_state_of_the_base_branch_at_the_forge(box: Sandbox, forge: Forge) -> None:
    start_session(box, "one", TASK)
    wait_for_session(box, "one", lambda now: now["pr"], "a pull request")
    bad = "failed" if isinstance(forge, GitLabServer) else "failure"

    def base() -> tuple[str, bool]:
        [project] = box.request("GET", "/api/overview")["projects"]
        return project["baseState"], bool(project["baseFailing"])

    assert base() == ("unknown", False)
    forge.check("acme/app", "main", "tests", bad)
    box.wait_until(lambda: base() == ("red", True), "the board to show the base as failing", TIMEOUT)
    forge.check("acme/app", "main", "tests", "success")
    box.wait_until(lambda: base() == ("green", False), "the board to show the base as passing", TIMEOUT)


def test_undo_of_a_merge_at_a_forge_points_to_the_forges_revert(box: Sandbox, forge: Forge, kind: str) -> None:
    start_session(box, "one", TASK)
    session = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    assert_refused(box.ao("undo", "one", check=False), 1, "has not landed")
    pull: Any = forge.find_pull("acme/app", session["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(
        box, "one", lambda now: now["pr"]["checks"] and now["pr"]["mergeable"] == "yes", "its check to be seen"
    )
    box.ao("merge", "one")
    words = (f"landed at {kind}", f"press Revert at {session['pr']['url']}", f"Revert pull request #{pull.number}")
    assert_refused(box.ao("undo", "one", check=False), 1, *words)
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "one\n" and len(box.sessions()) == 1
