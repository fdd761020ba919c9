"""Outages of forges and trackers.

A person is notified once, when an outage lasts or only a person can end it, and once when it is over.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.home import outage_key
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.errors import AoError, Denied
from agent_orchestrator.sessions.part import Core

NOTIFY_AFTER = 600.0
"""Seconds without an answer after which a person is notified."""


class Outages:
    """Tracks since when each forge and tracker of each project fails. Its parts: pull requests and issues."""

    def __init__(self, core: Core, notices: NoticeGate) -> None:
        self.core = core
        self.flow = core.flow
        self._notices = notices
        self._record_lock = asyncio.Lock()
        self._failing_since: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)

    async def record_failure(self, project: str, name: str, part: str, error: Exception) -> float:
        """Record that a part could not be read.

        Return the seconds after which the failure is worth a notice if it goes on; infinite if it is recorded already.
        """
        if self.core.config.project(project) is None:
            return math.inf  # the project was removed
        async with self._record_lock:
            return await self._record_failure(project, name, part, error)

    async def _record_failure(self, project: str, name: str, part: str, error: Exception) -> float:
        """Record that a part could not be read, for a caller that holds the lock; return the same as `failed`."""
        now = self.flow.clock()
        since = min([*self._failing_since[project, name].values(), now])
        self._failing_since[project, name].setdefault(part, now)
        outage = self.flow.home.outages.get(outage_key(project, name))
        needs_person = await self._needs_person(project, error)
        if outage is not None and (outage.needs_person or not needs_person):
            return math.inf
        if not needs_person and now - since < NOTIFY_AFTER:
            return since + NOTIFY_AFTER - now
        text = error.text if isinstance(error, AoError) else error_line(error)
        remedy = error.remedy if isinstance(error, AoError) else "see the daemon's log"
        began = outage.since if outage else since
        notice = e.Notified(
            "reading-failed",
            f"{name} of {project} cannot be read",
            f"{text}: {remedy}" if remedy else text,
            "action" if needs_person else "warning",
        )
        await self._record(project, e.ReadingFailed(name, text, remedy, began, needs_person), notice)
        return math.inf

    async def record_success(self, project: str, name: str, part: str) -> None:
        """Record that a part was read; the outage is over when all parts can be read."""
        async with self._record_lock:
            since = self._end_part(project, name, part)
            if since is not None:
                minutes = max(1, round((self.flow.clock() - since) / 60.0))
                text = f"it could not be since {rfc3339(since)} ({minutes} min); what changed meanwhile is read now"
                notice = e.Notified("reading-resumed", f"{name} of {project} can be read again", text, "info")
                await self._record(project, e.ReadingResumed(name), notice)

    async def stop_watching(self, project: str, name: str, part: str) -> None:
        """Record that a part need not be read any more."""
        async with self._record_lock:
            if self._end_part(project, name, part) is not None:
                await self._record(project, e.ReadingResumed(name))

    async def forget_former_trackers(self, project: str, tracker: str) -> None:
        """Record the project's present tracker: earlier ones that serve no pull request either need not be read any more."""
        served = {facts.spec.scm for facts in self.flow.sessions.values() if facts.project == project}
        for outage in list(self.flow.home.outages.values()):
            if outage.project == project and outage.name not in (tracker, *served):
                await self.stop_watching(project, outage.name, "issues")

    def _end_part(self, project: str, name: str, part: str) -> float | None:
        """Return since when the outage lasted that ends with this part, or None if there is none or another part still fails."""
        self._failing_since[project, name].pop(part, None)
        outage = self.flow.home.outages.get(outage_key(project, name))
        return outage.since if outage and not self._failing_since[project, name] else None

    async def _needs_person(self, project: str, error: Exception) -> bool:
        """Return whether the token is wrong, so that a person must act.

        An untrusted configuration is reported elsewhere.
        """
        config = self.core.config.project(project)
        if not isinstance(error, Denied) or config is None:
            return False
        try:
            await self.core.projects.check_trust(config, None)
        except AoError:
            return False
        return True

    async def _record(self, project: str, body: e.Body, notice: e.Notified | None = None) -> None:
        """Record an event, with its notice if there is one."""
        now = self.flow.clock()
        key = f"{body.type}:{project}:{now:.6f}"
        notices = [Event(self._notices(project, notice), now, "daemon", f"{key}:told", project)] if notice else []
        await self.flow.append(Event(body, now, "daemon", key, project), *notices)


def error_line(error: Exception) -> str:
    """Return an error's text in one line."""
    return str(error) if isinstance(error, AoError) else f"{type(error).__name__}: {error}"
