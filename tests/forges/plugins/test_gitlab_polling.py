"""The cost of polling GitLab, counted at the server: little while nothing changes, and little for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from agent_orchestrator.plugins.forges.gitlab.merge_requests import GitLab
from agent_orchestrator.protocols.forge import BaseChecks, Hint, KnownPullRequest, PullRequestState
from agent_orchestrator.testing.gitlab import GitLabMergeRequest, GitLabServer
from tests.forges.plugins.gitlab import merge_request_id, scm

pytestmark = pytest.mark.anyio

POLL_INTERVAL = 25.0
ACTIVE_STATES = ("queued", "running")


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forge(clock: Clock) -> Iterator[GitLabServer]:
    with GitLabServer(clock=clock) as server:
        yield server


class Watcher:
    """Polls one project as the daemon does, and reads the merge requests that the hints name."""

    def __init__(self, plugin: GitLab, clock: Clock) -> None:
        self.plugin = plugin
        self.clock = clock
        self.states: dict[int, tuple[PullRequestState, float]] = {}

    async def read(self, ids: list[str]) -> None:
        for state in await self.plugin.read(ids):
            self.states[state.number] = (state, self.clock())

    def known_pulls(self) -> list[KnownPullRequest]:
        return [
            KnownPullRequest(state.number, state.id, state.head, _is_settled(state), at)
            for state, at in self.states.values()
            if state.state == "open"
        ]

    async def poll(self) -> Hint:
        hint = await self.plugin.changed(self.known_pulls())
        ids = [state.id for state, _ in self.states.values() if state.number in hint.pulls or state.head in hint.heads]
        if ids:
            await self.read(ids)
        return hint


def _is_settled(state: PullRequestState) -> bool:
    return bool(state.checks) and not any(check.state in ACTIVE_STATES for check in state.checks)


def open_requests(forge: GitLabServer, path: str, count: int) -> list[GitLabMergeRequest]:
    """Make a project with merge requests whose jobs have ended."""
    project = forge.repository(path, {"a.txt": "1\n"}, people={"dev": "developer", "rev": "developer"})
    requests = []
    for number in range(count):
        forge.push(project, f"b{number}", {f"{number}.txt": "x"}, by="dev")
        requests.append(forge.pull(project, f"b{number}", by="dev"))
        forge.check(project, f"b{number}", "tests", "success")
    return requests


async def start_watchers(
    forge: GitLabServer, clock: Clock, sizes: tuple[int, ...]
) -> tuple[list[Watcher], list[list[GitLabMergeRequest]]]:
    """Return watchers of projects of these sizes that have read everything, and the merge requests."""
    token = forge.token("dev")
    pulls = [open_requests(forge, f"acme/app{index}", size) for index, size in enumerate(sizes)]
    clock.now += 100
    watches = [Watcher(scm(forge, f"acme/app{index}", clock=clock, token=token), clock) for index in range(len(sizes))]
    for watch, project_requests in zip(watches, pulls, strict=True):
        await watch.read([merge_request_id(pull) for pull in project_requests])
    for _ in range(4):
        clock.now += POLL_INTERVAL
        for watch in watches:
            await watch.poll()
    forge.ledger.clear()
    return watches, pulls


async def test_fifty_unchanged_merge_requests_cost_at_most_twelve_requests_a_minute(
    forge: GitLabServer, clock: Clock
) -> None:
    watches, _ = await start_watchers(forge, clock, (17, 17, 16))
    minutes = 10
    for _ in range(int(minutes * 60 / POLL_INTERVAL)):
        clock.now += POLL_INTERVAL
        for watch in watches:
            hint = await watch.poll()
            assert (hint.pulls, hint.heads, hint.branches) == ((), (), ())
    counts = forge.ledger.counts()
    assert counts["rest 304"] == counts["rest"] == counts["conditional"]
    assert counts["rest"] / minutes <= 12


CHANGES: dict[str, Callable[[GitLabServer, GitLabMergeRequest], object]] = {
    "comment": lambda forge, pull: forge.comment(pull, "look", by="rev"),
    "thread": lambda forge, pull: forge.thread(pull, "0.txt", 1, "why", by="rev"),
    "approval": lambda forge, pull: forge.review(pull, "APPROVE", by="rev"),
    "changes": lambda forge, pull: forge.review(pull, "REQUEST_CHANGES", by="rev"),
    "label": lambda forge, pull: forge.label_issue(pull, "bug"),
    "title": lambda forge, pull: forge.edit(pull, title="Draft: later"),
    "push": lambda forge, pull: forge.push(pull.project, pull.branch, {"z.txt": "z"}, by="dev"),
    "force": lambda forge, pull: forge.push(pull.project, pull.branch, {"z.txt": "z"}, by="dev", force=True),
    "close": lambda forge, pull: forge.close(pull),
    "merge": lambda forge, pull: forge.merge(pull),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_next_poll_reads_a_change_for_a_few_requests(forge: GitLabServer, clock: Clock, change: str) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    clock.now += 10
    CHANGES[change](forge, pulls[0])
    clock.now += POLL_INTERVAL - 10
    hint = await watch.poll()
    assert hint.pulls == (pulls[0].number,)
    request_count = len(forge.ledger.requests)
    assert request_count <= 10, [request.path for request in forge.ledger.requests]
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == ()
    state = watch.states[pulls[0].number][0]
    assert state.head == pulls[0].head_sha
    if change == "merge":
        assert hint.branches == ("main",)


async def test_the_next_poll_reads_the_end_of_a_pipeline(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    pull = pulls[0]
    forge.check(pull.project, pull.head_sha, "more", None)
    for _ in range(2):
        clock.now += POLL_INTERVAL
        await watch.poll()
    assert {check.state for check in watch.states[1][0].checks} == {"running", "success"}
    forge.check(pull.project, pull.head_sha, "more", "failed")
    clock.now += POLL_INTERVAL
    assert pull.head_sha in (await watch.poll()).heads
    assert {check.state for check in watch.states[1][0].checks} == {"failure", "success"}


async def test_a_job_that_fails_while_others_run_is_read(forge: GitLabServer, clock: Clock) -> None:
    """The pipeline keeps running, so no listing shows the failure."""
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    pull = pulls[0]
    for job in ("long", "short"):
        forge.check(pull.project, pull.head_sha, job, None)
    for _ in range(2):
        clock.now += POLL_INTERVAL
        await watch.poll()
    forge.ledger.clear()
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == ()
    assert len([request for request in forge.ledger.requests if request.path.endswith("/jobs")]) == 1
    forge.check(pull.project, pull.head_sha, "short", "failed")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == (1,)
    assert {check.name: check.state for check in watch.states[1][0].checks}["short"] == "failure"


async def test_changes_that_no_listing_shows_are_read_after_a_while(forge: GitLabServer, clock: Clock) -> None:
    (watch,), _ = await start_watchers(forge, clock, (3,))
    clock.now += 1_900
    assert (await watch.poll()).pulls == (1, 2, 3)
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == ()


async def test_after_a_restart_only_changed_ones_are_read(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    clock.now += 300
    forge.comment(pulls[3], "while you were away", by="rev")
    forge.check(pulls[1].project, pulls[1].head_sha, "nightly", "failed")
    clock.now += 300
    restarted = Watcher(scm(forge, "acme/app0", clock=clock), clock)
    restarted.states = {number: (state, clock.now - 610) for number, (state, _) in watch.states.items()}
    hint = await restarted.poll()
    assert (hint.pulls, hint.heads) == ((pulls[3].number,), (pulls[1].head_sha,))


async def test_more_changes_than_fit_on_one_page_are_all_read(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (70,))
    clock.now += 10
    for pull in pulls:
        forge.comment(pull, "x", by="rev")
    clock.now += 15
    hint = await watch.plugin.changed(watch.known_pulls())
    assert len(hint.pulls) == 70


async def test_an_unknown_merge_status_is_read_again_by_the_next_polls(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (2,))
    forge.world.unknown_first = 1
    clock.now += 10
    forge.push(pulls[0].project, pulls[0].branch, {"z.txt": "z"}, by="dev")
    clock.now += POLL_INTERVAL
    await watch.poll()
    assert watch.states[1][0].mergeable == "unknown"
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == (1,)
    assert watch.states[1][0].mergeable == "yes"


async def test_pipelines_are_not_requested_again_after_they_were_forbidden(forge: GitLabServer, clock: Clock) -> None:
    (watch,), _ = await start_watchers(forge, clock, (2,))
    forge.fail(403, next=99, path="/pipelines$")
    for _ in range(6):
        clock.now += POLL_INTERVAL
        await watch.poll()
    assert len([request for request in forge.ledger.requests if request.path.endswith("/pipelines")]) == 1


async def test_a_renamed_project_is_still_polled(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (2,))
    forge.rename("acme/app0", "acme/better")
    forge.comment(pulls[0], "still here", by="rev")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == (1,)
    assert watch.plugin.repo == "acme/better"


async def test_the_cost_grows_with_changes_not_with_sessions(forge: GitLabServer, clock: Clock) -> None:
    cost = {}
    for size in (10, 60):
        pulls = open_requests(forge, f"acme/size{size}", size)
        clock.now += 100
        watch = Watcher(scm(forge, f"acme/size{size}", clock=clock), clock)
        await watch.read([merge_request_id(pull) for pull in pulls])
        for _ in range(4):
            clock.now += POLL_INTERVAL
            await watch.poll()
        forge.ledger.clear()
        for number in range(10):
            clock.now += POLL_INTERVAL - 10
            forge.comment(pulls[number], "x", by="rev")
            clock.now += 10
            await watch.poll()
        cost[size] = forge.ledger.counts()["rest"]
    assert abs(cost[60] - cost[10]) <= 10, cost


async def test_the_state_of_the_base_branch_costs_no_extra_requests(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (changes,) = await start_watchers(forge, clock, (2,))
    project = changes[0].project

    async def base_after(conclusion: str | None) -> BaseChecks:
        forge.check(project, "main", "tests", conclusion)
        for _ in range(2):
            clock.now += POLL_INTERVAL
            await watch.poll()
        return watch.plugin.bases()["main"]

    assert (await base_after(None)).state == "running"
    assert (await base_after("success")).state == "green"
    head = forge.push(project, "main", {"n.txt": "n"}, by="dev")
    assert await base_after("failed") == BaseChecks(head, "red", ("pipeline",))
