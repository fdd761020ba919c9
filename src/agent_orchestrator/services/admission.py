"""Letting sessions start: asks the scheduler whenever something changed that it looks at, and records its verdicts."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.home import Home
from agent_orchestrator.services.scheduler import Resources, admit, waiting

LOOK_AGAIN = 15.0
"""Seconds after which scarce memory or disk is looked at again."""


class Admission:
    """Admits sessions as there is room."""

    def __init__(self, flow: Flow, home: Home, config: ConfigSet) -> None:
        self.flow = flow
        self.home = home
        self.config = config
        self._due = False
        self._again: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look now, and at every change."""
        self.flow.on_change.append(self._on_change)
        self.look()

    def close(self) -> None:
        """Look no more."""
        if self._again:
            self._again.cancel()
        for task in self._tasks:
            task.cancel()

    def look(self) -> None:
        """Look at who waits; calls that come together are one."""
        if not self._due and any(True for _ in waiting(self.flow.sessions.values())):
            self._due = True
            task = asyncio.get_running_loop().create_task(self._decide())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(
            change.after is not change.before or isinstance(change.event.body, e.IssueChanged) for change in changes
        ):
            self.look()

    async def _decide(self) -> None:
        self._due = False
        sessions = list(self.flow.sessions.values())
        verdicts = admit(sessions, self.config.limits(), resources(self.home.path), self.flow.home.issues)
        events = []
        for verdict in verdicts:
            facts = self.flow.sessions[verdict.session]
            if not verdict.reason:
                events.append(
                    self._event(e.SessionAdmitted(), facts.project, facts.id, f"admitted:{facts.id}:{facts.run}")
                )
            elif verdict.reason != facts.waiting_for:
                events.append(self._event(e.SessionWaiting(verdict.reason), facts.project, facts.id, uuid.uuid4().hex))
        if events:
            await self.flow.append(*events)
        if any(verdict.reason for verdict in verdicts):
            if self._again:
                self._again.cancel()
            self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN, self.look)

    def _event(self, body: e.Body, project: str, session: str, key: str) -> Event:
        return Event(body, self.flow.clock(), "scheduler", key, project, session)


def resources(folder: Path) -> Resources:
    """Free memory and disk of this machine."""
    return Resources(_free_memory(), shutil.disk_usage(folder).free)


def _free_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1 << 40
