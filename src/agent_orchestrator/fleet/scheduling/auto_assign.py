"""Take issues automatically: if `autoAssign` is on, or an applied plan says so, take each issue that the backlog shows as ready.

Each issue is taken once: its session is created under the issue's own key, so neither a restart nor a second check creates another one.
Further attempts are started by a person. An issue that could not be taken is retried, after a longer pause each time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import structlog

from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import is_stopped_or_closed
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.core.outbox import retry_pause
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.backlog import Backlog, Refusal
from agent_orchestrator.fleet.scheduling.issue_assignment import AssignmentEntry
from agent_orchestrator.fleet.scheduling.start_decision import holds_slot
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.sessions import Sessions

MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 10.0, 600.0
"""Seconds after which an issue that could not be taken is retried: the first and the longest pause. It doubles, with random variation."""

log = structlog.get_logger()


class AutoAssigner(Part):
    """Takes issues automatically when the limits allow it."""

    def __init__(self, core: Core, backlog: Backlog, sessions: Sessions, notices: NoticeGate) -> None:
        super().__init__(core)
        self.backlog = backlog
        self.sessions = sessions
        self._notices = notices
        self._task: asyncio.Task[None] | None = None
        self._check_timer: Timer | None = None
        self._check_due = 0.0
        self._is_due = False
        self._is_running = False
        self.on_signal(ConfigurationReloaded, self._retry_all)

    def start(self) -> None:
        """Check the backlog now, and whenever an issue or a session changes."""
        self._is_running = True
        self.on(self._check_changed)
        self.schedule_check()

    async def close(self) -> None:
        """Take no more issues."""
        self._is_running = False
        if self._check_timer is not None:
            self._check_timer.cancel()
        await super().close()

    def _retry_all(self, _signal: ConfigurationReloaded) -> None:
        """Retry all issues, because the configuration has changed."""
        self.backlog.refusals.clear()
        self.schedule_check()

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Check the backlog if one of the changes may free a slot or an issue."""
        if any(_affects_backlog(change) for change in changes):
            self.schedule_check()

    def schedule_check(self) -> None:
        """Schedule a check of the backlog; several calls before it runs cause one check."""
        self._is_due = True
        if self._is_running and self._task is None and self._has_automatic_issues():
            self._task = self.spawn(self._take_ready_issues())

    def _has_automatic_issues(self) -> bool:
        """Return whether any issue may be taken automatically."""
        if any(project.auto_assign for project in self.backlog.config.projects()):
            return True
        issues = self.flow.home.issues.values()
        return any(
            issue.plan_entry is not None and issue.plan_entry.start and issue.state == "open" for issue in issues
        )

    async def _take_ready_issues(self) -> None:
        """Take all issues that are ready, until nothing has changed meanwhile."""
        try:
            while self._is_due:
                self._is_due = False
                entries = [entry for entry in self.backlog.entries(None) if entry.is_ready and not entry.is_requested]
                for entry in entries:
                    await self._take_issue(entry)
        finally:
            self._task = None

    async def _take_issue(self, entry: AssignmentEntry) -> None:
        """Create the session of an issue; if that fails, schedule another attempt and notify a person if necessary."""
        issue = entry.issue
        key = issue_key(issue.project, issue.number)
        try:
            await self.sessions.create(self._request(entry), f"auto:{issue.project}:{issue.number}", NO_CONTEXT)
            self.backlog.refusals.pop(key, None)
        except AoError as error:
            log.warning("an issue could not be taken", project=issue.project, issue=issue.name, error=str(error))
            earlier_refusal = self.backlog.refusals.get(key)
            attempts = earlier_refusal.attempts + 1 if earlier_refusal else 1
            delay = retry_pause(attempts - 1, MIN_RETRY_SECONDS, MAX_RETRY_SECONDS)
            self.backlog.refusals[key] = Refusal(str(error), self.clock() + delay, attempts)
            self._is_due = True  # its slot is free for another issue
            self._check_later(delay)
            if not error.retryable or attempts > 1:
                await self._notify(entry, error)

    def _request(self, entry: AssignmentEntry) -> NewSession:
        """Return the request that creates the session of an issue."""
        issue, planned = entry.issue, entry.issue.plan_entry
        request = NewSession(project=issue.project, issue=issue.name, agent=entry.taker, parent=entry.parent or None)
        if planned is None:
            return request
        plan = self.flow.home.plans.get(planned.plan)
        group_limit = plan.group_limit if plan else 0
        return replace(request, group=planned.plan, group_limit=group_limit, priority=planned.priority)

    def _check_later(self, delay: float) -> None:
        """Schedule a check after some seconds, or earlier if one is already scheduled earlier."""
        due = self.clock() + delay
        if self._check_timer is not None:
            self._check_timer.cancel()
            due = min(due, self._check_due) if self._check_due > self.clock() else due
        self._check_due = due
        self._check_timer = self.clock.call_later(due - self.clock(), self.schedule_check)

    async def _notify(self, entry: AssignmentEntry, error: AoError) -> None:
        """Notify a person that an issue could not be taken, once for each reason."""
        issue, reason = entry.issue, str(error)
        text = f"{reason}; it is tried again, or take it yourself: ao new {issue.name} --agent A"
        notice = e.Notified("issue-refused", f"issue {issue.name}: {entry.taker} could not take it", text, "warning")
        reason_hash = hashlib.sha256(reason.encode()).hexdigest()[:16]
        key = f"refused:{issue.project}:{issue.number}:{reason_hash}"
        body = self._notices(issue.project, notice)
        await self.flow.append(Event(body, self.clock(), "scheduler", key, issue.project))


_ISSUE_EVENTS = (e.IssueOpened, e.IssueChanged, e.IssuePlanned, e.LabelAdded, e.LabelRemoved)


def _affects_backlog(change: FactsChange) -> bool:
    """Return whether a change may free a slot or an issue."""
    before, after = change.before, change.after
    if isinstance(change.event.body, _ISSUE_EVENTS):
        return True
    return after is not None and after is not before and (before is None or _slot_state(before) != _slot_state(after))


def _slot_state(facts: SessionFacts) -> tuple[bool, ...]:
    """Return the parts of a session's state that decide whether it uses a slot or an issue."""
    return (
        holds_slot(facts),
        is_stopped_or_closed(facts),
        facts.admitted,
        facts.slot_wait_since is None,
        bool(facts.waiting_for),
    )
