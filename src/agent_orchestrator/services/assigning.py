"""Taking issues by itself: where `autoAssign` is on, whatever the backlog says may be taken now, is.

Each issue is taken once: the session that takes it is made under the issue's own key, so neither a restart nor a second look makes
another. Who wants another attempt asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from agent_orchestrator.errors import AoError
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.services.backlog import Backlog
from agent_orchestrator.services.projects import NOWHERE
from agent_orchestrator.services.routing import Entry
from agent_orchestrator.services.sessions import Sessions

LOOK_AGAIN = 60.0
"""Seconds after which an issue that could not be taken is tried again."""

log = structlog.get_logger()


class Assigning:
    """Takes issues as there is room."""

    def __init__(self, flow: Flow, backlog: Backlog, sessions: Sessions) -> None:
        self.flow = flow
        self.backlog = backlog
        self.sessions = sessions
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._due = False
        self._running = False

    def start(self) -> None:
        """Look now, and whenever an issue or a session changed."""
        self._running = True
        self.flow.on_change.append(self._on_change)
        self.look()

    def close(self) -> None:
        """Take no more."""
        self._running = False
        for pending in (self._again, self._task):
            if pending is not None:
                pending.cancel()

    def _on_change(self, changes: Sequence[Change]) -> None:
        kinds = (e.IssueOpened, e.IssueChanged, e.LabelAdded, e.LabelRemoved)
        if any(isinstance(change.event.body, kinds) or change.after is not change.before for change in changes):
            self.look()

    def look(self) -> None:
        """Look at the backlog; calls that come together are one."""
        self._due = True
        projects = self.backlog.config.projects()
        if self._running and self._task is None and any(project.auto_assign for project in projects):
            self._task = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        try:
            while self._due:
                self._due = False
                entries = [entry for entry in self.backlog.entries(None) if entry.ready and not entry.asked]
                for entry in entries:
                    await self._take_one(entry)
        finally:
            self._task = None

    async def _take_one(self, entry: Entry) -> None:
        issue = entry.issue
        request = {"projectId": issue.project, "issue": issue.name, "agent": entry.taker}
        try:
            await self.sessions.create(request, f"auto:{issue.project}:{issue.number}", NOWHERE)
        except AoError as error:
            log.warning("an issue could not be taken", project=issue.project, issue=issue.name, error=str(error))
            if self._again is not None:
                self._again.cancel()
            self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN, self.look)
