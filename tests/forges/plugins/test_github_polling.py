"""The cost of polling GitHub, counted at the server: nothing while nothing changes, and little for each change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.plugins.forges.github.pull_requests import GitHub
from agent_orchestrator.protocols.forge import BaseChecks, Hint, KnownPullRequest, PullRequestState
from agent_orchestrator.testing.github import GitHubPullRequest, GitHubServer
from tests.forges.plugins.github import scm, settled_counts

pytestmark = pytest.mark.anyio

POLL_INTERVAL = 25.0
FINAL_STATES = ("success", "failure", "skipped", "cancelled", "timed_out")


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forge(schema: Path, clock: Clock) -> Iterator[GitHubServer]:
    with GitHubServer(schema=schema, clock=clock) as server:
        yield server


class Watcher:
    """Polls one repository as the daemon does, and reads the pull requests that the hints name."""

    def __init__(self, plugin: GitHub, clock: Clock) -> None:
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
    return bool(state.checks) and all(check.state in FINAL_STATES for check in state.checks)


def open_pulls(forge: GitHubServer, name: str, count: int) -> list[GitHubPullRequest]:
    """Make a repository with pull requests whose checks have ended."""
    repo = forge.repository(name, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    pulls = []
    for number in range(count):
        forge.push(repo, f"b{number}", {f"{number}.txt": "x"}, by="dev")
        pulls.append(forge.pull(repo, f"b{number}", by="dev"))
        forge.check(repo, f"b{number}", "tests", "success", log="ok")
    return pulls


async def start_watchers(
    forge: GitHubServer, clock: Clock, sizes: tuple[int, ...]
) -> tuple[list[Watcher], list[list[GitHubPullRequest]]]:
    """Return watchers of repositories of these sizes that have read everything, and the pull requests."""
    token = forge.token("dev")
    pulls = [open_pulls(forge, f"acme/app{index}", size) for index, size in enumerate(sizes)]
    clock.now += 100
    watches = [Watcher(scm(forge, f"acme/app{index}", clock=clock, token=token), clock) for index in range(len(sizes))]
    for watch, repository_pulls in zip(watches, pulls, strict=True):
        await watch.read([pull.node_id for pull in repository_pulls])
    for _ in range(4):
        clock.now += POLL_INTERVAL
        for watch in watches:
            await watch.poll()
    await settled_counts(forge)
    forge.ledger.clear()
    return watches, pulls


async def test_fifty_unchanged_pull_requests_cost_no_points(forge: GitHubServer, clock: Clock) -> None:
    watches, _ = await start_watchers(forge, clock, (17, 17, 16))
    minutes = 10
    for _ in range(int(minutes * 60 / POLL_INTERVAL)):
        clock.now += POLL_INTERVAL
        for watch in watches:
            hint = await watch.poll()
            assert (hint.pulls, hint.heads, hint.branches) == ((), (), ())
    counts = await settled_counts(forge)
    assert counts["graphql"] == 0
    assert counts["rest 304"] == counts["rest"] == counts["conditional"]
    assert counts["rest points"] == 0
    assert counts["rest"] / minutes <= 12


def _comment(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.comment(pull, "look", by="rev")


def _thread(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.thread(pull, "0.txt", 1, "why", by="rev")


def _review(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.review(pull, "REQUEST_CHANGES", "no", by="rev")


def _label(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.label_issue(pull, "bug")


def _push(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.push(pull.repo, pull.head_ref, {"z.txt": "z"}, by="dev")


def _force(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.push(pull.repo, pull.head_ref, {"z.txt": "z"}, by="dev", force=True)


def _close(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.close(pull)


def _merge(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    forge.merge(pull)


@pytest.mark.parametrize("change", [_comment, _thread, _review, _label, _push, _force, _close, _merge])
async def test_the_next_poll_reads_a_change_for_at_most_two_points(
    forge: GitHubServer, clock: Clock, change: object
) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    clock.now += 10
    change(forge, pulls[0])  # type: ignore[operator]
    clock.now += POLL_INTERVAL - 10
    hint = await watch.poll()
    assert hint.pulls == (pulls[0].number,)
    for _ in range(6):
        clock.now += POLL_INTERVAL
        await watch.poll()
    assert (await settled_counts(forge))["graphql points"] <= 2
    state = watch.states[pulls[0].number][0]
    assert state.head == pulls[0].head_sha
    if change is _merge:
        assert hint.branches == ("main",)


async def test_checks_of_actions_are_read_from_the_listing_of_runs(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    forge.check(pulls[0].repo, pulls[0].head_sha, "more", None, log="…")
    clock.now += POLL_INTERVAL
    hints = [await watch.poll()]
    clock.now += POLL_INTERVAL
    hints.append(await watch.poll())
    assert any(hint.heads == (pulls[0].head_sha,) for hint in hints)
    assert [check.state for check in watch.states[1][0].checks] == ["running", "success"]
    forge.check(pulls[0].repo, pulls[0].head_sha, "more", "failure", log="…")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).heads == (pulls[0].head_sha,)
    assert {check.state for check in watch.states[1][0].checks} == {"failure", "success"}


async def test_checks_of_external_services_are_read_while_they_run(forge: GitHubServer, clock: Clock) -> None:
    repo = forge.repository("acme/app0", people={"dev": "write"})
    forge.push(repo, "x", {"x.txt": "x"})
    pull = forge.pull(repo, "x")
    forge.status(repo, "x", "ci/other", "pending")
    forge.check(repo, "x", "external", None, app="other-ci")
    clock.now += 100
    watch = Watcher(scm(forge, "acme/app0", clock=clock), clock)
    await watch.read([pull.node_id])
    for _ in range(3):
        clock.now += POLL_INTERVAL
        await watch.poll()
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).heads == ()
    forge.status(repo, "x", "ci/other", "failure")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).heads == (pull.head_sha,)
    forge.check(repo, "x", "external", "success", app="other-ci")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).heads == (pull.head_sha,)
    assert {check.name: check.state for check in watch.states[1][0].checks} == {
        "ci/other": "failure",
        "external": "success",
    }


async def test_changes_that_no_listing_shows_are_read_after_a_while(forge: GitHubServer, clock: Clock) -> None:
    (watch,), _ = await start_watchers(forge, clock, (3,))
    clock.now += 1_900
    assert (await watch.poll()).pulls == (1, 2, 3)
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == ()


async def test_after_a_restart_only_changed_ones_are_read(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (5,))
    clock.now += 300
    forge.comment(pulls[3], "while you were away", by="rev")
    clock.now += 300
    restarted = Watcher(scm(forge, "acme/app0", clock=clock), clock)
    restarted.states = {number: (state, clock.now - 610) for number, (state, _) in watch.states.items()}
    assert (await restarted.poll()).pulls == (pulls[3].number,)


async def test_more_changes_than_fit_on_one_page_are_all_read(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (130,))
    clock.now += 10
    for pull in pulls:
        forge.comment(pull, "x", by="rev")
    clock.now += 15
    assert len((await watch.poll()).pulls) == 130


async def test_a_pull_request_opened_by_another_person_is_named_in_the_hint(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (1,))
    forge.push(pulls[0].repo, "theirs", {"t.txt": "t"})
    forge.pull(pulls[0].repo, "theirs")
    clock.now += POLL_INTERVAL
    hint = await watch.poll()
    assert hint.pulls == (2,)
    assert hint.branches == ("theirs",)


async def test_a_renamed_repository_is_still_polled(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (2,))
    forge.rename("acme/app0", "better")
    clock.now += POLL_INTERVAL
    await watch.poll()
    assert watch.plugin.repo == "acme/better"
    forge.comment(pulls[0], "still here", by="rev")
    clock.now += POLL_INTERVAL
    assert (await watch.poll()).pulls == (1,)


async def test_the_cost_grows_with_changes_not_with_sessions(forge: GitHubServer, clock: Clock) -> None:
    cost = {}
    for size in (10, 100):
        token = forge.token("dev")
        pulls = open_pulls(forge, f"acme/size{size}", size)
        clock.now += 100
        watch = Watcher(scm(forge, f"acme/size{size}", clock=clock, token=token), clock)
        await watch.read([pull.node_id for pull in pulls])
        for _ in range(4):
            clock.now += POLL_INTERVAL
            await watch.poll()
        await settled_counts(forge)
        forge.ledger.clear()
        for number in range(10):
            clock.now += POLL_INTERVAL - 10
            forge.comment(pulls[number], "x", by="rev")
            clock.now += 10
            await watch.poll()
        counts = await settled_counts(forge)
        cost[size] = (counts["graphql points"], counts["rest"])
    assert cost[100][0] == cost[10][0] <= 20
    assert abs(cost[100][1] - cost[10][1]) <= 1


async def test_the_state_of_the_base_branch_costs_no_extra_requests(forge: GitHubServer, clock: Clock) -> None:
    (watch,), (pulls,) = await start_watchers(forge, clock, (2,))
    repo = pulls[0].repo
    head = repo.head("main")
    assert head and watch.plugin.bases() == {}

    async def base_after(name: str, conclusion: str | None, workflow: str = "CI") -> BaseChecks:
        forge.check(repo, "main", name, conclusion, workflow=workflow)
        for _ in range(2):
            clock.now += POLL_INTERVAL
            await watch.poll()
        return watch.plugin.bases()["main"]

    assert (await base_after("tests", None)).state == "running"
    assert await base_after("tests", "success") == BaseChecks(head, "green")
    assert await base_after("ship", "failure", "Deploy") == BaseChecks(head, "red", ("Deploy",))
    assert (await base_after("ship", "success", "Deploy")).state == "green"
    head = forge.push(repo, "main", {"n.txt": "n"}, by="dev")
    assert await base_after("tests", "timed_out") == BaseChecks(head, "red", ("CI",))
    forge.check(repo, pulls[0].head_sha, "tests", "failure")
    assert (await base_after("tests", "success")).state == "green"
    counts = await settled_counts(forge)
    assert counts["rest"] <= 2 * 2 * 7
