"""Issue synchronization: webhooks have issues of sessions read at once, and others only as the rate limit allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.changes.forge_sync import issue_sync
from agent_orchestrator.changes.forge_sync.issue_sync import (
    MAX_HINTED_READS_PER_MINUTE,
    IssueSync,
)
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.poll_interval import WEBHOOK_POLL_INTERVAL
from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.forge import Hint, TrackerIssue
from tests.parts import HandSetClock, make_core, never_quiet
from tests.unit.core.world import created

pytestmark = pytest.mark.anyio

EVERY = 0.05


class Tracker:
    """A tracker that counts its reads and polls."""

    repo = "acme/app"
    hosted = True

    def __init__(self) -> None:
        self.issues: dict[str, TrackerIssue] = {}
        self.read: list[str] = []
        self.polls = 0
        self.error: Exception | None = None
        self.short = 0.0

    def pause(self) -> float:
        return self.short

    def budget(self) -> list[str]:
        return []

    def write(self, id_: str, title: str, at: float) -> None:
        self.issues[id_] = TrackerIssue(id_, title, updated_at=at)

    async def get(self, issue: str) -> TrackerIssue:
        self.read.append(issue)
        if self.error is not None:
            raise self.error
        return self.issues.get(issue) or TrackerIssue(issue, "Any", updated_at=1.0)

    async def list(self, *, since: float = 0.0, **_: object) -> list[TrackerIssue]:
        self.polls += 1
        return [issue for issue in self.issues.values() if issue.updated_at >= since]


class Scene:
    """A project whose tracker sends webhooks."""

    def __init__(self, folder: Path) -> None:
        self.time, self.tracker, self.every = HandSetClock(), Tracker(), EVERY
        core = make_core(folder, clock=self.time)
        core.config.add_adhoc("app", folder / "app")
        self.flow = core.flow

        async def name(_project: object) -> str:
            return "github"

        async def reach(*_: str) -> Tracker:
            return self.tracker

        repositories: Any = SimpleNamespace(
            tracker_name=name,
            is_hosted=lambda *_: True,
            trusted_tracker=reach,
            trackers=lambda _: [self.tracker],
            poll_interval=lambda *_: self.every,
        )
        self.tracking = IssueSync(core, repositories, Outages(core, never_quiet))

    def hint(self, *issues: str, project: str = "app") -> None:
        self.tracking.handle_hint("github", Hint("acme/app", issues=issues), [project])

    def title(self, number: int) -> str:
        issue = self.flow.home.issues.get(f"app#{number}")
        return issue.title if issue else ""


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Yield a scene after its first poll and first webhook."""
    scene = Scene(tmp_path)
    await scene.flow.start()
    scene.tracker.write("1", "First", 900.0)
    scene.tracking.start()
    await wait_until(lambda: scene.title(1))
    scene.hint("1")
    await wait_until(lambda: scene.tracker.read)
    scene.time.now += 60
    scene.tracker.read.clear()
    yield scene
    await scene.tracking.close()
    await scene.flow.stop()


async def test_thousands_of_webhooks_stay_within_the_rate_limit_without_loss(scene: Scene) -> None:
    polls = scene.tracker.polls
    for number in range(100, 5100):
        scene.tracker.write(str(number), f"Issue {number}", 1000.0)
        scene.hint(str(number))
    await wait_until(lambda: scene.title(5099))
    assert scene.title(100) == "Issue 100"
    assert len(scene.tracker.read) == MAX_HINTED_READS_PER_MINUTE
    assert scene.tracker.polls <= polls + 2
    scene.time.now += 60
    scene.tracker.write("7", "Later", 1100.0)
    scene.hint("7")
    await wait_until(lambda: scene.title(7))
    assert scene.tracker.read[-1] == "7"


async def test_an_issue_that_a_session_works_on_is_read_at_once(scene: Scene) -> None:
    scene.every = WEBHOOK_POLL_INTERVAL
    await scene.flow.append(created(issue="1"))
    scene.hint(*(str(number) for number in range(100, 200)))
    scene.tracker.write("1", "Changed", 1000.0)
    scene.hint("1")
    await wait_until(lambda: scene.title(1) == "Changed")
    await wait_until(lambda: len(scene.tracker.read) == MAX_HINTED_READS_PER_MINUTE + 1)


async def test_its_reads_are_combined_while_the_rate_limit_is_low(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issue_sync, "HINT_BATCH_SECONDS", 0.001)
    await scene.flow.append(created(issue="1"))
    scene.hint("1")
    await wait_until(lambda: scene.tracker.read)
    scene.tracker.short = 3.0
    read = len(scene.tracker.read)
    for _ in range(30):
        scene.hint("1")
        await asyncio.sleep(0.002)
    assert len(scene.tracker.read) <= read + 1
    await wait_until(lambda: len(scene.tracker.read) > read)


async def test_continuous_webhooks_do_not_prevent_polls(scene: Scene) -> None:
    polls = scene.tracker.polls
    scene.tracker.write("8", "Nobody told", 1000.0)
    scene.time.now += WEBHOOK_POLL_INTERVAL
    scene.hint("1")
    await wait_until(lambda: scene.title(8))
    assert scene.tracker.polls == polls + 1


async def test_a_webhook_of_another_project_causes_no_read(scene: Scene) -> None:
    for number in ("2", "3"):
        scene.tracker.write(number, "Changed", 1000.0)
    scene.hint("2", project="another")
    scene.hint("3")
    await wait_until(lambda: scene.title(3))
    assert scene.tracker.read == ["3"]


async def test_an_issue_that_could_not_be_read_is_found_by_a_poll(scene: Scene) -> None:
    scene.tracker.error = Temporary("it is away", "wait")
    scene.tracker.write("9", "While it was away", 1000.0)
    scene.hint("9")
    await wait_until(lambda: scene.tracker.read)
    scene.tracker.error = None
    scene.hint("1")
    await wait_until(lambda: scene.title(9))
    assert scene.tracker.read[-1] == "1"
