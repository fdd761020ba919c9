"""What is read while something is done from here is old: it is read again, not told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.forge import Author, Hint, PullComment, PullState
from agent_orchestrator.home import Home
from agent_orchestrator.services.forges.outages import Outages
from agent_orchestrator.services.forges.watching import ForgeWatch
from agent_orchestrator.testing.memory import MemoryStore
from tests.unit.flow.world import SESSION, Time, created

pytestmark = pytest.mark.anyio


class Forge:
    """One pull request with one discussion; `doing` is called while it is read."""

    def __init__(self) -> None:
        self.repo, self.reads, self.resolved = "acme/app", 0, False
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
        return Hint(self.repo)


async def test_a_discussion_that_is_settled_meanwhile_is_not_taken_up_again(tmp_path: Path) -> None:
    flow = Flow(MemoryStore(), Time(), lambda _project, _profile: ())
    await flow.start()
    forge = Forge()

    async def reach(*_: str) -> Forge:
        return forge

    project = SimpleNamespace(id="app", scm=SimpleNamespace(plugin="github", options={}))
    repositories: Any = SimpleNamespace(
        reach=reach,
        of=lambda *_: forge,
        interval=lambda *_: 0.01,
        plugins=SimpleNamespace(project=lambda _: project, config=SimpleNamespace(project=lambda _: project)),
    )
    watch = ForgeWatch(flow, Home(tmp_path), cast("Any", None), repositories, Outages(flow, repositories))
    watch.start()

    def happened(body: e.Body, key: str, source: str = "github") -> Event:
        return Event(body, 1.0, source, key, "app", SESSION)

    opened = e.PrOpened(7, "One", "main", True, "http://forge/7", "PR_7")
    await flow.append(created(scm="github"), happened(opened, "opened"))

    async def until(holds: Any) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.002)

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
