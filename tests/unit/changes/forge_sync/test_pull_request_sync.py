"""What is read of a forge, and when: what was read while something is done from here is old, and polls that webhooks spare."""

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
from agent_orchestrator.changes.forge_sync.pull_request_sync import WITH_HOOKS, PullRequestSync
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.signals import BaseChecksRead
from agent_orchestrator.errors import Denied
from agent_orchestrator.protocols.forge import Author, BaseChecks, Hint, PullComment, PullState
from tests.parts import HandSetClock, make_core, never_quiet
from tests.unit.core.world import SESSION, created

pytestmark = pytest.mark.anyio


OPENED = e.PrOpened(7, "One", "main", True, "http://forge/7", "PR_7")


class Forge:
    """One pull request with one discussion; `doing` is called while it is read."""

    def __init__(self) -> None:
        self.repo, self.reads, self.polls, self.resolved = "acme/app", 0, 0, False
        self.doing: Any = None

    async def read(self, _ids: Sequence[str]) -> list[PullState]:
        said = PullComment("c1", "Why?", Author("rev"), 1.0, "a.txt", 1, "t1", head="h1", resolved=self.resolved)
        pull = PullState(7, "PR_7", "http://forge/7", "One", "open", True, "b", "h1", "main", "", comments=(said,))
        self.reads += 1
        if doing := self.doing:
            self.doing = None
            self.resolved = True
            await doing()
        return [pull]

    async def changed(self, _known: object) -> Hint:
        self.polls += 1
        return Hint(self.repo)

    def bases(self) -> dict[str, BaseChecks]:
        return {"main": BaseChecks(f"h{self.polls}", "green")}

    def pause(self) -> float:
        return 0.0


class MeteredForge(Forge):
    """One whose grants may be short."""

    short = 0.0

    def pause(self) -> float:
        return self.short


async def watched(tmp_path: Path, forge: Forge, every: float) -> tuple[Flow, PullRequestSync]:
    """A session with a pull request at this forge, which is polled."""
    core = make_core(tmp_path, clock=HandSetClock())
    core.config.add_adhoc("app", tmp_path / "app")
    flow = core.flow
    await flow.start()

    async def reach(*_: str) -> Forge:
        return forge

    repositories: Any = SimpleNamespace(reach=reach, of=lambda *_: forge, interval=lambda *_: every)
    watch = PullRequestSync(core, repositories, Outages(core, never_quiet))
    watch.start()
    await flow.append(created(scm="github"), happened(OPENED, "opened"))
    return flow, watch


def happened(body: e.Body, key: str, source: str = "github") -> Event:
    return Event(body, 1.0, source, key, "app", SESSION)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


async def a_while(seconds: float) -> None:
    """In many turns: what is due by then is done, though all of us stood still meanwhile."""
    for _ in range(int(seconds / 0.01)):
        await asyncio.sleep(0.01)


async def test_a_discussion_that_is_settled_meanwhile_is_not_taken_up_again(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await watched(tmp_path, forge, 0.01)

    def comments() -> list[bool]:
        pr = flow.sessions[SESSION].pr
        return [one.resolved for one in pr.comments] if pr else []

    await until(lambda: comments() == [False])

    async def settle() -> None:
        await flow.append(happened(e.ThreadSettled("t1", True), "settled", "person"))

    forge.doing = settle
    reads = forge.reads
    watch.want(flow.sessions[SESSION])
    await until(lambda: forge.reads >= reads + 2)
    await watch.close()
    told = [one.body for one in await flow.store.events(0, 100, kind="thread-settled")]
    assert told == [e.ThreadSettled("t1", True)] and comments() == [True]
    await flow.stop()


class Refusing(Forge):
    """Two pull requests; the first is about to land what may not, and the forge does not let it be called off."""

    async def read(self, ids: Sequence[str]) -> list[PullState]:
        return [
            PullState(number, f"PR_{number}", "", "New", "open", True, "b", "h1", "main", "", queued=number == 7)
            for number in (7, 8)
            if f"PR_{number}" in ids
        ]

    async def call_off(self, _pull: PullState) -> None:
        raise Denied("this token may not")


async def test_a_pull_request_that_cannot_be_told_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    flow, watch = await watched(tmp_path, Refusing(), 0.01)
    await flow.append(
        happened(e.MergeRequested(), "merge"),
        created("app-other", scm="github"),
        Event(replace(OPENED, number=8, node="PR_8"), 1.0, "github", "opened-8", "app", "app-other"),
    )
    for session in (SESSION, "app-other"):
        watch.want(flow.sessions[session])
    await until(lambda: (pr := flow.sessions["app-other"].pr) and pr.title == "New")
    await watch.close()
    await flow.stop()


async def test_while_webhooks_come_one_about_another_commit_brings_two_polls_forward(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await watched(tmp_path, forge, 0.05)
    told: list[str] = []
    flow.listeners.on_signal(BaseChecksRead, lambda read: told.append(f"{read.project} {read.bases['main'].head}"))
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await until(lambda: forge.reads)
    await a_while(0.3)
    polls = forge.polls
    for _ in range(50):
        watch.hint("github", Hint("acme/app", heads=("another",)), ["app"])
    await until(lambda: forge.polls == polls + 2)
    await a_while(0.3)
    assert forge.polls == polls + 2 and told[-2:] == [f"app h{polls + 1}", f"app h{polls + 2}"]
    await watch.close()
    await flow.stop()


async def test_a_webhook_asks_once_a_project_whom_it_is_about(tmp_path: Path) -> None:
    flow, watch = await watched(tmp_path, Forge(), 60.0)
    for number in range(30):
        name = f"app-{number}"
        opened = e.PrOpened(100 + number, "One", "main", True, "http://forge/8", f"PR_{100 + number}")
        await flow.append(created(name, scm="github"), Event(opened, 1.0, "github", name, "app", name))
    asked: list[object] = []
    of = watch.repositories.of

    def counted(*place: str) -> Any:
        asked.append(place)
        return of(*place)

    cast("Any", watch.repositories).of = counted
    watch.hint("github", Hint("acme/another", pulls=(7,)), ["app"])
    assert asked == [("app", "github")]
    await watch.close()
    await flow.stop()


async def test_a_webhook_of_another_project_has_nothing_read(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await watched(tmp_path, forge, 60.0)
    await until(lambda: forge.reads)
    await a_while(0.3)
    reads = forge.reads
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["another"])
    await a_while(0.3)
    assert forge.reads == reads
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["another", "app"])
    await until(lambda: forge.reads == reads + 1)
    await watch.close()
    await flow.stop()


async def test_a_night_asleep_is_not_caught_up_poll_by_poll(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await watched(tmp_path, forge, 3.0)
    time = cast("HandSetClock", flow.clock)
    time.now = 1_000_000.0  # long after the last webhook
    watch.want(flow.sessions[SESSION])
    await until(lambda: forge.polls)
    polls = forge.polls
    time.now += 8 * 3600.0
    await a_while(0.2)
    assert forge.polls == polls, "nothing is due any sooner because the clock went on"
    await until(lambda: forge.polls > polls)
    await a_while(0.2)
    assert forge.polls == polls + 1
    await watch.close()
    await flow.stop()


async def test_webhooks_that_never_end_keep_no_poll_from_being_made(tmp_path: Path) -> None:
    forge = Forge()
    flow, watch = await watched(tmp_path, forge, 60.0)
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await until(lambda: forge.reads)
    reads, polls = forge.reads, forge.polls
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await until(lambda: forge.reads > reads)
    assert forge.polls == polls
    cast("HandSetClock", flow.clock).now += WITH_HOOKS
    watch.hint("github", Hint("acme/app", pulls=(7,)), ["app"])
    await until(lambda: forge.polls == polls + 1)
    await watch.close()
    await flow.stop()


async def test_webhooks_by_the_thousand_are_gathered_while_grants_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_request_sync, "GATHER", 0.001)
    forge = MeteredForge()
    flow, watch = await watched(tmp_path, forge, 60.0)
    await until(lambda: forge.reads)
    forge.short = 3.0
    reads = forge.reads
    for _ in range(30):
        watch.hint("github", Hint("acme/app", pulls=(7,)), ["app"])
        await asyncio.sleep(0.002)
    assert forge.reads <= reads + 1
    await until(lambda: forge.reads > reads)
    await watch.close()
    await flow.stop()
