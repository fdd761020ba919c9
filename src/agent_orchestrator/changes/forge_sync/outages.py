"""Forges and trackers that cannot be read: a person is told once, when it lasts or when only he can mend it, and once when it is over."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable

from agent_orchestrator.changes.forge_sync.connections import Repositories, problem
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.sessions import outage_key
from agent_orchestrator.errors import AoError, Denied

LONG = 600.0
"""Seconds without an answer after which somebody is told."""


class Outages:
    """Counts how long each forge and tracker of each project has been silent. Its parts: pull requests, issues."""

    def __init__(self, flow: Flow, repositories: Repositories) -> None:
        self.flow = flow
        self.repositories = repositories
        self.gate: Callable[[str, e.Notified], e.Body] = lambda _project, notice: notice
        """What is told may have to wait for the end of the quiet hours."""
        self._telling = asyncio.Lock()
        self._failing: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)

    async def failed(self, project: str, name: str, part: str, error: Exception) -> float:
        """A part could not be read; returns the seconds after which that is worth telling, if it still cannot."""
        if self.repositories.plugins.config.project(project) is None:
            return math.inf  # somebody removed it
        async with self._telling:
            return await self._failed(project, name, part, error)

    async def _failed(self, project: str, name: str, part: str, error: Exception) -> float:
        now = self.flow.clock()
        since = min([*self._failing[project, name].values(), now])
        self._failing[project, name].setdefault(part, now)
        known = self.flow.home.outages.get(outage_key(project, name))
        called = await self._calls_somebody(project, error)
        if known is not None and (known.called or not called):
            return math.inf
        if not called and now - since < LONG:
            return since + LONG - now
        text = error.text if isinstance(error, AoError) else problem(error)
        remedy = error.remedy if isinstance(error, AoError) else "see the daemon's log"
        began = known.since if known else since
        notice = e.Notified(
            "reading-failed",
            f"{name} of {project} cannot be read",
            f"{text}: {remedy}" if remedy else text,
            "action" if called else "warning",
        )
        await self._tell(project, e.ReadingFailed(name, text, remedy, began, called), notice)
        return math.inf

    async def works(self, project: str, name: str, part: str) -> None:
        """A part was read; when all can be, an outage is over."""
        async with self._telling:
            since = self._end(project, name, part)
            if since is not None:
                minutes = max(1, round((self.flow.clock() - since) / 60.0))
                text = f"it could not be since {rfc3339(since)} ({minutes} min); what changed meanwhile is read now"
                notice = e.Notified("reading-resumed", f"{name} of {project} can be read again", text, "info")
                await self._tell(project, e.ReadingResumed(name), notice)

    async def unwanted(self, project: str, name: str, part: str) -> None:
        """A part need not be read any more."""
        async with self._telling:
            if self._end(project, name, part) is not None:
                await self._tell(project, e.ReadingResumed(name))

    async def settle(self, project: str, tracker: str) -> None:
        """A project's tracker is this one: those that were, and that serve no pull request either, need not be read any more."""
        served = {facts.spec.scm for facts in self.flow.sessions.values() if facts.project == project}
        for known in list(self.flow.home.outages.values()):
            if known.project == project and known.name not in (tracker, *served):
                await self.unwanted(project, known.name, "issues")

    def _end(self, project: str, name: str, part: str) -> float | None:
        """When the outage began that ends with this part; none: there is none, or another part goes on."""
        self._failing[project, name].pop(part, None)
        known = self.flow.home.outages.get(outage_key(project, name))
        return known.since if known and not self._failing[project, name] else None

    async def _calls_somebody(self, project: str, error: Exception) -> bool:
        """Is it the token that is wrong? That a configuration is not trusted is told elsewhere."""
        config = self.repositories.plugins.config.project(project)
        if not isinstance(error, Denied) or config is None:
            return False
        try:
            await self.repositories.check(config)
        except AoError:
            return False
        return True

    async def _tell(self, project: str, body: e.Body, notice: e.Notified | None = None) -> None:
        now = self.flow.clock()
        key = f"{body.type}:{project}:{now:.6f}"
        told = [Event(self.gate(project, notice), now, "daemon", f"{key}:told", project)] if notice else []
        await self.flow.append(Event(body, now, "daemon", key, project), *told)
