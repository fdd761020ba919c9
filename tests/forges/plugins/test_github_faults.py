"""Faulty responses of GitHub: each gives an error of one line, loses nothing, and causes no request loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.pull_requests import GitHub
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.plugins.github import merge_request, scm, settled_counts, tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(forge: GitHubServer) -> Repo:
    repository = forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    for number in range(3):
        forge.push(repository, f"b{number}", {f"{number}.txt": "x"})
        forge.pull(repository, f"b{number}")
        forge.check(repository, f"b{number}", "tests", "success", log="ok")
    return repository


@pytest.fixture
def ids(forge: GitHubServer, repo: Repo) -> list[str]:
    return [forge.find_pull(repo, number).node_id for number in (1, 2, 3)]


async def _changed(plugin: GitHub) -> object:
    return await plugin.changed([])


async def _get(plugin: GitHub) -> object:
    return await plugin.get(1)


@pytest.mark.parametrize("call_plugin", [_changed, _get])
@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, Denied, "the token from scm.token is not accepted by GitHub at 127.0.0.1"),
        (403, Denied, "forbids"),
        (404, NotFound, "the token .* may not see"),
        (409, Conflict, "refuses"),
        (422, UsageError, "refuses"),
        (500, Temporary, "failed with 500"),
    ],
)
async def test_each_error_status_gives_one_error_with_advice(
    forge: GitHubServer,
    repo: Repo,
    call_plugin: Callable[[GitHub], Awaitable[object]],
    status: int,
    kind: type[AoError],
    message: str,
) -> None:
    plugin = scm(forge)
    await plugin.configured()
    forge.fail(status, next=99)
    with pytest.raises(kind, match=message) as caught:
        await call_plugin(plugin)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert (await settled_counts(forge))["rest"] + (await settled_counts(forge))["graphql"] == 1
    forge.clear_faults()
    await call_plugin(plugin)


async def test_a_single_failed_request_is_retried(forge: GitHubServer, repo: Repo, ids: list[str]) -> None:
    plugin = scm(forge)
    for fault_kind in (502, "html", "cut", "drop"):
        forge.fail(fault_kind, next=1)
        assert len(await plugin.read(ids)) == 3
        forge.fail(fault_kind, next=1)
        assert isinstance(await plugin.changed([]), Hint)


async def test_a_host_that_stays_down_is_tried_three_times(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.fail("drop", next=99)
    with pytest.raises(Temporary, match="could not be asked"):
        await plugin.changed([])
    assert 99 - sum(fault.remaining for fault in forge.ledger.faults) == 3


async def test_a_secondary_rate_limit_stops_all_plugins_with_the_same_token(forge: GitHubServer, repo: Repo) -> None:
    token = forge.token("dev")
    plugin, other = scm(forge, token=token), tracker(forge, token=token)
    forge.fail("secondary", retry_after=77)
    with pytest.raises(Temporary, match="takes no more requests before") as caught:
        await plugin.changed([])
    assert caught.value.until == pytest.approx(time.time() + 77, abs=5)
    before = sum((await settled_counts(forge)).values())
    with pytest.raises(Temporary):
        await other.list()
    with pytest.raises(Temporary):
        await plugin.get(1)
    assert sum((await settled_counts(forge)).values()) == before
    assert 70 < plugin.pause() <= 77


@pytest.mark.parametrize("kind", ["core", "graphql"])
async def test_a_used_up_rate_limit_stops_requests_of_its_kind_until_the_reset(
    forge: GitHubServer, repo: Repo, kind: str
) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    reset = time.time() + 1_000
    forge.set_rate(token, remaining=0, reset=reset, kind=kind)
    call_plugin, call_other = (_changed, _get) if kind == "core" else (_get, _changed)
    for _ in range(3):
        with pytest.raises(Temporary) as caught:
            await call_plugin(plugin)
        assert caught.value.until == pytest.approx(reset, abs=2)
    failed_requests = [request for request in forge.ledger.requests if request.status >= 400 or request.points == 0]
    assert len(failed_requests) <= 1
    assert plugin.pause() > 900
    if kind == "graphql":
        await call_other(plugin)


async def test_a_rate_limit_reset_in_the_past_causes_no_request_loop(forge: GitHubServer, repo: Repo) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    forge.set_rate(token, remaining=0, reset=time.time() - 500)
    for _ in range(3):
        with pytest.raises(Temporary) as caught:
            await plugin.changed([])
        assert caught.value.until is not None and caught.value.until > time.time()
    assert (await settled_counts(forge))["rest"] == 1


async def test_background_reading_slows_down_before_the_rate_limit_is_used_up(forge: GitHubServer, repo: Repo) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    assert plugin.pause() == 0
    await plugin.changed([])
    assert plugin.pause() == 0
    forge.set_rate(token, remaining=1_100, reset=time.time() + 1_000)
    await plugin.find("b0")
    assert 5 < plugin.pause() < 20
    assert await plugin.find("b1") is not None
    assert any("core: 1,0" in line for line in plugin.budget())


@pytest.mark.parametrize(
    ("field", "unread"),
    [
        ("statusCheckRollup", "checks"),
        ("contexts", "checks"),
        ("reviewThreads", "comments"),
        ("comments", "comments"),
        ("reviews", "reviews"),
        ("labels", "labels"),
    ],
)
async def test_parts_missing_in_graphql_answers_are_unknown_and_the_others_are_used(
    forge: GitHubServer, repo: Repo, ids: list[str], field: str, unread: str
) -> None:
    plugin = scm(forge)
    forge.fail("partial", field=field)
    states = await plugin.read(ids)
    for state in states:
        assert unread in state.unread
        if unread == "checks":
            assert (state.checks, state.checks_expected) == ((), None)
    if states:
        assert [state.number for state in states] == [1, 2, 3]
    assert all(state.unread == () for state in await plugin.read(ids))


async def test_an_answer_without_any_pull_request_is_an_error(forge: GitHubServer, repo: Repo, ids: list[str]) -> None:
    plugin = scm(forge)
    forge.fail("partial", field="headRefOid", next=9)
    with pytest.raises(Temporary):
        await plugin.read(ids)


async def test_a_comment_whose_response_was_cut_off_is_not_posted_twice(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = await plugin.get(1)
    forge.fail("cut", method="POST", path="comments$")
    with pytest.raises(Temporary):
        await plugin.comment(pull, "done", "k")
    await plugin.comment(pull, "done", "k")
    assert [comment.body.partition("\n")[0] for comment in forge.find_pull(repo, 1).comments] == ["done"]


async def test_a_merge_whose_response_was_cut_off_is_found_on_retry(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = await plugin.get(1)
    forge.fail("cut", method="PUT", path="merge$")
    with pytest.raises(Temporary):
        await plugin.merge(pull, merge_request(pull))
    merged = await plugin.merge(pull, merge_request(pull))
    assert getattr(merged, "commit", None) == repo.head("main")
    assert repo.head("b0") is None
    assert len(forge.log(repo)) == 2


async def test_a_force_push_while_reading_gives_the_new_head(forge: GitHubServer, repo: Repo, ids: list[str]) -> None:
    plugin = scm(forge)
    await plugin.read(ids)
    head = forge.push(repo, "b0", {"n.txt": "n"}, force=True)
    (state,) = await plugin.read(ids[:1])
    assert (state.head, state.checks) == (head, ())


async def test_only_the_end_of_a_log_of_200_mb_is_kept(forge: GitHubServer, repo: Repo) -> None:
    def log_lines() -> object:
        for _ in range(200):
            yield b"x" * (1024 * 1024 - 1) + b"\n"
        yield b"the end\n"

    forge.check(repo, "b0", "large", "failure", log=log_lines)  # type: ignore[arg-type]
    plugin = scm(forge)
    pull = await plugin.get(1)
    (job,) = [check.job for check in pull.checks if check.state == "failure"]
    assert job is not None
    log_end = await plugin.log(job, 10_000)
    assert len(log_end) <= 10_000
    assert log_end.endswith(b"the end\n")
