"""Outages of a forge or tracker: when notifications are sent, and how often, with a manual clock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.outages import NOTIFY_AFTER, Outages
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import Denied, Temporary
from agent_orchestrator.protocols.forge import TrackerIssue
from agent_orchestrator.sessions.part import Core
from tests.parts import HandSetClock, make_core, never_quiet

DOWN = Temporary("GitHub failed with 503", "try again later")
EXPIRED = Denied("the token from GITHUB_TOKEN is not accepted by GitHub", "gh auth login")

pytestmark = pytest.mark.anyio


class Plugins:
    """The connections of one project, whose tracker answers with the given error."""

    def __init__(self) -> None:
        self.trusted, self.error = True, DOWN
        self.reads = 0

    async def check_trust(self, *_: object) -> None:
        if not self.trusted:
            raise Denied("nobody trusts it", "ao trust")

    async def tracker_name(self, _project: object) -> str:
        return "github"

    def is_hosted(self, *_: object) -> bool:
        return True

    async def trusted_tracker(self, *_: str) -> Plugins:
        return self

    def trackers(self, _project: str) -> list[object]:
        return []

    def poll_interval(self, *_: object) -> float:
        return 0.01

    async def list(self, **_: object) -> list[TrackerIssue]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return []


class Scene:
    def __init__(self, core: Core, time: HandSetClock) -> None:
        self.flow, self.time, self.plugins = core.flow, time, Plugins()
        core.config.add_adhoc("app", core.home.path / "app")
        self.core = replace(core, projects=cast("Any", self.plugins))
        self.outages = self.again()

    def again(self) -> Outages:
        """Return outages as after a restart of the daemon."""
        return Outages(self.core, never_quiet)

    async def notified(self) -> list[tuple[str, str]]:
        events = await self.flow.store.events(0, 1000, kind="notified")
        return [(event.body.trigger, event.body.level) for event in events if isinstance(event.body, e.Notified)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    time = HandSetClock()
    core = make_core(tmp_path, clock=time)
    await core.flow.start()
    yield Scene(core, time)
    await core.flow.stop()


FAILED, LATER, OVER = ("reading-failed", "action"), ("reading-failed", "warning"), ("reading-resumed", "info")


async def test_a_lasting_outage_is_notified_once_and_its_end_once(scene: Scene) -> None:
    outages = scene.outages
    assert await outages.record_failure("app", "github", "pulls", DOWN) == NOTIFY_AFTER
    scene.time.now += NOTIFY_AFTER - 1
    assert await outages.record_failure("app", "github", "pulls", DOWN) == 1
    assert await scene.notified() == []
    scene.time.now += 1
    assert await outages.record_failure("app", "github", "pulls", DOWN) == math.inf
    scene.time.now += NOTIFY_AFTER
    assert await outages.record_failure("app", "github", "pulls", DOWN) == math.inf
    outages = scene.again()
    await outages.record_failure("app", "github", "pulls", DOWN)
    assert await scene.notified() == [LATER] and set(scene.flow.home.outages) == {"app github"}
    await outages.record_success("app", "github", "pulls")
    await outages.record_success("app", "github", "pulls")
    assert await scene.notified() == [LATER, OVER] and not scene.flow.home.outages
    assert await outages.record_failure("app", "github", "pulls", DOWN) == NOTIFY_AFTER


async def test_a_short_outage_is_not_notified(scene: Scene) -> None:
    for _ in range(5):
        await scene.outages.record_failure("app", "github", "pulls", DOWN)
        scene.time.now += NOTIFY_AFTER - 1
        await scene.outages.record_success("app", "github", "pulls")
    assert await scene.notified() == []


async def test_a_refused_token_is_notified_at_once(scene: Scene) -> None:
    both = (scene.outages.record_failure("app", "github", part, EXPIRED) for part in ("pulls", "issues"))
    await asyncio.gather(*both)
    assert await scene.notified() == [FAILED]
    await scene.outages.record_success("app", "github", "pulls")
    assert await scene.notified() == [FAILED]
    await scene.outages.record_success("app", "github", "issues")
    assert await scene.notified() == [FAILED, OVER]


async def test_an_outage_is_notified_again_if_only_a_person_can_end_it(scene: Scene) -> None:
    await scene.outages.record_failure("app", "github", "pulls", DOWN)
    scene.time.now += NOTIFY_AFTER
    await scene.outages.record_failure("app", "github", "pulls", DOWN)
    began = scene.flow.home.outages["app github"].since
    scene.time.now += 60
    await scene.outages.record_failure("app", "github", "pulls", EXPIRED)
    await scene.outages.record_failure("app", "github", "pulls", DOWN)
    assert await scene.notified() == [LATER, FAILED]
    assert scene.flow.home.outages["app github"].since == began


async def test_outages_of_untrusted_or_removed_connections_are_not_notified(scene: Scene) -> None:
    scene.plugins.trusted = False
    assert await scene.outages.record_failure("app", "github", "issues", EXPIRED) == NOTIFY_AFTER
    scene.plugins.trusted = True
    await scene.outages.record_failure("app", "github", "issues", EXPIRED)
    await scene.outages.forget_former_trackers("app", "github")
    assert scene.flow.home.outages
    await scene.outages.forget_former_trackers("app", "linear")
    assert not scene.flow.home.outages and await scene.notified() == [FAILED]
    scene.core.config.remove_project("app")
    assert await scene.outages.record_failure("app", "github", "issues", EXPIRED) == math.inf
    assert await scene.notified() == [FAILED]


async def test_an_outage_ends_with_its_project(scene: Scene) -> None:
    await scene.outages.record_failure("app", "github", "issues", EXPIRED)
    await scene.flow.append(
        Event(e.ProjectRegistered("/app", None), 1.0, "person", "there", "app"),
        Event(e.ProjectRemoved(), 2.0, "person", "gone", "app"),
    )
    assert not scene.flow.home.outages


async def test_a_tracker_is_retried_when_the_notification_is_due(scene: Scene) -> None:
    """The pauses grow, but not beyond the time of the notification."""
    tracking = IssueSync(scene.core, cast("Any", scene.plugins), scene.outages)
    tracking.start()

    async def wait_for_reads(number: int) -> None:
        async with asyncio.timeout(60):
            while scene.plugins.reads < number:
                await asyncio.sleep(0.005)

    await wait_for_reads(2)
    scene.time.now += NOTIFY_AFTER
    async with asyncio.timeout(60):
        while not scene.flow.home.outages:
            await asyncio.sleep(0.005)
    scene.plugins.error = cast("Any", None)
    async with asyncio.timeout(60):
        while scene.flow.home.outages:
            await asyncio.sleep(0.005)
    await tracking.close()
    assert await scene.notified() == [LATER, OVER]
