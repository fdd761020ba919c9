"""Sessions as people and programs see them: derived from facts at the time of the request, the same for every interface."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import HomeFacts, Message, PredictedConflict, SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import CheckRun
from agent_orchestrator.core.rules.stuck_threshold import stuck_after_seconds
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES, Status, derive_status
from agent_orchestrator.sessions.part import Core, Part

PredictedConflicts = Mapping[str, PredictedConflict]
"""Another session → the conflict with it."""

MAX_FILES = 5
"""Maximum number of files that are named per conflict."""


@dataclass(frozen=True, slots=True)
class _CachedText:
    """A session's JSON text, and until when it is valid."""

    facts: SessionFacts
    conflicts: PredictedConflicts
    until: float
    text: str


class NotifierTroubles(Protocol):
    """Knows which notifiers do not work."""

    def troubles(self, project: str | None) -> list[dict[str, Any]]:
        """Return the notifiers of a project, or of all, that cannot send, as JSON."""
        ...


class SessionViews(Part):
    """Sessions as JSON. The text of a list is cached until something changes."""

    def __init__(self, core: Core, notifiers: NotifierTroubles) -> None:
        super().__init__(core)
        self._notifiers = notifiers
        self._texts: dict[str, _CachedText] = {}
        self._bodies: dict[str | None, tuple[float, bytes]] = {}
        self.on(self._clear_lists)
        self.on_signal(ConfigurationReloaded, self._clear)

    def status(self, facts: SessionFacts, now: float | None = None) -> Status:
        """Return a session's status now."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        status = derive_status(facts, self.clock() if now is None else now, stuck_after_seconds(rules))
        if (home := self.flow.owner_home(facts.id)) and not facts.stopped:
            status = replace(status, why=f"{status.why}; it lives in {home}, whose daemon is not the active one")
        return status

    def session(self, facts: SessionFacts) -> dict[str, Any]:
        """Return one session as JSON, always with all keys."""
        return session_json(facts, self.status(facts), self.conflicts_of(facts))

    def conflicts_of(self, facts: SessionFacts) -> PredictedConflicts:
        """Return the sessions that conflict with this one: older ones from its own facts, newer ones from theirs."""
        younger = {
            session.id: session.predicted_conflicts[facts.id]
            for session in self.flow.sessions.values()
            if facts.id in session.predicted_conflicts
        }
        return {**facts.predicted_conflicts, **younger}

    def list_json(self, project: str | None) -> bytes:
        """Return the list of all sessions, or of one project's, as JSON text."""
        now = self.clock()
        cached = self._bodies.get(project)
        if cached and now < cached[0]:
            return cached[1]
        sessions = [facts for facts in self.flow.sessions.values() if project in (None, facts.project)]
        conflicts = _conflicts_by_session(sessions)
        ordered = sorted(sessions, key=lambda facts: facts.created_at)
        texts = [self._text(facts, now, conflicts[facts.id]) for facts in ordered]
        unread = outages_json(self.flow.home, project)
        more = REDACTOR.redact_text(f', "unread": {json.dumps(unread, ensure_ascii=False)}') if unread else ""
        if untold := self._notifiers.troubles(project):
            more += REDACTOR.redact_text(f', "untold": {json.dumps(untold, ensure_ascii=False)}')
        body = f'{{"sessions": [{", ".join(entry.text for entry in texts)}]{more}}}'.encode()
        self._bodies[project] = (min((now + 3600.0, *(entry.until for entry in texts))), body)
        return body

    def _text(self, facts: SessionFacts, now: float, conflicts: PredictedConflicts) -> _CachedText:
        """Return a session's JSON text, created again only if its facts, its conflicts or, with time, its status changed."""
        cached = self._texts.get(facts.id)
        if cached is None or cached.facts is not facts or cached.conflicts != conflicts or now >= cached.until:
            text = REDACTOR.redact_text(
                json.dumps(session_json(facts, self.status(facts, now), conflicts), ensure_ascii=False)
            )
            cached = self._texts[facts.id] = _CachedText(
                facts, conflicts, self.next_status_change_at(facts, now) or inf, text
            )
        return cached

    def next_status_change_at(self, facts: SessionFacts, now: float) -> float | None:
        """Return when a session's status next changes by time alone, or None.

        Silence becomes "stuck", whose duration then grows, and a usage limit ends.
        """
        moments: list[float] = []
        if facts.limit_until:
            moments.append(facts.limit_until)
        if facts.live and facts.activity.state in IN_TURN_ACTIVITIES:
            last_report_at = max(facts.activity.at, facts.last_sign_at)
            stuck_at = last_report_at + stuck_after_seconds(self.flow.rules(facts.project, facts.spec.profile))
            moments += [stuck_at, now + 60.0 - (now - last_report_at) % 60.0] if stuck_at <= now else [stuck_at]
        return min((moment for moment in moments if moment > now), default=None)

    def _clear(self, _signal: ConfigurationReloaded) -> None:
        """Clear the caches, because rules or projects may have changed."""
        self._bodies.clear()
        self._texts.clear()

    def _clear_lists(self, _changes: Sequence[FactsChange]) -> None:
        """Clear the cached lists."""
        self._bodies.clear()


def _conflicts_by_session(sessions: Collection[SessionFacts]) -> dict[str, dict[str, PredictedConflict]]:
    """Return the conflicts of each of these sessions, in the order of `SessionViews.conflicts_of`."""
    conflicts = {facts.id: dict(facts.predicted_conflicts) for facts in sessions}
    for facts in sessions:
        for other, conflict in facts.predicted_conflicts.items():
            if other in conflicts:
                conflicts[other][facts.id] = conflict
    return conflicts


def outages_json(home: HomeFacts, project: str | None) -> list[dict[str, Any]]:
    """Return the forges and trackers that cannot be read, as JSON."""
    return [
        {
            "project": outage.project,
            "name": outage.name,
            "why": f"{outage.reason}: {outage.remedy}" if outage.remedy else outage.reason,
            "since": rfc3339(outage.since),
        }
        for outage in home.outages.values()
        if project in (None, outage.project)
    ]


def session_json(facts: SessionFacts, status: Status, met: PredictedConflicts) -> dict[str, Any]:
    """Return a session's facts and status in the format of the API."""
    launch, progress, usage, spec = facts.launch, facts.progress, facts.usage, facts.spec
    return {
        "id": facts.id,
        "name": facts.name,
        "project": facts.project,
        "task": spec.task,
        "kind": spec.kind,
        "title": spec.title,
        "status": status.name,
        "activity": facts.activity.state,
        "evidence": {"source": status.source, "at": rfc3339(status.at)},
        "column": status.column,
        "branch": facts.branch,
        "base": facts.base,
        "stack": spec.stack if facts.stacked else None,
        "head": facts.head,
        "workspacePath": facts.workspace.path if facts.workspace and facts.workspace.present else None,
        "agent": spec.agent,
        "profile": spec.profile,
        "runtime": spec.runtime,
        "node": facts.node,
        "pid": launch.handle.get("pid") if launch and not launch.ended else None,
        "exitCode": exit_code(facts),
        "issue": spec.issue,
        "pr": pr_json(facts),
        "progress": {
            "done": progress.done,
            "total": progress.total,
            "step": progress.step,
            "testsPassed": tests_passed(facts),
        },
        "usage": {"input": usage.input, "output": usage.output, "usd": usage.usd},
        "attempts": {trigger: episode.attempts for trigger, episode in facts.episodes.items()},
        "waitingFor": status.waiting_for,
        "held": len(facts.held_messages),
        "why": status.why,
        "collides": [
            {"session": other, "kind": conflict.kind, "files": list(conflict.files[:MAX_FILES])}
            for other, conflict in met.items()
        ],
        "notes": list(facts.notes),
        "lastOutput": launch.output or None if launch and launch.ended else None,
        "createdAt": rfc3339(facts.created_at),
        "updatedAt": rfc3339(facts.updated_at),
    }


def check_json(run: CheckRun) -> dict[str, Any]:
    """Return one check of a pull request in the format of the API."""
    url = run.url or (f"file://{run.log}" if run.log else None)
    return {
        "name": run.name,
        "state": run.state,
        "url": url,
        "onBase": run.is_known,
        "passed": run.passed,
        "failed": run.failed,
        "skipped": run.skipped,
        "new": len(run.new),
        "known": len(run.known),
        "reason": run.reason or run.dropped_tests_text or None,
    }


def tests_passed(facts: SessionFacts) -> int | None:
    """Return the number of passed tests from the checks of the newest commit, or else as the agent reported it."""
    runs = facts.pr.checks.values() if facts.pr else ()
    counts = [run.passed for run in runs if run.passed is not None and run.head == facts.head]
    return sum(counts) if counts else facts.progress.tests_passed


def pr_json(facts: SessionFacts) -> dict[str, Any] | None:
    """Return the pull request in the format of the API, or None."""
    pr, head = facts.pr, facts.head
    if pr is None:
        return None
    verdict = pr.verdict(head)
    return {
        "number": pr.number,
        "url": pr.url,
        "title": pr.title,
        "state": pr.shown_state,
        "head": head,
        "base": pr.base,
        "checks": [check_json(run) for run in pr.checks.values() if run.head == head],
        "review": "pending" if verdict == "none" and not pr.draft else verdict,
        "mergeable": pr.mergeability(head, facts.base_head),
    }


def exit_code(facts: SessionFacts) -> int | None:
    """Return the exit code as a shell shows it: 128 and the signal's number for a killed agent; None while it runs."""
    launch = facts.launch
    if launch is None or not launch.ended:
        return None
    return 128 + launch.signal if launch.signal else launch.code


def message_json(message: Message) -> dict[str, Any]:
    """Return a message and its delivery state as JSON."""
    return {
        "messageId": message.id,
        "state": message.state,
        "content": message.text,
        "sender": message.sender,
        "reason": message.reason or None,
        "createdAt": rfc3339(message.at),
        "deliveredAt": rfc3339(message.delivered_at) if message.delivered_at else None,
        "acknowledgedAt": rfc3339(message.acknowledged_at) if message.acknowledged_at else None,
    }
