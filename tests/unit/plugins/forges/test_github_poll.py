"""Polling of GitHub: undecided values are requested again a limited number of times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.github.polls import MOST_TRIES, NO_ACTIONS_FOR, SAME_SECOND, Poll
from agent_orchestrator.plugins.forges.shared.http import Answer, Http, Keep
from agent_orchestrator.protocols.forge import KnownPull, PullCheck, PullState

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
HEAD = "a" * 40
PULL_REQUEST = KnownPull(1, "PR_1", HEAD, True, NOW)


class Listing:
    """A host that always returns the same responses."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"pulls": [], "runs": {}, "check-runs": {}, "status": {}, **answers}
        self.requests: list[str] = []
        self.paths: list[str] = []

    async def get(self, path: str, *, keep: Keep) -> Answer:
        name = path.partition("?")[0].rpartition("/")[2]
        self.requests.append(name)
        self.paths.append(path)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return Answer(200, {}, keep(answer))

    @property
    def http(self) -> Http:
        return cast("Http", self)


def state(mergeable: str = "unknown", head: str = HEAD, **more: Any) -> PullState:
    fields: dict[str, Any] = {"state": "open", "draft": False, "branch": "b", "base": "main", "base_head": "m", **more}
    return PullState(1, "PR_1", "", "T", head=head, mergeable=mergeable, **fields)


async def test_undecided_mergeability_is_asked_for_a_few_times() -> None:
    poll, host = Poll(lambda: NOW), Listing()
    poll.was_read(state(), "")
    tries = []
    for _ in range(MOST_TRIES + 2):
        tries.append(bool((await poll.changed(host.http, "o/n", [PULL_REQUEST])).pulls))
        poll.was_read(state(), "")
    assert tries == [True] * MOST_TRIES + [False, False]
    poll.was_read(state(head="b" * 40), "")
    assert (await poll.changed(host.http, "o/n", [PULL_REQUEST])).pulls == (1,)
    poll.was_read(state("yes", head="b" * 40), "")
    assert (await poll.changed(host.http, "o/n", [PULL_REQUEST])).pulls == ()


async def test_a_pull_request_read_in_the_second_of_its_change_is_read_again() -> None:
    now = NOW
    changed = {
        "number": 1,
        "updated_at": "2027-01-15T08:00:00Z",
        "state": "open",
        "merged_at": None,
        "head": {"ref": "b", "sha": HEAD},
        "base": {"ref": "main", "repo": {"full_name": "o/n"}},
    }
    poll, host = Poll(lambda: now), Listing(pulls=[changed])
    pull_requests = replace(PULL_REQUEST, read_at=NOW + 0.4)
    was_read = [bool((await poll.changed(host.http, "o/n", [pull_requests])).pulls)]
    for _ in range(3):
        now += SAME_SECOND + 1
        was_read.append(bool((await poll.changed(host.http, "o/n", [pull_requests])).pulls))
    assert was_read[1:] == [True, False, False]
    late = replace(PULL_REQUEST, read_at=NOW + SAME_SECOND + 1)
    fresh = Poll(lambda: now)
    await fresh.changed(host.http, "o/n", [late])
    now += SAME_SECOND + 1
    assert (await fresh.changed(host.http, "o/n", [late])).pulls == ()


@pytest.mark.parametrize("error", [NotFound("no"), Denied("no")])
async def test_a_repository_without_actions_is_not_asked_for_its_runs_all_the_time(error: Exception) -> None:
    now = NOW
    poll, host = Poll(lambda: now), Listing(runs=error)
    for _ in range(6):
        await poll.changed(host.http, "o/n", [])
    assert host.requests.count("runs") == 1
    now += NO_ACTIONS_FOR
    await poll.changed(host.http, "o/n", [])
    assert host.requests.count("runs") == 2


async def test_runs_of_settled_pull_requests_are_requested_less_often() -> None:
    poll, host = Poll(lambda: NOW), Listing()
    for _ in range(4):
        await poll.changed(host.http, "o/n", [PULL_REQUEST])
    assert host.requests.count("runs") == 2
    assert host.requests.count("check-runs") == host.requests.count("status") == 0


async def test_unsettled_commits_each_have_their_turn() -> None:
    poll, host = Poll(lambda: NOW), Listing()
    pull_requests = [KnownPull(number, f"PR_{number}", f"{number:040x}", False, NOW) for number in range(12)]
    for _ in range(3):
        await poll.changed(host.http, "o/n", pull_requests)
    assert host.requests.count("check-runs") == 15
    assert not (await poll.changed(host.http, "o/n", pull_requests)).heads


async def test_a_commit_that_is_gone_is_worth_one_look() -> None:
    poll = Poll(lambda: NOW)
    host = Listing(**{"check-runs": NotFound("no commit")})
    pull_requests = [KnownPull(7, "PR_7", HEAD, False, NOW)]
    assert (await poll.changed(host.http, "o/n", pull_requests)).pulls == (7,)
    assert (await poll.changed(host.http, "o/n", pull_requests)).pulls == ()


async def test_unpushed_commits_are_not_requested() -> None:
    poll = Poll(lambda: NOW)
    there = "b" * 40
    listed = {"number": 1, "updated_at": "2020-01-01T00:00:00Z", "head": {"sha": there}, "state": "open"}
    host = Listing(pulls=[listed])
    ahead = KnownPull(1, "PR_1", HEAD, False, NOW)
    await poll.changed(host.http, "o/n", [ahead])
    assert [path for path in host.paths if HEAD in path] == []
    assert [path for path in host.paths if there in path] != []
    assert (await poll.changed(host.http, "o/n", [ahead])).pulls == ()


async def test_checks_that_were_read_already_are_no_news() -> None:
    poll = Poll(lambda: NOW)
    run = {"id": 5, "name": "tests", "status": "in_progress", "app": {"slug": "github-actions"}}
    host = Listing(
        **{"check-runs": {"check_runs": [run]}, "status": {"statuses": [{"context": "ci", "state": "pending"}]}}
    )
    checks = (PullCheck("5", "CI / tests", "running", job="5"), PullCheck("SC", "ci", "running"))
    poll.was_read(state("yes", checks=checks), "")
    unsettled = KnownPull(1, "PR_1", HEAD, False, NOW)
    assert (await poll.changed(host.http, "o/n", [unsettled])).heads == ()
    run |= {"status": "completed", "conclusion": "failure"}
    assert (await poll.changed(host.http, "o/n", [unsettled])).heads == (HEAD,)
