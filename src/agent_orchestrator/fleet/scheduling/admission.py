"""Letting sessions start: asks the scheduler whenever something changed that it looks at, and records its verdicts."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import structlog

from agent_orchestrator.base.home import Home
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.slots import (
    CHOOSING,
    Gate,
    Resources,
    Verdict,
    admit,
    holds_slot,
    same_reason,
    waiting,
)

log = structlog.get_logger()

Expected = Callable[[Sequence[SessionFacts]], Awaitable[Mapping[str, frozenset[str]]]]
"""Sessions → the files that each is about."""

LOOK_AGAIN = 15.0
"""Seconds after which scarce memory or disk is looked at again."""

_CHATTER = (
    e.SessionAdmitted,
    e.SessionWaiting,
    e.AgentOutput,
    e.AgentProgress,
    e.AgentAck,
    e.AgentReport,
    e.Notified,
    e.NotificationSettled,
    e.NotifierFailing,
    e.NotifierRecovered,
    e.AnswerLinkUsed,
    e.Reacted,
    e.CommentAdded,
    e.CheckStarted,
    e.SessionSeen,
    e.WorkCheckpointed,
    e.WorkspaceCreated,
)
"""Events that make room for nobody."""


class Admission:
    """Admits sessions as there is room."""

    def __init__(self, flow: Flow, home: Home, config: ConfigSet, expected: Expected) -> None:
        self.flow = flow
        self.home = home
        self.config = config
        self.expected = expected
        self.gates: list[Gate] = []
        """What else may hold a start."""
        self._due = False
        self._deciding = asyncio.Lock()
        self._about: Mapping[str, frozenset[str]] = {}
        """The files that each was about when that mattered last."""
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
        if not self._due and any(not one.admitted and one.wanted == "run" for one in self.flow.sessions.values()):
            self._due = True
            task = asyncio.get_running_loop().create_task(self._decide())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(_matters(change) for change in changes):
            self.look()

    async def _decide(self) -> None:
        async with self._deciding:  # two at a time would give the same place away twice
            self._due = False
            try:
                await self._record(await self.verdicts())
            except (AoError, OSError) as error:
                log.warning("nobody could be let start; it is tried again", error=str(error))
                self._look_later()

    async def verdicts(self) -> list[Verdict]:
        """Who may start now. Only where some may and some may not does it matter which files each is about."""
        verdicts = self._admit(self._about)
        if len({bool(verdict.reason) for verdict in verdicts if verdict.turn or not verdict.reason}) < 2:
            return verdicts
        sessions = list(self.flow.sessions.values())
        at_work = [facts for facts in sessions if holds_slot(facts)]
        self._about = await self.expected([*waiting(sessions), *at_work])
        return self._admit(self._about)

    def _admit(self, expected: Mapping[str, frozenset[str]]) -> list[Verdict]:
        sessions, free = list(self.flow.sessions.values()), resources(self.home.path)
        issues, now = self.flow.home.issues, self.flow.clock()
        return admit(sessions, self.config.limits(), free, issues, expected, self.gates, now)

    async def _record(self, verdicts: Sequence[Verdict]) -> None:
        events = []
        for verdict in verdicts:
            facts = self.flow.sessions[verdict.session]
            if not verdict.reason:
                # Who lost his node before he was started is admitted again.
                moved = f":{facts.moves}" if facts.moves else ""
                key = f"admitted:{facts.id}:{facts.run}{moved}"
                events.append(self._event(e.SessionAdmitted(), facts.project, facts.id, key))
            elif verdict.reason != CHOOSING and (
                not same_reason(verdict.reason, facts.waiting_for) or verdict.turn != (facts.turn_since is not None)
            ):
                body = e.SessionWaiting(verdict.reason, verdict.turn)
                events.append(self._event(body, facts.project, facts.id, uuid.uuid4().hex))
        if events:
            await self.flow.append(*events)
        if any(verdict.reason for verdict in verdicts):
            self._look_later()

    def _look_later(self) -> None:
        if self._again:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN, self.look)

    def _event(self, body: e.Body, project: str, session: str, key: str) -> Event:
        return Event(body, self.flow.clock(), "scheduler", key, project, session)


def _matters(change: Change) -> bool:
    """May it make room, or somebody wait?"""
    body = change.event.body
    if isinstance(body, _CHATTER):
        return False
    if isinstance(body, e.AgentActivity) and change.before and change.after:
        return holds_slot(change.before) != holds_slot(change.after)
    return change.after is not change.before or isinstance(body, e.IssueChanged | e.IssuePlanned)


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
