"""Polling of GitHub: undecided values are requested again a limited number of times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.github.change_finder import (
    ACTIONS_RETRY_SECONDS,
    MAX_MERGEABILITY_READS,
    TIMESTAMP_TOLERANCE,
    GitHubChangeFinder,
)
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse, JsonExtractor
from agent_orchestrator.protocols.forge import KnownPullRequest, PullRequestCheck, PullRequestState

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
HEAD = "a" * 40
PULL_REQUEST = KnownPullRequest(1, "PR_1", HEAD, True, NOW)


class Listing:
    """A host that always returns the same responses."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"pulls": [], "runs": {}, "check-runs": {}, "status": {}, **answers}
        self.requests: list[str] = []
        self.paths: list[str] = []

    async def get(self, path: str, *, keep: JsonExtractor) -> ForgeResponse:
        name = path.partition("?")[0].rpartition("/")[2]
        self.requests.append(name)
        self.paths.append(path)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return ForgeResponse(200, {}, keep(answer))

    @property
    def http(self) -> ForgeHttpClient:
        return cast("ForgeHttpClient", self)


def state(mergeable: str = "unknown", head: str = HEAD, **more: Any) -> PullRequestState:
    fields: dict[str, Any] = {"state": "open", "draft": False, "branch": "b", "base": "main", "base_head": "m", **more}
    return PullRequestState(1, "PR_1", "", "T", head=head, mergeable=mergeable, **fields)


async def test_undecided_mergeability_is_asked_for_a_few_times() -> None:
    poll, host = GitHubChangeFinder(lambda: NOW), Listing()
    poll.record_read(state(), "")
    tries = []
    for _ in range(MAX_MERGEABILITY_READS + 2):
        tries.append(bool((await poll.find_changes(host.http, "o/n", [PULL_REQUEST])).pulls))
        poll.record_read(state(), "")
    assert tries == [True] * MAX_MERGEABILITY_READS + [False, False]
    poll.record_read(state(head="b" * 40), "")
    assert (await poll.find_changes(host.http, "o/n", [PULL_REQUEST])).pulls == (1,)
    poll.record_read(state("yes", head="b" * 40), "")
    assert (await poll.find_changes(host.http, "o/n", [PULL_REQUEST])).pulls == ()


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
    poll, host = GitHubChangeFinder(lambda: now), Listing(pulls=[changed])
    pull_requests = replace(PULL_REQUEST, read_at=NOW + 0.4)
    was_read = [bool((await poll.find_changes(host.http, "o/n", [pull_requests])).pulls)]
    for _ in range(3):
        now += TIMESTAMP_TOLERANCE + 1
        was_read.append(bool((await poll.find_changes(host.http, "o/n", [pull_requests])).pulls))
    assert was_read[1:] == [True, False, False]
    late = replace(PULL_REQUEST, read_at=NOW + TIMESTAMP_TOLERANCE + 1)
    fresh = GitHubChangeFinder(lambda: now)
    await fresh.find_changes(host.http, "o/n", [late])
    now += TIMESTAMP_TOLERANCE + 1
    assert (await fresh.find_changes(host.http, "o/n", [late])).pulls == ()


@pytest.mark.parametrize("error", [NotFound("no"), Denied("no")])
async def test_a_repository_without_actions_is_not_asked_for_its_runs_all_the_time(error: Exception) -> None:
    now = NOW
    poll, host = GitHubChangeFinder(lambda: now), Listing(runs=error)
    for _ in range(6):
        await poll.find_changes(host.http, "o/n", [])
    assert host.requests.count("runs") == 1
    now += ACTIONS_RETRY_SECONDS
    await poll.find_changes(host.http, "o/n", [])
    assert host.requests.count("runs") == 2


async def test_runs_of_settled_pull_requests_are_requested_less_often() -> None:
    poll, host = GitHubChangeFinder(lambda: NOW), Listing()
    for _ in range(4):
        await poll.find_changes(host.http, "o/n", [PULL_REQUEST])
    assert host.requests.count("runs") == 2
    assert host.requests.count("check-runs") == host.requests.count("status") == 0


async def test_unsettled_commits_each_have_their_turn() -> None:
    poll, host = GitHubChangeFinder(lambda: NOW), Listing()
    pull_requests = [KnownPullRequest(number, f"PR_{number}", f"{number:040x}", False, NOW) for number in range(12)]
    for _ in range(3):
        await poll.find_changes(host.http, "o/n", pull_requests)
    assert host.requests.count("check-runs") == 15
    assert not (await poll.find_changes(host.http, "o/n", pull_requests)).heads


async def test_a_commit_that_is_gone_is_worth_one_look() -> None:
    poll = GitHubChangeFinder(lambda: NOW)
    host = Listing(**{"check-runs": NotFound("no commit")})
    pull_requests = [KnownPullRequest(7, "PR_7", HEAD, False, NOW)]
    assert (await poll.find_changes(host.http, "o/n", pull_requests)).pulls == (7,)
    assert (await poll.find_changes(host.http, "o/n", pull_requests)).pulls == ()


async def test_unpushed_commits_are_not_requested() -> None:
    poll = GitHubChangeFinder(lambda: NOW)
    there = "b" * 40
    listed = {"number": 1, "updated_at": "2020-01-01T00:00:00Z", "head": {"sha": there}, "state": "open"}
    host = Listing(pulls=[listed])
    ahead = KnownPullRequest(1, "PR_1", HEAD, False, NOW)
    await poll.find_changes(host.http, "o/n", [ahead])
    assert [path for path in host.paths if HEAD in path] == []
    assert [path for path in host.paths if there in path] != []
    assert (await poll.find_changes(host.http, "o/n", [ahead])).pulls == ()


async def test_checks_that_were_read_already_are_no_news() -> None:
    poll = GitHubChangeFinder(lambda: NOW)
    run = {"id": 5, "name": "tests", "status": "in_progress", "app": {"slug": "github-actions"}}
    host = Listing(
        **{"check-runs": {"check_runs": [run]}, "status": {"statuses": [{"context": "ci", "state": "pending"}]}}
    )
    checks = (PullRequestCheck("5", "CI / tests", "running", job="5"), PullRequestCheck("SC", "ci", "running"))
    poll.record_read(state("yes", checks=checks), "")
    unsettled = KnownPullRequest(1, "PR_1", HEAD, False, NOW)
    assert (await poll.find_changes(host.http, "o/n", [unsettled])).heads == ()
    run |= {"status": "completed", "conclusion": "failure"}
    assert (await poll.find_changes(host.http, "o/n", [unsettled])).heads == (HEAD,)
