"""What lands at a forge is what was checked and approved, whatever moves meanwhile; and what is done here once it has landed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.protocols.forge import Waiting
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, Json, wait_for_session, wait_for_status
from tests.forges.daemon.test_loop import CONFIG, Forge, address, basic, begin
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
        with GitLabServer() as one:
            yield one
    else:
        with GitHubServer(schema=request.getfixturevalue("schema")) as other:
            yield other


@pytest.fixture
def box(tmp_path: Path, forge: Forge, kind: str, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A clone of a repository at the forge, and its daemon, which hears by webhook."""
    forge.repository("acme/app", {"a.txt": "1\n", "c.txt": "c\n"}, people={"dev": "write", "rev": "write"})
    config = CONFIG.format(kind=kind, url=forge.url, token=forge.token("dev"))
    if "by_its_rule" in request.node.name:
        config += RULES
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=config)
        sandbox.git("remote", "add", "origin", forge.git_url("acme/app"))
        sandbox.git("-c", f"http.extraHeader={basic(forge)}", "fetch", "-q", "origin")
        sandbox.git("reset", "-q", "--hard", "origin/main")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        forge.hook("acme/app", f"{address(sandbox)}/api/webhooks/{kind}", "s3cret")
        yield sandbox


def demand(forge: Forge, **more: Any) -> None:
    """Nothing lands before its check has passed."""
    if isinstance(forge, GitLabServer):
        forge.protect("acme/app", pipeline_must_succeed=True, **more)
    else:
        forge.protect("acme/app", checks=("tests",), **more)


def waits_there(pull: Any) -> bool:
    """Will the forge land it by itself?"""
    return bool(pull.auto_merge or getattr(pull, "queue", None) or getattr(pull, "train", None))


def handed_over(box: Sandbox, forge: Forge) -> Any:
    """A session whose change the forge is to land when its check has passed."""
    begin(box, "one", TASK)
    ready = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", ready["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_session(
        box, "one", lambda now: now["pr"]["checks"] and now["pr"]["mergeable"] == "yes", "its check to be seen"
    )
    box.ao("merge", "one", "--no-wait")
    box.until(lambda: waits_there(pull), "the forge to wait for it", TIMEOUT)
    wait_for_session(box, "one", lambda now: now["waitingFor"], "it to be told")
    return pull


def failures(box: Sandbox) -> list[Json]:
    return [one["data"] for one in box.events("one") if one["type"] == "landing-failed"]


def test_what_moves_before_it_lands_is_not_landed_by_the_forge(box: Sandbox, forge: Forge) -> None:
    demand(forge)
    pull = handed_over(box, forge)
    first = pull.head_sha
    forge.ci("acme/app", lambda repo, sha: forge.check(repo, sha, "tests", "success") and None)  # type: ignore[arg-type]
    box.ao("send", "one", "go on")
    box.until(lambda: pull.head_sha != first, "the push", TIMEOUT)
    box.until(lambda: failures(box), "it to be told", TIMEOUT)
    assert [one["cause"] for one in failures(box)] == ["moved"]
    forge.review(pull, "APPROVE", by="rev")
    wait_for_status(box, "one", "mergeable")
    assert not pull.merged and not waits_there(pull)
    box.ao("merge", "one")
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "two\n"


def test_what_somebody_else_pushes_is_not_landed(box: Sandbox, forge: Forge, kind: str) -> None:
    demand(forge)
    pull = handed_over(box, forge)
    forge.push("acme/app", pull.head_ref if kind == "github" else pull.branch, {"b.txt": "theirs\n"}, by="rev")
    box.until(lambda: not waits_there(pull), "the forge not to wait for it any more", TIMEOUT)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    if kind == "github":  # GitLab does so itself, and is asked later
        box.until(lambda: failures(box), "it to be told", TIMEOUT)
        assert failures(box)[0]["cause"] == "moved" and pull.head_sha[:12] in failures(box)[0]["reason"]
    assert not pull.merged


def test_a_person_calls_it_off(box: Sandbox, forge: Forge) -> None:
    demand(forge)
    pull = handed_over(box, forge)
    box.ao("merge", "one", "--cancel")
    assert not waits_there(pull)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(box, "one", lambda now: now["status"] != "merging", "it to be called off")
    assert not pull.merged and [one["cause"] for one in failures(box)] == ["called-off"]
    assert_refused(box.ao("merge", "one", "--cancel", check=False), 1, "not to land", "ao queue")


def test_a_queue_takes_it_again_by_its_rule_once_it_is_good_again(box: Sandbox, forge: Forge) -> None:
    demand(forge, **({"merge_trains": True} if isinstance(forge, GitLabServer) else {"merge_queue": True}))
    begin(box, "one", TASK)
    ready = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", ready["pr"]["number"])
    first = pull.head_sha
    forge.check("acme/app", first, "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    box.until(lambda: waits_there(pull), "the queue", TIMEOUT)
    box.ao("send", "one", "go on")
    box.until(lambda: pull.head_sha != first, "the push", TIMEOUT)
    assert not waits_there(pull)
    forge.check("acme/app", pull.head_sha, "tests", "success")
    forge.review(pull, "APPROVE", by="rev") if isinstance(forge, GitHubServer) else None
    box.until(lambda: waits_there(pull), "the queue again", TIMEOUT)
    assert not pull.merged
    group = box.until(lambda: forge.train(pull) if isinstance(forge, GitLabServer) else forge.group(pull), "its group")
    forge.check("acme/app", group or "", "tests", "success")
    merged = wait_for_status(box, "one", "merged")
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "two\n" and merged["pr"]["state"] == "merged"


def landed(box: Sandbox, forge: Forge) -> Any:
    begin(box, "one", "[[write: b.txt|one]] [[commit: one]] [[commit: again]] [[done: made]]")
    ready = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", ready["pr"]["number"])
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


def there(forge: Forge) -> str:
    repo: Any = forge.world.repos["acme/app"] if isinstance(forge, GitHubServer) else forge._project("acme/app")
    return str(repo.head("main"))


def test_the_base_follows_a_landing_and_the_branch_goes(box: Sandbox, forge: Forge) -> None:
    landed(box, forge)
    box.until(lambda: box.git("rev-parse", "main") == there(forge), "the base to follow", TIMEOUT)
    assert box.git("rev-parse", "origin/main") == there(forge)
    assert (box.repo / "b.txt").read_text() == "one\n" and not box.git("status", "--porcelain", "-uno")
    assert branches(box) == ["main"]
    assert box.git("for-each-ref", "--format=%(refname)", "refs/ao/landed/app-one/")
    assert box.git("worktree", "list").count("\n") == 0


def test_what_the_user_has_in_his_checkout_stays_as_it_is(box: Sandbox, forge: Forge) -> None:
    before = box.git("rev-parse", "main")
    (box.repo / "b.txt").write_text("mine\n")
    landed(box, forge)
    box.until(lambda: box.git("rev-parse", "origin/main") == there(forge), "the base to be fetched", TIMEOUT)
    assert (box.repo / "b.txt").read_text() == "mine\n" and box.git("rev-parse", "main") == before
    assert branches(box) == ["main"]


def test_a_branch_with_more_than_what_landed_stays(box: Sandbox, forge: Forge) -> None:
    begin(box, "one", "[[write: b.txt|one]] [[commit: one]] [[done: made]]")
    ready = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull: Any = forge.find_pull("acme/app", ready["pr"]["number"])
    box.stop()
    workspace = Path(ready["workspacePath"])
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
async def test_the_plugin_calls_it_off(forge: Forge, kind: str, queue: bool) -> None:
    repo: Any = forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    trains = {"merge_trains": True} if kind == "gitlab" else {"merge_queue": True}
    demand(forge, **(trains if queue else {}))
    forge.push(repo, "feature/x", {"a.txt": "2\n"}, by="dev")
    pull: Any = forge.pull(repo, "feature/x", by="dev")
    if queue:
        forge.check(repo, "feature/x", "tests", "success")
    elif kind == "gitlab":
        forge.check(repo, "feature/x", "tests")
    plugin: Any = gitlab.scm(forge, by="dev") if isinstance(forge, GitLabServer) else github.scm(forge)
    state = await plugin.get(1)
    await plugin.call_off(state)
    assert isinstance(await plugin.merge(state, github.landing(state)), Waiting)
    assert waits_there(pull)
    if kind == "github" and not queue:  # GitHub keeps it on when somebody who may push does
        forge.push(repo, "feature/x", {"a.txt": "3\n"}, by="dev")
        assert waits_there(pull)
    await plugin.call_off(state)
    assert not waits_there(pull)
    await plugin.call_off(state)
    forge.check(repo, "feature/x", "tests", "success")
    assert not pull.merged


def test_the_board_tells_how_the_base_is_at_the_forge(box: Sandbox, forge: Forge) -> None:
    begin(box, "one", TASK)
    wait_for_session(box, "one", lambda now: now["pr"], "a pull request")
    bad = "failed" if isinstance(forge, GitLabServer) else "failure"

    def base() -> tuple[str, bool]:
        [project] = box.request("GET", "/api/overview")["projects"]
        return project["baseState"], bool(project["baseFailing"])

    assert base() == ("unknown", False)
    forge.check("acme/app", "main", "tests", bad)
    box.until(lambda: base() == ("red", True), "the board to tell that the base is red", TIMEOUT)
    forge.check("acme/app", "main", "tests", "success")
    box.until(lambda: base() == ("green", False), "the board to tell that it is mended", TIMEOUT)


def test_what_landed_at_a_forge_is_taken_back_there(box: Sandbox, forge: Forge, kind: str) -> None:
    begin(box, "one", TASK)
    ready = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    assert_refused(box.ao("undo", "one", check=False), 1, "has not landed")
    pull: Any = forge.find_pull("acme/app", ready["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(
        box, "one", lambda now: now["pr"]["checks"] and now["pr"]["mergeable"] == "yes", "its check to be seen"
    )
    box.ao("merge", "one")
    told = (f"landed at {kind}", f"press Revert at {ready['pr']['url']}", f"Revert pull request #{pull.number}")
    assert_refused(box.ao("undo", "one", check=False), 1, *told)
    assert pull.merged and forge.read("acme/app", "main", "b.txt") == "one\n" and len(box.sessions()) == 1
