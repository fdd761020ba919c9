"""Start waiting sessions: asks `start_decision.py` for verdicts whenever something changed that they depend on, and records them.

Look here if a session is not started although it could be.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.signals import AccountsReviewed, ConfigurationReloaded, NodesChanged
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.start_decision import (
    CHOOSING_NODE_REASON,
    FreeResources,
    StartDecision,
    StartGate,
    decide_starts,
    holds_slot,
    is_same_reason,
    list_waiting,
)
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.part import Core, Part

log = structlog.get_logger()

ExpectedFiles = Callable[[Sequence[SessionFacts]], Awaitable[Mapping[str, frozenset[str]]]]
"""Takes sessions; returns session id → the files that the session is expected to change."""

RECHECK_SECONDS = 15.0
"""Seconds after which memory and disk space are checked again if a session waits."""

_IRRELEVANT_EVENTS = (
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
"""Events that cannot let another session start."""


class Admission(Part):
    """Starts sessions when the limits and the machine allow it."""

    def __init__(self, core: Core, expected: ExpectedFiles, gates: Sequence[StartGate]) -> None:
        """`gates` are further conditions that may delay a start."""
        super().__init__(core)
        self.expected = expected
        self.gates = (*gates, self._trust_gate)
        self._is_due = False
        self._decision_lock = asyncio.Lock()
        self._expected_files: Mapping[str, frozenset[str]] = {}
        """Session id → the files that it was expected to change when that was last asked for."""
        self._check_timer: Timer | None = None
        for kind in (ConfigurationReloaded, NodesChanged, AccountsReviewed):
            self.on_signal(kind, lambda _signal: self.schedule_check())

    def start(self) -> None:
        """Check the waiting sessions now and after every relevant change."""
        self.on(self._check_changed)
        self.schedule_check()

    async def close(self) -> None:
        """Stop checking."""
        if self._check_timer:
            self._check_timer.cancel()
        await super().close()

    def schedule_check(self) -> None:
        """Schedule a check of the waiting sessions; several calls before it runs cause one check."""
        if not self._is_due and any(
            not session.admitted and session.requested_state == "run" for session in self.flow.sessions.values()
        ):
            self._is_due = True
            self.spawn(self._decide())

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Schedule a check if one of the changes may let a session start or wait."""
        if any(_affects_admission(change) for change in changes):
            self.schedule_check()

    def _trust_gate(self, facts: SessionFacts, _others: Sequence[SessionFacts]) -> str:
        """Return that a session waits for trust in its configuration, or ""."""
        untrusted = self.core.projects.untrusted_use(facts)
        return f"your trust in its configuration ({untrusted}): ao trust" if untrusted else ""

    async def _decide(self) -> None:
        """Decide and record which sessions start."""
        async with self._decision_lock:  # two decisions at the same time would assign the same slot twice
            self._is_due = False
            try:
                await self._record(await self.decide_starts())
            except (AoError, OSError) as error:
                log.warning("nobody could be let start; it is tried again", error=str(error))
                self._check_later()

    async def decide_starts(self) -> list[StartDecision]:
        """Return a verdict for each waiting session.

        The expected files are asked for only if some sessions may start and others wait for their turn: only then they matter.
        """
        verdicts = self._admit(self._expected_files)
        if len({bool(verdict.reason) for verdict in verdicts if verdict.waits_for_turn or not verdict.reason}) < 2:
            return verdicts
        sessions = list(self.flow.sessions.values())
        working = [facts for facts in sessions if holds_slot(facts)]
        self._expected_files = await self.expected([*list_waiting(sessions), *working])
        return self._admit(self._expected_files)

    def _admit(self, expected: Mapping[str, frozenset[str]]) -> list[StartDecision]:
        """Return the verdicts, given the files that sessions are expected to change."""
        sessions, free_resources = list(self.flow.sessions.values()), measure_free_resources(self.home.path)
        issues, now = self.flow.home.issues, self.clock()
        return decide_starts(
            sessions, self.core.config.parallel_limits(), free_resources, issues, expected, self.gates, now
        )

    async def _record(self, verdicts: Sequence[StartDecision]) -> None:
        """Append the events for sessions that may start or whose reason to wait changed."""
        events = []
        for verdict in verdicts:
            facts = self.flow.sessions[verdict.session]
            if not verdict.reason:
                # A session whose node was lost before the start is admitted again, so its key differs.
                move_suffix = f":{facts.moves}" if facts.moves else ""
                key = f"admitted:{facts.id}:{facts.run}{move_suffix}"
                events.append(self._event(e.SessionAdmitted(), facts.project, facts.id, key))
            elif verdict.reason != CHOOSING_NODE_REASON and (
                not is_same_reason(verdict.reason, facts.waiting_for)
                or verdict.waits_for_turn != (facts.slot_wait_since is not None)
            ):
                body = e.SessionWaiting(verdict.reason, verdict.waits_for_turn)
                events.append(self._event(body, facts.project, facts.id, uuid.uuid4().hex))
        if events:
            await self.flow.append(*events)
        if any(verdict.reason for verdict in verdicts):
            self._check_later()

    def _check_later(self) -> None:
        """Schedule a check after `RECHECK_SECONDS`."""
        if self._check_timer:
            self._check_timer.cancel()
        self._check_timer = self.clock.call_later(RECHECK_SECONDS, self.schedule_check)

    def _event(self, body: e.Body, project: str, session: str, key: str) -> Event:
        """Return an event of the scheduler."""
        return Event(body, self.clock(), "scheduler", key, project, session)


def _affects_admission(change: FactsChange) -> bool:
    """Return whether a change may let a session start, or make one wait."""
    body = change.event.body
    if isinstance(body, _IRRELEVANT_EVENTS):
        return False
    if isinstance(body, e.AgentActivity) and change.before and change.after:
        return holds_slot(change.before) != holds_slot(change.after)
    return change.after is not change.before or isinstance(body, e.IssueChanged | e.IssuePlanned)


def measure_free_resources(folder: Path) -> FreeResources:
    """Return the free memory and disk space of this machine, in bytes."""
    return FreeResources(_free_memory(), shutil.disk_usage(folder).free)


def _free_memory() -> int:
    """Return the free memory in bytes: Linux's estimate, else all memory, else a number that never limits a start."""
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
