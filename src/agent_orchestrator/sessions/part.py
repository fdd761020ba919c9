"""`Core` and `Part`: what the long-lived parts of the daemon are given, and what they have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.projects.project_settings import ProjectSettings
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Body, Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.sessions.session_plugins import SessionPlugins
from agent_orchestrator.sessions.site import Sites

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Core:
    """What nearly every part of the daemon needs."""

    flow: Flow
    """Records events; has all facts."""
    home: Home
    host: LocalHost
    watch: FileWatcher
    config: ConfigSet
    settings: ProjectSettings
    projects: Projects
    sites: Sites
    plugins: SessionPlugins


class Part:
    """A long-lived part of the daemon: it listens to events and signals, and works in the background until it is closed."""

    source = "daemon"
    """The source of its events."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.flow = core.flow
        self.clock = core.flow.clock
        self.home = core.home
        self.host = core.host
        self._tasks = Tasks()
        self._subscriptions: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to work; called once, when the facts are complete."""

    async def close(self) -> None:
        """Stop listening, and cancel all work in the background."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions.clear()
        await self._tasks.close()

    async def finish(self, timeout: float) -> None:
        """Wait some seconds for the work in the background to end, then cancel what is left."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tasks.finish(), timeout)

    def on(self, listener: Callable[[Sequence[FactsChange]], None], *types: type[Body]) -> None:
        """Call a listener after each commit with the changes by events of these types, or by all events if none is given."""
        self._subscriptions.append(self.flow.listeners.on_events(listener, *types))

    def on_signal(self, kind: type[S], listener: Callable[[S], None]) -> None:
        """Call a listener with each signal of a kind (`core/signals.py`)."""
        self._subscriptions.append(self.flow.listeners.on_signal(kind, listener))

    def emit(self, signal: object) -> None:
        """Call the listeners of a signal."""
        self.flow.listeners.emit(signal)

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in the background, and return its task."""
        return self._tasks.spawn(work, name)

    def event(self, facts: SessionFacts, body: Body, key: str, generation: int = 0, source: str = "") -> Event:
        """Return an event of a session, with the current time."""
        return Event(body, self.clock(), source or self.source, key, facts.project, facts.id, generation)
