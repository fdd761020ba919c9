"""Those that come after something that ended without landing: they wait, and a person is asked, once, whether they go on.

The question is an offer of the session that waits: `ao answer S --allow` starts it all the same, `--deny` stops it. When what it comes
after is brought back, the question is taken back; when that lands, all goes on by itself. Issues that come after another one have no
session yet to ask for: there a person is told what they wait for.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import ended_before, how_it_ended
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Offer, SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_of
from agent_orchestrator.core.issue_work import works_on
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED, Issue
from agent_orchestrator.errors import AoError

RULE = "dependencies"
"""Whose offer it is."""

Told = Callable[[str, e.Notified], e.Body]

log = structlog.get_logger()


class Dependents:
    """Asks for those that wait for something that does not come."""

    def __init__(self, flow: Flow, told: Told) -> None:
        self.flow = flow
        self.told = told
        """What a person is told may have to wait."""
        self._after: dict[str, list[str]] = {}
        """Session → those that come after it."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look at what ended while nobody looked, and at what ends."""
        for facts in self.flow.sessions.values():
            self._learn(facts)
        self.flow.on_change.append(self._on_change)
        self._look([*self.flow.sessions.values()])

    def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()

    def _learn(self, facts: SessionFacts) -> None:
        for other in facts.spec.after:
            self._after.setdefault(other, []).append(facts.id)

    def _on_change(self, changes: Sequence[Change]) -> None:
        changed: dict[str, SessionFacts] = {}
        for change in changes:
            before, after = change.before, change.after
            if after is None or after is before:
                continue
            if before is None:
                self._learn(after)
            if before is None or _end(before) != _end(after) or before.admitted != after.admitted:
                changed[after.id] = after
        if changed:
            self._look([*changed.values()])

    def _look(self, changed: Sequence[SessionFacts]) -> None:
        pairs = {(name, one.id): None for one in changed for name in self._after.get(one.id, ())}
        pairs |= {(one.id, other): None for one in changed for other in one.spec.after if not one.admitted}
        events = [event for name, other in pairs for event in self._of_session(name, other)]
        events += [event for one in changed for event in self._of_issue(one)]
        if events:
            task = asyncio.get_running_loop().create_task(self._tell(events))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, events: Sequence[Event]) -> None:
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("a question could not be recorded; it is at the next start", error=str(error))

    def _of_session(self, name: str, before: str) -> list[Event]:
        """Ask for a session, or take back what was asked."""
        facts, other = self.flow.sessions[name], self.flow.sessions.get(before)
        if other is None:
            return []
        waits = not facts.admitted and facts.wanted == "run" and not facts.stopped
        why = ended_before(facts, other) if waits and not self._comes_back(other) else ""
        asked = [one for one in facts.offers if one.trigger == DEPENDENCY_ENDED and one.event.get("other") == before]
        if why and not asked:
            return self._ask(facts, other, why)
        return [] if why else [self._withdrawn(facts, one) for one in asked]

    def _ask(self, facts: SessionFacts, other: SessionFacts, why: str) -> list[Event]:
        occurrence = f"{facts.run}:{other.id}:{other.run}:{other.generation}:{why}"
        name = hashlib.sha256(f"{facts.id}:{occurrence}".encode()).hexdigest()[:16]
        text = f"{why}; {facts.id} comes after it and waits"
        choice = "Allowed, it starts all the same; denied, it is stopped."
        offer = e.ActionOffered(
            f"o-{name}", RULE, DEPENDENCY_ENDED, occurrence, "start", f"{text}\n{choice}", event={"other": other.id}
        )
        answer = f"start it all the same: ao answer {facts.id} --allow; stop it: ao answer {facts.id} --deny"
        more = f"; or bring back what it waits for: ao restore {other.id}"
        notice = e.Notified(DEPENDENCY_ENDED, f"{facts.id}: {why}", f"{text}; {answer}{more}", "action")
        return [
            self._event(offer, facts.project, facts.id, f"offer:{offer.offer}"),
            self._event(self.told(facts.project, notice), facts.project, facts.id, f"offer:{offer.offer}:told"),
        ]

    def _withdrawn(self, facts: SessionFacts, offer: Offer) -> Event:
        return self._event(e.OfferWithdrawn(offer.id), facts.project, facts.id, f"offer:{offer.id}:withdrawn")

    def _of_issue(self, facts: SessionFacts) -> list[Event]:
        """Issues that come after one whose attempt ended without landing."""
        issues, why = self.flow.home.issues, how_it_ended(facts)
        issue = issue_of(issues, facts.project, facts.spec.issue) if why else None
        if issue is None or issue.state != "open" or self._comes_back(facts) or self._another(issue, facts):
            return []
        behind = [
            one.name
            for one in issues.values()
            if one.project == issue.project and one.state == "open" and issue.number in one.after
        ]
        if not behind:
            return []
        waits = f"issue {', '.join(behind)} wait{'s' if len(behind) == 1 else ''} for issue {issue.name}"
        again = f"ao restore {facts.id}, or ao new {issue.name}"
        what = f"{why}; {waits}. Try again: {again}. Let them go on without: ao issue close {issue.name}"
        notice = e.Notified(DEPENDENCY_ENDED, f"{facts.id}: {waits}", what, "action")
        key = f"behind:{facts.id}:{facts.run}:{facts.generation}:{hashlib.sha256(why.encode()).hexdigest()[:8]}"
        return [self._event(self.told(facts.project, notice), facts.project, facts.id, key)]

    def _another(self, issue: Issue, facts: SessionFacts) -> bool:
        others = (one for one in self.flow.sessions.values() if one.id != facts.id)
        return works_on(issue, others) is not None

    def _comes_back(self, facts: SessionFacts) -> bool:
        """A rule starts its agent again by itself."""
        if facts.stopped or facts.failure is not None or facts.wanted == "stop":
            return False
        episode = facts.episodes.get("agent-exited")
        if episode is not None and episode.escalated:
            return False
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return any(one.trigger == "agent-exited" and one.action == "restart" and one.auto for one in rules)

    def _event(self, body: e.Body, project: str, session: str, key: str) -> Event:
        return Event(body, self.flow.clock(), "scheduler", key, project, session)


def _end(facts: SessionFacts) -> tuple[str, bool]:
    """What of a session others look at; and whether a rule has given up on it."""
    episode = facts.episodes.get("agent-exited")
    return how_it_ended(facts), episode is not None and episode.escalated
