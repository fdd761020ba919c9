"""Handle sessions that depend on something that ended without being merged: they wait, and a person is asked once whether they continue.

The question is an offer of the waiting session: `ao answer S --allow` starts it anyway, `--deny` stops it. If the dependency is restored,
the question is withdrawn; if its change is then merged, the waiting session starts automatically. Issues that depend on another one have
no session yet that could ask; for these a person is notified of what they wait for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import decision_reason, failure_text, session_working_on
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Offer, SessionFacts
from agent_orchestrator.core.fold.issues import issue_of
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core, Part

RULE = "dependencies"
"""The rule under which the offers are recorded."""

log = structlog.get_logger()


class DependencyOffers(Part):
    """Asks about sessions and issues that wait for something which has ended."""

    def __init__(self, core: Core, notices: NoticeGate) -> None:
        super().__init__(core)
        self._notices = notices
        self._dependents: dict[str, list[str]] = {}
        """Session id → the sessions that depend on it."""

    def start(self) -> None:
        """Check all sessions now, because some may have ended while the daemon was stopped, and each one that ends later."""
        for facts in self.flow.sessions.values():
            self._index_dependents(facts)
        self.on(self._check_changed)
        self._check_dependents([*self.flow.sessions.values()])

    def _index_dependents(self, facts: SessionFacts) -> None:
        """Remember which sessions a session depends on."""
        for dependency in facts.spec.after:
            self._dependents.setdefault(dependency, []).append(facts.id)

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Check the sessions that are new, ended, or were admitted."""
        changed: dict[str, SessionFacts] = {}
        for change in changes:
            before, after = change.before, change.after
            if after is None or after is before:
                continue
            if before is None:
                self._index_dependents(after)
            if before is None or _end_state(before) != _end_state(after) or before.admitted != after.admitted:
                changed[after.id] = after
        if changed:
            self._check_dependents([*changed.values()])

    def _check_dependents(self, changed: Sequence[SessionFacts]) -> None:
        """Record the questions and notifications that these sessions cause, as dependents and as dependencies."""
        pairs = {(name, session.id): None for session in changed for name in self._dependents.get(session.id, ())}
        pairs |= {
            (session.id, dependency): None
            for session in changed
            for dependency in session.spec.after
            if not session.admitted
        }
        events = [event for name, dependency in pairs for event in self._events_for_session(name, dependency)]
        events += [event for session in changed for event in self._events_for_issue(session)]
        if events:
            self.spawn(self._record(events))

    async def _record(self, events: Sequence[Event]) -> None:
        """Append events; a failure is logged, and they are decided again at the next start."""
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("a question could not be recorded; it is at the next start", error=str(error))

    def _events_for_session(self, session_id: str, dependency_id: str) -> list[Event]:
        """Return the events that ask whether a session continues, or that withdraw the question."""
        facts, dependency = self.flow.sessions[session_id], self.flow.sessions.get(dependency_id)
        if dependency is None:
            return []
        is_waiting = not facts.admitted and facts.requested_state == "run" and not facts.stopped
        why = decision_reason(facts, dependency) if is_waiting and not self._is_restarted_by_rule(dependency) else ""
        offers = [
            offer
            for offer in facts.offers
            if offer.trigger == DEPENDENCY_ENDED and offer.event.get("other") == dependency_id
        ]
        if why and not offers:
            return self._offer_events(facts, dependency, why)
        return [] if why else [self._withdrawal(facts, offer) for offer in offers]

    def _offer_events(self, facts: SessionFacts, dependency: SessionFacts, why: str) -> list[Event]:
        """Return the offer that starts or stops a session, and the notification of it."""
        occurrence = f"{facts.run}:{dependency.id}:{dependency.run}:{dependency.generation}:{why}"
        offer_hash = hashlib.sha256(f"{facts.id}:{occurrence}".encode()).hexdigest()[:16]
        text = f"{why}; {facts.id} comes after it and waits"
        choice = "Allowed, it starts all the same; denied, it is stopped."
        offer = e.ActionOffered(
            f"o-{offer_hash}",
            RULE,
            DEPENDENCY_ENDED,
            occurrence,
            "start",
            f"{text}\n{choice}",
            event={"other": dependency.id},
        )
        answer = f"start it all the same: ao answer {facts.id} --allow; stop it: ao answer {facts.id} --deny"
        restore_hint = f"; or bring back what it waits for: ao restore {dependency.id}"
        notice = e.Notified(DEPENDENCY_ENDED, f"{facts.id}: {why}", f"{text}; {answer}{restore_hint}", "action")
        return [
            self._event(offer, facts.project, facts.id, f"offer:{offer.offer}"),
            self._event(self._notices(facts.project, notice), facts.project, facts.id, f"offer:{offer.offer}:told"),
        ]

    def _withdrawal(self, facts: SessionFacts, offer: Offer) -> Event:
        """Return the event that withdraws an offer."""
        return self._event(e.OfferWithdrawn(offer.id), facts.project, facts.id, f"offer:{offer.id}:withdrawn")

    def _events_for_issue(self, facts: SessionFacts) -> list[Event]:
        """Return the notification for issues that depend on one whose attempt ended without being merged."""
        issues, why = self.flow.home.issues, failure_text(facts)
        issue = issue_of(issues, facts.project, facts.spec.issue) if why else None
        if (
            issue is None
            or issue.state != "open"
            or self._is_restarted_by_rule(facts)
            or self._has_other_session(issue, facts)
        ):
            return []
        waiting_issues = [
            other_issue.name
            for other_issue in issues.values()
            if other_issue.project == issue.project
            and other_issue.state == "open"
            and issue.number in other_issue.after
        ]
        if not waiting_issues:
            return []
        wait_text = (
            f"issue {', '.join(waiting_issues)} wait{'s' if len(waiting_issues) == 1 else ''} for issue {issue.name}"
        )
        retry_commands = f"ao restore {facts.id}, or ao new {issue.name}"
        text = f"{why}; {wait_text}. Try again: {retry_commands}. Let them go on without: ao issue close {issue.name}"
        notice = e.Notified(DEPENDENCY_ENDED, f"{facts.id}: {wait_text}", text, "action")
        key = f"behind:{facts.id}:{facts.run}:{facts.generation}:{hashlib.sha256(why.encode()).hexdigest()[:8]}"
        return [self._event(self._notices(facts.project, notice), facts.project, facts.id, key)]

    def _has_other_session(self, issue: Issue, facts: SessionFacts) -> bool:
        """Return whether another session works on an issue."""
        other_sessions = (session for session in self.flow.sessions.values() if session.id != facts.id)
        return session_working_on(issue, other_sessions) is not None

    def _is_restarted_by_rule(self, facts: SessionFacts) -> bool:
        """Return whether a rule restarts the session's agent automatically."""
        if facts.stopped or facts.failure is not None or facts.requested_state == "stop":
            return False
        episode = facts.episodes.get("agent-exited")
        if episode is not None and episode.escalated:
            return False
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return any(rule.trigger == "agent-exited" and rule.action == "restart" and rule.auto for rule in rules)

    def _event(self, body: e.Body, project: str, session: str, key: str) -> Event:
        """Return an event of the scheduler."""
        return Event(body, self.clock(), "scheduler", key, project, session)


def _end_state(facts: SessionFacts) -> tuple[str, bool]:
    """Return how a session ended, and whether a rule has given up restarting it."""
    episode = facts.episodes.get("agent-exited")
    return failure_text(facts), episode is not None and episode.escalated
