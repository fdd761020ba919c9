"""Reading pull requests of a forge: outdated reads are repeated, and webhooks replace polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import pull_request_sync
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.poll_interval import WEBHOOK_POLL_INTERVAL
from agent_orchestrator.changes.forge_sync.pull_request_sync import PullRequestSync
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.signals import BaseChecksRead
from agent_orchestrator.errors import Denied
from agent_orchestrator.protocols.forge import Author, BaseChecks, Hint, PullRequestComment, PullRequestState
from tests.parts import HandSetClock, make_core, never_quiet
from tests.unit.core.world import SESSION, created

pytestmark = pytest.mark.anyio


OPENED = e.PrOpened(7, "One", "main", True, "http://forge/7", "PR_7")


class Forge:
    """A forge with one pull request and one thread; `doing` is called during a read."""

    def __init__(self) -> None:
        self.repo, self.reads, self.polls, self.resolved = "acme/app", 0, 0, False
        self.doing: Any = None

    async def read(self, _ids: Sequence[str]) -> list[PullRequestState]:
        comment = PullRequestComment(
            "c1", "Why?", Author("rev"), 1.0, "a.txt", 1, "t1", head="h1", resolved=self.resolved
        )
        pull = PullRequestState(
            7, "PR_7", "http://forge/7", "One", "open", True, "b", "h1", "main", "", comments=(comment,)
        )
        self.reads += 1
        if doing := self.doing:
            self.doing = None
            self.resolved = True
            await doing()
        return [pull]

    async def changed(self, _states: object) -> Hint:
        self.polls += 1
        return Hint(self.repo)

    def bases(self) -> dict[str, BaseChecks]:
        return {"main": BaseChecks(f"h{self.polls}", "green")}

    def pause(self) -> float:
        return 0.0


class MeteredForge(Forge):
    """A forge with a rate limit."""

    short = 0.0

    def pause(self) -> float:
        return self.short


async def start_sync(tmp_path: Path, forge: Forge, every: float) -> tuple[Flow, PullRequestSync]:
    """Return the flow of a session with a pull request at this forge, and its synchronization."""
    core = make_core(tmp_path, clock=HandSetClock())
    core.config.add_adhoc("app", tmp_path / "app")
    flow = core.flow
    await flow.start()

    async def reach(*_: str) -> Forge:
        return forge

    repositories: Any = SimpleNamespace(trusted_forge=reach, forge=lambda *_: forge, poll_interval=lambda *_: every)
    watch = PullRequestSync(core, repositories, Outages(core, never_quiet))
    watch.start()
    await flow.append(created(scm="github"), session_event(OPENED, "opened"))
    return flow, watch


def session_event(body: e.Body, key: str, source: str = "github") -> Event:
    return Event(body, 1.0, source, key, "app", SESSION)


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


async def let_time_pass(seconds: float) -> None:
    """Sleep in many short steps, so that everything due by then is done even on a slow machine."""
    for _ in range(int(seconds / 0.01)):
        await asyncio.sleep(0.01)


async def test_a_thread_resolved_during_a_read_is_not_reopened(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 0.01)

    def comments() -> list[bool]:
        pr = flow.sessions[SESSION].pr
        return [comment.resolved for comment in pr.comments] if pr else []

    await wait_until(lambda: comments() == [False])

    async def settle() -> None:
        await flow.append(session_event(e.ThreadSettled("t1", True), "settled", "person"))

    forge.doing = settle
    reads = forge.reads
    watch.request_read(flow.sessions[SESSION])
    await wait_until(lambda: forge.reads >= reads + 2)
    await watch.close()
    settled = [event.body for event in await flow.store.events(0, 100, kind="thread-settled")]
    assert settled == [e.ThreadSettled("t1", True)] and comments() == [True]
    await flow.stop()


class Refusing(Forge):
    """Two pull requests; the first would merge a wrong commit, and the forge refuses to cancel that."""

    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        return [
            PullRequestState(number, f"PR_{number}", "", "New", "open", True, "b", "h1", "main", "", queued=number == 7)
            for number in (7, 8)
            if f"PR_{number}" in ids
        ]

    async def cancel_merge(self, _pull: PullRequestState) -> None:
        raise Denied("this token may not")


async def test_an_error_for_one_pull_request_does_not_affect_the_others(tmp_path: Path) -> None:
    flow, watch = await start_sync(tmp_path, Refusing(), 0.01)
    await flow.append(
        session_event(e.MergeRequested(), "merge"),
        created("app-other", scm="github"),
        Event(replace(OPENED, number=8, node="PR_8"), 1.0, "github", "opened-8", "app", "app-other"),
    )
    for session in (SESSION, "app-other"):
        watch.request_read(flow.sessions[session])
    await wait_until(lambda: (pr := flow.sessions["app-other"].pr) and pr.title == "New")
    await watch.close()
    await flow.stop()


async def test_a_webhook_about_another_commit_brings_two_polls_forward(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 0.05)
    reads: list[str] = []
    flow.listeners.on_signal(BaseChecksRead, lambda read: reads.append(f"{read.project} {read.bases['main'].head}"))
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await wait_until(lambda: forge.reads)
    await let_time_pass(0.3)
    polls = forge.polls
    for _ in range(50):
        watch.handle_hint("github", Hint("acme/app", heads=("another",)), ["app"])
    await wait_until(lambda: forge.polls == polls + 2)
    await let_time_pass(0.3)
    assert forge.polls == polls + 2 and reads[-2:] == [f"app h{polls + 1}", f"app h{polls + 2}"]
    await watch.close()
    await flow.stop()


async def test_a_webhook_looks_up_the_repository_once_per_project(tmp_path: Path) -> None:
    flow, watch = await start_sync(tmp_path, Forge(), 60.0)
    for number in range(30):
        name = f"app-{number}"
        opened = e.PrOpened(100 + number, "One", "main", True, "http://forge/8", f"PR_{100 + number}")
        await flow.append(created(name, scm="github"), Event(opened, 1.0, "github", name, "app", name))
    lookups: list[object] = []
    of = watch.connections.forge

    def recording_lookup(*key: str) -> Any:
        lookups.append(key)
        return of(*key)

    cast("Any", watch.connections).forge = recording_lookup
    watch.handle_hint("github", Hint("acme/another", pulls=(7,)), ["app"])
    assert lookups == [("app", "github")]
    await watch.close()
    await flow.stop()


async def test_a_webhook_of_another_project_causes_no_read(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 60.0)
    await wait_until(lambda: forge.reads)
    await let_time_pass(0.3)
    reads = forge.reads
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["another"])
    await let_time_pass(0.3)
    assert forge.reads == reads
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["another", "app"])
    await wait_until(lambda: forge.reads == reads + 1)
    await watch.close()
    await flow.stop()


async def test_after_a_suspended_night_there_is_one_poll_only(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 3.0)
    time = cast("HandSetClock", flow.clock)
    time.now = 1_000_000.0  # long after the last webhook
    watch.request_read(flow.sessions[SESSION])
    await wait_until(lambda: forge.polls)
    polls = forge.polls
    time.now += 8 * 3600.0
    await let_time_pass(0.2)
    assert forge.polls == polls, "nothing is due any sooner because the clock went on"
    await wait_until(lambda: forge.polls > polls)
    await let_time_pass(0.2)
    assert forge.polls == polls + 1
    await watch.close()
    await flow.stop()


async def test_continuous_webhooks_do_not_prevent_polls(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 60.0)
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await wait_until(lambda: forge.reads)
    reads, polls = forge.reads, forge.polls
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await wait_until(lambda: forge.reads > reads)
    assert forge.polls == polls
    cast("HandSetClock", flow.clock).now += WEBHOOK_POLL_INTERVAL
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await wait_until(lambda: forge.polls == polls + 1)
    await watch.close()
    await flow.stop()


async def test_webhook_reads_are_combined_while_the_rate_limit_is_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_request_sync, "HINT_BATCH_SECONDS", 0.001)
    forge = MeteredForge()
    flow, watch = await start_sync(tmp_path, forge, 60.0)
    await wait_until(lambda: forge.reads)
    forge.short = 3.0
    reads = forge.reads
    for _ in range(30):
        watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
        await asyncio.sleep(0.002)
    assert forge.reads <= reads + 1
    await wait_until(lambda: forge.reads > reads)
    await watch.close()
    await flow.stop()


async def test_while_a_merge_is_requested_webhooks_do_not_replace_polls(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await start_sync(tmp_path, forge, 0.01)
    await wait_until(lambda: flow.sessions[SESSION].pr and forge.reads)
    watch.handle_hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    reads = forge.reads
    await wait_until(lambda: forge.reads > reads)
    await let_time_pass(0.2)
    polls = forge.polls
    await let_time_pass(0.3)
    assert forge.polls == polls, "webhooks arrive, so there is no poll"
    await flow.append(session_event(e.MergeRequested("squash"), "merge", "person"))
    await wait_until(lambda: forge.polls > polls + 3)
    await watch.close()
    await flow.stop()
