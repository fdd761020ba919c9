"""Faulty responses of GitLab: each gives an error of one line, loses nothing, and causes no request loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.gitlab.merge_requests import GitLab
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.gitlab import GitLabProject, GitLabServer
from tests.forges.plugins.github import merge_request
from tests.forges.plugins.gitlab import scm, tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def repo(forge: GitLabServer) -> GitLabProject:
    project = forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "developer", "rev": "developer"})
    for number in range(3):
        forge.push(project, f"b{number}", {f"{number}.txt": "x"})
        forge.pull(project, f"b{number}")
        forge.check(project, f"b{number}", "tests", "success")
    return project


@pytest.fixture
def ids(repo: GitLabProject) -> list[str]:
    return [f"{repo.id}!{number}" for number in (1, 2, 3)]


async def _changed(plugin: GitLab) -> object:
    return await plugin.changed([])


async def _get(plugin: GitLab) -> object:
    return await plugin.get(1)


@pytest.mark.parametrize("call_plugin", [_changed, _get])
@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, Denied, "the token from scm.token is not accepted by GitLab at 127.0.0.1"),
        (403, Denied, "forbids"),
        (404, NotFound, "the token .* may not see"),
        (409, Conflict, "refuses"),
        (422, UsageError, "refuses"),
        (500, Temporary, "failed with 500"),
    ],
)
async def test_each_error_status_gives_one_error_with_advice(
    forge: GitLabServer,
    repo: GitLabProject,
    call_plugin: Callable[[GitLab], Awaitable[object]],
    status: int,
    kind: type[AoError],
    message: str,
) -> None:
    plugin = scm(forge)
    await plugin.configured()
    fault = forge.fail(status, next=99)
    with pytest.raises(kind, match=message) as caught:
        await call_plugin(plugin)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert len(forge.ledger.requests) == 1
    fault.remaining = 0
    await call_plugin(plugin)


async def test_an_expired_token_is_refused(forge: GitLabServer, repo: GitLabProject) -> None:
    with pytest.raises(Denied, match="is not accepted"):
        await scm(forge, token=forge.token("dev", expired=True)).get(1)


async def test_a_single_failed_request_is_retried(forge: GitLabServer, repo: GitLabProject, ids: list[str]) -> None:
    plugin = scm(forge)
    for fault_kind in (502, "html", "cut", "drop"):
        forge.fail(fault_kind)
        assert len(await plugin.read(ids)) == 3
        forge.fail(fault_kind)
        assert isinstance(await plugin.changed([]), Hint)


async def test_a_host_that_stays_down_is_tried_three_times(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    fault = forge.fail("drop", next=99)
    with pytest.raises(Temporary, match="could not be asked"):
        await plugin.changed([])
    assert 99 - fault.remaining == 3


async def test_a_rate_limit_stops_all_plugins_with_the_same_token(forge: GitLabServer, repo: GitLabProject) -> None:
    token = forge.token("dev")
    plugin, other = scm(forge, token=token), tracker(forge, token=token)
    forge.set_rate(token, remaining=0, reset=time.time() + 45)
    with pytest.raises(Temporary, match="takes no more requests before") as caught:
        await plugin.changed([])
    assert caught.value.until == pytest.approx(time.time() + 45, abs=5)
    before = len(forge.ledger.requests)
    with pytest.raises(Temporary):
        await other.list()
    with pytest.raises(Temporary):
        await plugin.get(1)
    assert len(forge.ledger.requests) == before == 1
    assert 35 < plugin.pause() <= 46


async def test_a_rate_limit_with_a_reset_in_the_past_causes_no_request_loop(
    forge: GitLabServer, repo: GitLabProject
) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    forge.fail(429, next=99)
    for _ in range(3):
        with pytest.raises(Temporary) as caught:
            await plugin.changed([])
        assert caught.value.until is not None and caught.value.until > time.time()
    assert len(forge.ledger.requests) == 1


async def test_background_reading_slows_down_before_the_rate_limit_is_used_up(
    forge: GitLabServer, repo: GitLabProject
) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    await plugin.changed([])
    assert plugin.pause() == 0
    forge.set_rate(token, remaining=420, reset=time.time() + 50)
    await plugin.find("b0")
    assert plugin.pause() > 1


@pytest.mark.parametrize(
    ("path", "unread"),
    [("/discussions", ("comments", "reviews")), ("/jobs", ("checks",)), ("/approvals", ("reviews",))],
)
async def test_unreadable_parts_are_unknown_and_the_others_are_used(
    forge: GitLabServer, repo: GitLabProject, ids: list[str], path: str, unread: tuple[str, ...]
) -> None:
    plugin = scm(forge)
    fault = forge.fail(500, next=99, path=path)
    for state in await plugin.read(ids):
        assert state.unread == unread
        if unread == ("checks",):
            assert (state.checks, state.checks_expected) == ((), None)
    fault.remaining = 0
    assert all(state.unread == () for state in await plugin.read(ids))


async def test_a_truncated_page_is_not_used(forge: GitLabServer, repo: GitLabProject, ids: list[str]) -> None:
    pull = forge.find_pull(repo, 1)
    for number in range(150):
        forge.comment(pull, f"n{number}", by="rev")
    forge.fail("cut", next=99, path="/discussions$")
    [state] = await scm(forge).read(ids[:1])
    assert state.unread == ("comments", "reviews") and state.comments == ()


async def test_a_comment_whose_response_was_cut_off_is_not_posted_twice(
    forge: GitLabServer, repo: GitLabProject
) -> None:
    plugin = scm(forge)
    state = await plugin.get(1)
    forge.fail("cut", method="POST", path="notes$")
    with pytest.raises(Temporary):
        await plugin.comment(state, "done", "k")
    await plugin.comment(state, "done", "k")
    assert [note.body.partition("\n")[0] for note in forge.find_pull(repo, 1).notes] == ["done"]


async def test_a_merge_whose_response_was_cut_off_is_found_on_retry(forge: GitLabServer, repo: GitLabProject) -> None:
    plugin = scm(forge)
    state = await plugin.get(1)
    forge.fail("cut", method="PUT", path="merge$")
    with pytest.raises(Temporary):
        await plugin.merge(state, merge_request(state))
    merged = await plugin.merge(state, merge_request(state))
    assert getattr(merged, "commit", None) == repo.head("main")


async def test_a_deleted_branch_does_not_close_its_merge_request(
    forge: GitLabServer, repo: GitLabProject, ids: list[str]
) -> None:
    plugin = scm(forge)
    before = await plugin.get(1)
    from tests.forges.client import ForgeClient

    ForgeClient(forge, forge.token("dev"))("DELETE", f"/api/v4/projects/{repo.id}/repository/branches/b0")
    [state] = await plugin.read(ids[:1])
    assert (state.state, state.head) == ("open", before.head)
