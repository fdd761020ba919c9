"""A GitHub that misbehaves: each fault gives one clear line, loses nothing, and is not asked again and again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.pull_requests import GitHub
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.plugins.github import counted, landing, scm, tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(forge: GitHubServer) -> Repo:
    made = forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    for number in range(3):
        forge.push(made, f"b{number}", {f"{number}.txt": "x"})
        forge.pull(made, f"b{number}")
        forge.check(made, f"b{number}", "tests", "success", log="ok")
    return made


@pytest.fixture
def ids(forge: GitHubServer, repo: Repo) -> list[str]:
    return [forge.find_pull(repo, number).node_id for number in (1, 2, 3)]


async def _changed(plugin: GitHub) -> object:
    return await plugin.changed([])


async def _get(plugin: GitHub) -> object:
    return await plugin.get(1)


@pytest.mark.parametrize("act", [_changed, _get])
@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, Denied, "the token from scm.token is not accepted by GitHub at 127.0.0.1"),
        (403, Denied, "forbids"),
        (404, NotFound, "the token .* may not see"),
        (409, Conflict, "refuses"),
        (422, UsageError, "refuses"),
        (500, Temporary, "failed with 500"),
    ],
)
async def test_each_status_is_an_error_that_says_what_to_do(
    forge: GitHubServer,
    repo: Repo,
    act: Callable[[GitHub], Awaitable[object]],
    status: int,
    kind: type[AoError],
    said: str,
) -> None:
    plugin = scm(forge)
    await plugin.configured()
    forge.fail(status, next=99)
    with pytest.raises(kind, match=said) as caught:
        await act(plugin)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert (await counted(forge))["rest"] + (await counted(forge))["graphql"] == 1
    forge.mend()
    await act(plugin)


async def test_a_hiccup_is_not_noticed(forge: GitHubServer, repo: Repo, ids: list[str]) -> None:
    plugin = scm(forge)
    for what in (502, "html", "cut", "drop"):
        forge.fail(what, next=1)
        assert len(await plugin.read(ids)) == 3
        forge.fail(what, next=1)
        assert isinstance(await plugin.changed([]), Hint)


async def test_a_host_that_stays_down_is_asked_a_few_times_and_no_more(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    forge.fail("drop", next=99)
    with pytest.raises(Temporary, match="could not be asked"):
        await plugin.changed([])
    assert 99 - sum(fault.left for fault in forge.ledger.faults) == 3


async def test_a_secondary_limit_is_honoured_by_all_that_use_the_token(forge: GitHubServer, repo: Repo) -> None:
    token = forge.token("dev")
    plugin, other = scm(forge, token=token), tracker(forge, token=token)
    forge.fail("secondary", retry_after=77)
    with pytest.raises(Temporary, match="takes no more requests before") as caught:
        await plugin.changed([])
    assert caught.value.until == pytest.approx(time.time() + 77, abs=5)
    before = sum((await counted(forge)).values())
    with pytest.raises(Temporary):
        await other.list()
    with pytest.raises(Temporary):
        await plugin.get(1)
    assert sum((await counted(forge)).values()) == before
    assert 70 < plugin.pause() <= 77


@pytest.mark.parametrize("kind", ["core", "graphql"])
async def test_a_used_up_budget_stops_that_kind_until_its_reset(forge: GitHubServer, repo: Repo, kind: str) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    reset = time.time() + 1_000
    forge.set_rate(token, remaining=0, reset=reset, kind=kind)
    act, other = (_changed, _get) if kind == "core" else (_get, _changed)
    for _ in range(3):
        with pytest.raises(Temporary) as caught:
            await act(plugin)
        assert caught.value.until == pytest.approx(reset, abs=2)
    asked = [request for request in forge.ledger.requests if request.status >= 400 or request.points == 0]
    assert len(asked) <= 1
    assert plugin.pause() > 900
    if kind == "graphql":
        await other(plugin)


async def test_a_reset_time_in_the_past_does_not_make_a_loop(forge: GitHubServer, repo: Repo) -> None:
    token = forge.token("dev")
    plugin = scm(forge, token=token)
    forge.set_rate(token, remaining=0, reset=time.time() - 500)
    for _ in range(3):
        with pytest.raises(Temporary) as caught:
            await plugin.changed([])
        assert caught.value.until is not None and caught.value.until > time.time()
    assert (await counted(forge))["rest"] == 1


async def test_background_reading_slows_down_before_people_must_wait(forge: GitHubServer, repo: Repo) -> None:
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
async def test_what_graphql_could_not_tell_is_unknown_and_the_rest_is_used(
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


async def test_an_answer_without_a_single_pull_request_is_no_proof_that_they_are_gone(
    forge: GitHubServer, repo: Repo, ids: list[str]
) -> None:
    plugin = scm(forge)
    forge.fail("partial", field="headRefOid", next=9)
    with pytest.raises(Temporary):
        await plugin.read(ids)


async def test_a_comment_whose_answer_was_cut_off_is_not_said_twice(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = await plugin.get(1)
    forge.fail("cut", method="POST", path="comments$")
    with pytest.raises(Temporary):
        await plugin.comment(pull, "done", "k")
    await plugin.comment(pull, "done", "k")
    assert [comment.body.partition("\n")[0] for comment in forge.find_pull(repo, 1).comments] == ["done"]


async def test_a_merge_whose_answer_was_cut_off_is_found_done(forge: GitHubServer, repo: Repo) -> None:
    plugin = scm(forge)
    pull = await plugin.get(1)
    forge.fail("cut", method="PUT", path="merge$")
    with pytest.raises(Temporary):
        await plugin.merge(pull, landing(pull))
    done = await plugin.merge(pull, landing(pull))
    assert getattr(done, "commit", None) == repo.head("main")
    assert repo.head("b0") is None
    assert len(forge.log(repo)) == 2


async def test_a_force_push_while_reading_gives_the_new_head(forge: GitHubServer, repo: Repo, ids: list[str]) -> None:
    plugin = scm(forge)
    await plugin.read(ids)
    head = forge.push(repo, "b0", {"n.txt": "n"}, force=True)
    (state,) = await plugin.read(ids[:1])
    assert (state.head, state.checks) == (head, ())


async def test_a_log_of_200_mb_is_read_from_its_end(forge: GitHubServer, repo: Repo) -> None:
    def printed() -> object:
        for _ in range(200):
            yield b"x" * (1024 * 1024 - 1) + b"\n"
        yield b"the end\n"

    forge.check(repo, "b0", "large", "failure", log=printed)  # type: ignore[arg-type]
    plugin = scm(forge)
    pull = await plugin.get(1)
    (job,) = [check.job for check in pull.checks if check.state == "failure"]
    assert job is not None
    end = await plugin.log(job, 10_000)
    assert len(end) <= 10_000
    assert end.endswith(b"the end\n")
