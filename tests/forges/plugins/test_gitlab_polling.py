"""What watching GitLab costs, counted at the server: little while nothing changes, and little for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from agent_orchestrator.plugins.forges.gitlab.merge_requests import GitLab
from agent_orchestrator.protocols.forge import BaseChecks, Hint, Known, PullState
from agent_orchestrator.testing.gitlab import GitLabServer, MergeRequest
from tests.forges.plugins.gitlab import name, scm

pytestmark = pytest.mark.anyio

EVERY = 25.0
UNDER_WAY = ("queued", "running")


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


class Watch:
    """What the daemon does with one project: poll, and read what is worth reading."""

    def __init__(self, plugin: GitLab, clock: Clock) -> None:
        self.plugin = plugin
        self.clock = clock
        self.seen: dict[int, tuple[PullState, float]] = {}

    async def read(self, ids: list[str]) -> None:
        for state in await self.plugin.read(ids):
            self.seen[state.number] = (state, self.clock())

    def known(self) -> list[Known]:
        return [
            Known(state.number, state.id, state.head, _settled(state), at)
            for state, at in self.seen.values()
            if state.state == "open"
        ]

    async def poll(self) -> Hint:
        hint = await self.plugin.changed(self.known())
        ids = [state.id for state, _ in self.seen.values() if state.number in hint.pulls or state.head in hint.heads]
        if ids:
            await self.read(ids)
        return hint


def _settled(state: PullState) -> bool:
    return bool(state.checks) and not any(check.state in UNDER_WAY for check in state.checks)


def opened(forge: GitLabServer, path: str, count: int) -> list[MergeRequest]:
    """A project with merge requests whose jobs have ended."""
    project = forge.repository(path, {"a.txt": "1\n"}, people={"dev": "developer", "rev": "developer"})
    made = []
    for number in range(count):
        forge.push(project, f"b{number}", {f"{number}.txt": "x"}, by="dev")
        made.append(forge.pull(project, f"b{number}", by="dev"))
        forge.check(project, f"b{number}", "tests", "success")
    return made


async def quiet(
    forge: GitLabServer, clock: Clock, sizes: tuple[int, ...]
) -> tuple[list[Watch], list[list[MergeRequest]]]:
    """Everything read, and nothing about it new any more."""
    token = forge.token("dev")
    pulls = [opened(forge, f"acme/app{index}", size) for index, size in enumerate(sizes)]
    clock.now += 100
    watches = [Watch(scm(forge, f"acme/app{index}", clock=clock, token=token), clock) for index in range(len(sizes))]
    for watch, made in zip(watches, pulls, strict=True):
        await watch.read([name(pull) for pull in made])
    for _ in range(4):
        clock.now += EVERY
        for watch in watches:
            await watch.poll()
    forge.ledger.clear()
    return watches, pulls


async def test_fifty_merge_requests_cost_twelve_requests_a_minute_while_nothing_changes(
    forge: GitLabServer, clock: Clock
) -> None:
    watches, _ = await quiet(forge, clock, (17, 17, 16))
    minutes = 10
    for _ in range(int(minutes * 60 / EVERY)):
        clock.now += EVERY
        for watch in watches:
            hint = await watch.poll()
            assert (hint.pulls, hint.heads, hint.branches) == ((), (), ())
    counts = forge.ledger.counts()
    assert counts["rest 304"] == counts["rest"] == counts["conditional"]
    assert counts["rest"] / minutes <= 12


CHANGES: dict[str, Callable[[GitLabServer, MergeRequest], object]] = {
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
async def test_a_change_is_seen_by_the_next_poll_for_a_few_requests(
    forge: GitLabServer, clock: Clock, change: str
) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (5,))
    clock.now += 10
    CHANGES[change](forge, pulls[0])
    clock.now += EVERY - 10
    hint = await watch.poll()
    assert hint.pulls == (pulls[0].number,)
    asked = len(forge.ledger.requests)
    assert asked <= 10, [request.path for request in forge.ledger.requests]
    clock.now += EVERY
    assert (await watch.poll()).pulls == ()
    state = watch.seen[pulls[0].number][0]
    assert state.head == pulls[0].head_sha
    if change == "merge":
        assert hint.branches == ("main",)


async def test_a_pipelines_end_is_seen_by_the_next_poll(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (5,))
    pull = pulls[0]
    forge.check(pull.project, pull.head_sha, "more", None)
    for _ in range(2):
        clock.now += EVERY
        await watch.poll()
    assert {check.state for check in watch.seen[1][0].checks} == {"running", "success"}
    forge.check(pull.project, pull.head_sha, "more", "failed")
    clock.now += EVERY
    assert pull.head_sha in (await watch.poll()).heads
    assert {check.state for check in watch.seen[1][0].checks} == {"failure", "success"}


async def test_a_job_that_fails_while_others_run_is_seen(forge: GitLabServer, clock: Clock) -> None:
    """The pipeline goes on running: no listing tells."""
    (watch,), (pulls,) = await quiet(forge, clock, (5,))
    pull = pulls[0]
    for job in ("long", "short"):
        forge.check(pull.project, pull.head_sha, job, None)
    for _ in range(2):
        clock.now += EVERY
        await watch.poll()
    forge.ledger.clear()
    clock.now += EVERY
    assert (await watch.poll()).pulls == ()
    assert len([one for one in forge.ledger.requests if one.path.endswith("/jobs")]) == 1
    forge.check(pull.project, pull.head_sha, "short", "failed")
    clock.now += EVERY
    assert (await watch.poll()).pulls == (1,)
    assert {check.name: check.state for check in watch.seen[1][0].checks}["short"] == "failure"


async def test_what_no_listing_tells_is_read_again_after_a_while(forge: GitLabServer, clock: Clock) -> None:
    (watch,), _ = await quiet(forge, clock, (3,))
    clock.now += 1_900
    assert (await watch.poll()).pulls == (1, 2, 3)
    clock.now += EVERY
    assert (await watch.poll()).pulls == ()


async def test_after_a_restart_only_what_changed_meanwhile_is_read(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (5,))
    clock.now += 300
    forge.comment(pulls[3], "while you were away", by="rev")
    forge.check(pulls[1].project, pulls[1].head_sha, "nightly", "failed")
    clock.now += 300
    again = Watch(scm(forge, "acme/app0", clock=clock), clock)
    again.seen = {number: (state, clock.now - 610) for number, (state, _) in watch.seen.items()}
    hint = await again.poll()
    assert (hint.pulls, hint.heads) == ((pulls[3].number,), (pulls[1].head_sha,))


async def test_more_changes_than_one_page_holds_are_all_seen(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (70,))
    clock.now += 10
    for pull in pulls:
        forge.comment(pull, "x", by="rev")
    clock.now += 15
    hint = await watch.plugin.changed(watch.known())
    assert len(hint.pulls) == 70


async def test_what_is_not_known_yet_is_asked_again_a_few_times(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (2,))
    forge.world.unknown_first = 1
    clock.now += 10
    forge.push(pulls[0].project, pulls[0].branch, {"z.txt": "z"}, by="dev")
    clock.now += EVERY
    await watch.poll()
    assert watch.seen[1][0].mergeable == "unknown"
    clock.now += EVERY
    assert (await watch.poll()).pulls == (1,)
    assert watch.seen[1][0].mergeable == "yes"


async def test_a_project_without_pipelines_is_not_asked_for_them(forge: GitLabServer, clock: Clock) -> None:
    (watch,), _ = await quiet(forge, clock, (2,))
    forge.fail(403, next=99, path="/pipelines$")
    for _ in range(6):
        clock.now += EVERY
        await watch.poll()
    assert len([one for one in forge.ledger.requests if one.path.endswith("/pipelines")]) == 1


async def test_a_renamed_project_is_watched_on(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (pulls,) = await quiet(forge, clock, (2,))
    forge.rename("acme/app0", "acme/better")
    forge.comment(pulls[0], "still here", by="rev")
    clock.now += EVERY
    assert (await watch.poll()).pulls == (1,)
    assert watch.plugin.repo == "acme/better"


async def test_the_cost_grows_with_changes_not_with_sessions(forge: GitLabServer, clock: Clock) -> None:
    cost = {}
    for size in (10, 60):
        pulls = opened(forge, f"acme/size{size}", size)
        clock.now += 100
        watch = Watch(scm(forge, f"acme/size{size}", clock=clock), clock)
        await watch.read([name(pull) for pull in pulls])
        for _ in range(4):
            clock.now += EVERY
            await watch.poll()
        forge.ledger.clear()
        for number in range(10):
            clock.now += EVERY - 10
            forge.comment(pulls[number], "x", by="rev")
            clock.now += 10
            await watch.poll()
        cost[size] = forge.ledger.counts()["rest"]
    assert abs(cost[60] - cost[10]) <= 10, cost


async def test_how_the_base_is_costs_nothing_more(forge: GitLabServer, clock: Clock) -> None:
    (watch,), (changes,) = await quiet(forge, clock, (2,))
    project = changes[0].project

    async def after(conclusion: str | None) -> BaseChecks:
        forge.check(project, "main", "tests", conclusion)
        for _ in range(2):
            clock.now += EVERY
            await watch.poll()
        return watch.plugin.bases()["main"]

    assert (await after(None)).state == "running"
    assert (await after("success")).state == "green"
    head = forge.push(project, "main", {"n.txt": "n"}, by="dev")
    assert await after("failed") == BaseChecks(head, "red", ("pipeline",))
