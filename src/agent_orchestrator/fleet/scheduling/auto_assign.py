"""Take issues automatically: if `autoAssign` is on, or an applied plan says so, take each issue that the backlog shows as ready.

Each issue is taken once: its session is created under the issue's own key, so neither a restart nor a second check creates another one.
Further attempts are started by a person. An issue that could not be taken is retried, after a longer pause each time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from agent_orchestrator.config.projects.projects import NOWHERE
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import is_past
from agent_orchestrator.core.outbox import pause
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.assignment import Entry
from agent_orchestrator.fleet.scheduling.backlog import Backlog
from agent_orchestrator.fleet.scheduling.slots import holds_slot
from agent_orchestrator.sessions.sessions import Sessions

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds after which an issue that could not be taken is retried: the first and the longest pause. It doubles, with random variation."""

Told = Callable[[str, e.Notified], e.Body]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why an issue could not be taken, and until when it is not retried."""

    reason: str
    until: float
    attempts: int


class Assigning:
    """Takes issues automatically when the limits allow it."""

    def __init__(self, flow: Flow, backlog: Backlog, sessions: Sessions, told: Told) -> None:
        self.flow = flow
        self.backlog = backlog
        self.sessions = sessions
        self.told = told
        """Turns a notification for a person into an event, which may delay it."""
        self._refusals: dict[str, _Refusal] = {}
        self._task: asyncio.Task[None] | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_running = False
        backlog.refused = self.refused

    def start(self) -> None:
        """Check the backlog now, and whenever an issue or a session changes."""
        self._is_running = True
        self.flow.on_change.append(self._on_change)
        self.look()

    def close(self) -> None:
        """Take no more issues."""
        self._is_running = False
        for pending in (self._check_timer, self._task):
            if pending is not None:
                pending.cancel()

    def reload(self) -> None:
        """Retry all issues, because the configuration has changed."""
        self._refusals.clear()
        self.look()

    def refused(self) -> Mapping[str, str]:
        """Return issue key → why the issue could not be taken, until it is retried."""
        now = self.flow.clock()
        return {
            key: f"it could not be taken: {refusal.reason}; tried again at {rfc3339(refusal.until)}"
            for key, refusal in self._refusals.items()
            if refusal.until > now
        }

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Check the backlog if one of the changes may free a slot or an issue."""
        if any(_affects_backlog(change) for change in changes):
            self.look()

    def look(self) -> None:
        """Schedule a check of the backlog; several calls before it runs cause one check."""
        self._is_due = True
        if self._is_running and self._task is None and self._has_automatic_issues():
            self._task = asyncio.get_running_loop().create_task(self._take_ready_issues())

    def _has_automatic_issues(self) -> bool:
        """Return whether any issue may be taken automatically."""
        if any(project.auto_assign for project in self.backlog.config.projects()):
            return True
        issues = self.flow.home.issues.values()
        return any(issue.planned is not None and issue.planned.start and issue.state == "open" for issue in issues)

    async def _take_ready_issues(self) -> None:
        """Take all issues that are ready, until nothing has changed meanwhile."""
        try:
            while self._is_due:
                self._is_due = False
                entries = [entry for entry in self.backlog.entries(None) if entry.ready and not entry.asked]
                for entry in entries:
                    await self._take_issue(entry)
        finally:
            self._task = None

    async def _take_issue(self, entry: Entry) -> None:
        """Create the session of an issue; if that fails, schedule another attempt and notify a person if necessary."""
        issue = entry.issue
        key = issue_key(issue.project, issue.number)
        try:
            await self.sessions.create(self._request(entry), f"auto:{issue.project}:{issue.number}", NOWHERE)
            self._refusals.pop(key, None)
        except AoError as error:
            log.warning("an issue could not be taken", project=issue.project, issue=issue.name, error=str(error))
            earlier_refusal = self._refusals.get(key)
            attempts = earlier_refusal.attempts + 1 if earlier_refusal else 1
            delay = pause(attempts - 1, FIRST_PAUSE, LONGEST_PAUSE)
            self._refusals[key] = _Refusal(str(error), self.flow.clock() + delay, attempts)
            self._is_due = True  # its slot is free for another issue
            self._schedule_check(delay)
            if not error.retryable or attempts > 1:
                await self._notify(entry, error)

    def _request(self, entry: Entry) -> dict[str, Any]:
        """Return the request that creates the session of an issue."""
        issue, planned = entry.issue, entry.issue.planned
        request = {"projectId": issue.project, "issue": issue.name, "agent": entry.taker}
        if entry.parent:
            request["parent"] = entry.parent
        if planned is None:
            return request
        plan = self.flow.home.plans.get(planned.plan)
        group = {"group": planned.plan, "groupLimit": plan.group_limit if plan else 0}
        return {**request, **group, "priority": planned.priority}

    def _schedule_check(self, delay: float) -> None:
        """Schedule a check after some seconds, or earlier if one is already scheduled earlier."""
        loop = asyncio.get_running_loop()
        if (
            self._check_timer is not None
            and not self._check_timer.cancelled()
            and self._check_timer.when() > loop.time()
        ):
            delay = min(delay, self._check_timer.when() - loop.time())
            self._check_timer.cancel()
        self._check_timer = loop.call_later(delay, self.look)

    async def _notify(self, entry: Entry, error: AoError) -> None:
        """Notify a person that an issue could not be taken, once for each reason."""
        issue, reason = entry.issue, str(error)
        text = f"{reason}; it is tried again, or take it yourself: ao new {issue.name} --agent A"
        notice = e.Notified("issue-refused", f"issue {issue.name}: {entry.taker} could not take it", text, "warning")
        reason_hash = hashlib.sha256(reason.encode()).hexdigest()[:16]
        key = f"refused:{issue.project}:{issue.number}:{reason_hash}"
        body = self.told(issue.project, notice)
        await self.flow.append(Event(body, self.flow.clock(), "scheduler", key, issue.project))


_ISSUE_EVENTS = (e.IssueOpened, e.IssueChanged, e.IssuePlanned, e.LabelAdded, e.LabelRemoved)


def _affects_backlog(change: Change) -> bool:
    """Return whether a change may free a slot or an issue."""
    before, after = change.before, change.after
    if isinstance(change.event.body, _ISSUE_EVENTS):
        return True
    return after is not None and after is not before and (before is None or _slot_state(before) != _slot_state(after))


def _slot_state(facts: SessionFacts) -> tuple[bool, ...]:
    """Return the parts of a session's state that decide whether it uses a slot or an issue."""
    return holds_slot(facts), is_past(facts), facts.admitted, facts.turn_since is None, bool(facts.waiting_for)
