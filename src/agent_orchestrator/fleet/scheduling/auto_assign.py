"""Taking issues by itself: where `autoAssign` is on, or an applied plan says so, whatever the backlog says may be taken now, is.

Each issue is taken once: the session that takes it is made under the issue's own key, so neither a restart nor a second look makes
another. Who wants another attempt asks for it. An issue that could not be taken is tried again after a while, longer each time.
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
"""Seconds after which an issue that could not be taken is tried again: doubling, spread at random."""

Told = Callable[[str, e.Notified], e.Body]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An issue that could not be taken."""

    reason: str
    until: float
    attempts: int


class Assigning:
    """Takes issues as there is room."""

    def __init__(self, flow: Flow, backlog: Backlog, sessions: Sessions, told: Told) -> None:
        self.flow = flow
        self.backlog = backlog
        self.sessions = sessions
        self.told = told
        """What a person is told may have to wait."""
        self._refusals: dict[str, _Refusal] = {}
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._due = False
        self._running = False
        backlog.refused = self.refused

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

    def reload(self) -> None:
        """The configuration changed: what could not be taken may be now."""
        self._refusals.clear()
        self.look()

    def refused(self) -> Mapping[str, str]:
        """Issue → why it could not be taken, until it is tried again."""
        now = self.flow.clock()
        return {
            key: f"it could not be taken: {one.reason}; tried again at {rfc3339(one.until)}"
            for key, one in self._refusals.items()
            if one.until > now
        }

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(_matters(change) for change in changes):
            self.look()

    def look(self) -> None:
        """Look at the backlog; calls that come together are one."""
        self._due = True
        if self._running and self._task is None and self._any_to_take():
            self._task = asyncio.get_running_loop().create_task(self._take())

    def _any_to_take(self) -> bool:
        if any(project.auto_assign for project in self.backlog.config.projects()):
            return True
        issues = self.flow.home.issues.values()
        return any(one.planned is not None and one.planned.start and one.state == "open" for one in issues)

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
        key = issue_key(issue.project, issue.number)
        try:
            await self.sessions.create(self._request(entry), f"auto:{issue.project}:{issue.number}", NOWHERE)
            self._refusals.pop(key, None)
        except AoError as error:
            log.warning("an issue could not be taken", project=issue.project, issue=issue.name, error=str(error))
            known = self._refusals.get(key)
            attempts = known.attempts + 1 if known else 1
            wait = pause(attempts - 1, FIRST_PAUSE, LONGEST_PAUSE)
            self._refusals[key] = _Refusal(str(error), self.flow.clock() + wait, attempts)
            self._due = True  # its place is free for another one
            self._look_in(wait)
            if not error.retryable or attempts > 1:
                await self._tell(entry, error)

    def _request(self, entry: Entry) -> dict[str, Any]:
        issue, planned = entry.issue, entry.issue.planned
        wanted = {"projectId": issue.project, "issue": issue.name, "agent": entry.taker}
        if entry.parent:
            wanted["parent"] = entry.parent
        if planned is None:
            return wanted
        made = self.flow.home.plans.get(planned.plan)
        group = {"group": planned.plan, "groupLimit": made.group_limit if made else 0}
        return {**wanted, **group, "priority": planned.priority}

    def _look_in(self, wait: float) -> None:
        """Look again when the next one may be tried."""
        loop = asyncio.get_running_loop()
        if self._again is not None and not self._again.cancelled() and self._again.when() > loop.time():
            wait = min(wait, self._again.when() - loop.time())
            self._again.cancel()
        self._again = loop.call_later(wait, self.look)

    async def _tell(self, entry: Entry, error: AoError) -> None:
        """Once for each reason: somebody must do something about it."""
        issue, reason = entry.issue, str(error)
        what = f"{reason}; it is tried again, or take it yourself: ao new {issue.name} --agent A"
        notice = e.Notified("issue-refused", f"issue {issue.name}: {entry.taker} could not take it", what, "warning")
        name = hashlib.sha256(reason.encode()).hexdigest()[:16]
        key = f"refused:{issue.project}:{issue.number}:{name}"
        body = self.told(issue.project, notice)
        await self.flow.append(Event(body, self.flow.clock(), "scheduler", key, issue.project))


_OF_ISSUES = (e.IssueOpened, e.IssueChanged, e.IssuePlanned, e.LabelAdded, e.LabelRemoved)


def _matters(change: Change) -> bool:
    """May it free a place, or an issue?"""
    before, after = change.before, change.after
    if isinstance(change.event.body, _OF_ISSUES):
        return True
    return after is not None and after is not before and (before is None or _place(before) != _place(after))


def _place(facts: SessionFacts) -> tuple[bool, ...]:
    return holds_slot(facts), is_past(facts), facts.admitted, facts.turn_since is None, bool(facts.waiting_for)
