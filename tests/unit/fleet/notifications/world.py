"""A flow with scripted notifiers and a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.config.model import NotifierSection as Settings
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.fleet.notifications.answer_links import AnswerLinks
from agent_orchestrator.fleet.notifications.rate_limit import SendLimits
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.fleet.notifications.sender import NotificationSender
from agent_orchestrator.fleet.notifications.targets import NotifierTarget, NotifierTargets
from agent_orchestrator.protocols import Notification, Notifier
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.parts import make_config, make_core
from tests.unit.core.world import ManualClock


class RecordingNotifier(Notifier):
    """A notifier that records messages or raises the next of `errors`; with `arrives` it does both."""

    def __init__(self, *, keyed: bool = False) -> None:
        self.keyed = keyed
        self.sent: list[Notification] = []
        self.errors: list[BaseException | None] = []
        self.arrives = False

    async def notify(self, notification: Notification) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is None or self.arrives:
            self.sent.append(notification)
        if error is not None:
            raise error


@dataclass
class FakeTargets(NotifierTargets):
    """The notifiers of a test, by name."""

    notifiers: Mapping[str, Notifier]
    paces: Mapping[str, SendLimits] = field(default_factory=dict)
    actions: bool = False
    plugin: str = "recorder"

    def __post_init__(self) -> None:
        self.config = make_config(Path("/nowhere/config.yaml"))

    def routes(self, project: str | None, level: str) -> Sequence[str]:  # noqa: ARG002 - the same for all
        return list(self.notifiers) if level != "silent" else []

    def find(self, project: str | None, name: str) -> NotifierTarget | None:
        if name not in self.notifiers:
            return None
        owner = replace(self.config.fallback_project(), id=project or "")
        settings = Settings(plugin=self.plugin, actions=self.actions)
        return NotifierTarget(name, settings, owner, f"{name}-1", self.paces.get(name, SendLimits(repeat_after=0.0)))

    def for_project(self, project: str | None) -> list[NotifierTarget]:
        return [cast("NotifierTarget", self.find(project, name)) for name in self.notifiers]

    def all_targets(self) -> list[NotifierTarget]:
        return self.for_project("app")

    def create_notifier(self, target: NotifierTarget) -> Notifier:
        return self.notifiers[target.name]

    def forget(self) -> None:
        pass


class RecordingInbox:
    """An inbox that records the answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, dict[str, Any]]] = []

    async def answer(self, session: str, **fields: Any) -> None:
        self.answers.append((session, fields))


class NotificationWorld:
    """The notifications of a daemon; `restart` returns another daemon on the same store."""

    def __init__(
        self, targets: FakeTargets, home: Path, store: MemoryStore | None = None, time: ManualClock | None = None
    ) -> None:
        self.targets = targets
        self.home = home
        self.store = store or MemoryStore()
        self.time = time or ManualClock()
        self.flow = Flow(self.store, self.time, lambda _project, _profile: (), targets.routes)
        core = make_core(home, self.flow, config=targets.config)
        core.sites.local.url = "http://127.0.0.1:3000"
        self.inbox = RecordingInbox()
        self.answers = AnswerLinks(self.flow, Tokens(core.home), cast("Inbox", self.inbox))
        self.notifying = NotificationSender(core, targets, self.answers, Health(lambda: 1.0))
        self.runner = EffectRunner(self.flow, self.notifying.effects())

    async def start(self) -> NotificationWorld:
        self.runner.start(await self.flow.start())
        return self

    async def restart(self, *, crash: bool = False) -> NotificationWorld:
        """Return another daemon on the store; after a crash nothing that was under way is recorded."""
        if crash:
            store = self.store.clone()
            self.store.crash()
        else:
            await self.runner.drain()
            await self.flow.stop()
            store = self.store
        return await NotificationWorld(self.targets, self.home, store, self.time).start()

    async def notify_person(self, message: str = "m", level: str = "info", **more: Any) -> None:
        body = e.Notified(more.get("trigger", "t"), more.get("title", "title"), message, level)
        key = more.get("key") or f"k{self.flow.seq}"
        await self.flow.append(Event(body, self.time(), "rule r", key, "app", more.get("session", "app-x")))
        await settle()

    async def later(self, seconds: float) -> None:
        """Advance the time from timer to timer."""
        end = self.time() + seconds
        while self.time() < end:
            due = [timer.at for timer in self.time.timers if not timer.cancelled and timer.at <= end]
            self.time.advance(max(0.0, min([*due, end]) - self.time()))
            await settle()

    async def outcomes(self) -> list[tuple[str, str, tuple[str, ...]]]:
        events = await self.store.events(kind="notification-settled")
        bodies = [event.body for event in events]
        return [(b.notifier, b.outcome, b.notices) for b in bodies if isinstance(b, e.NotificationSettled)]

    async def kinds(self, *names: str) -> list[e.Body]:
        return [event.body for name in names for event in await self.store.events(kind=name)]


async def settle() -> None:
    for _ in range(80):
        await asyncio.sleep(0)
