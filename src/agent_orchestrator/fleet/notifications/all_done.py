"""Reports once, when every session of a project is done, how each of them ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import is_over
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Part

log = structlog.get_logger()


class CompletionReporter(Part):
    """Records the event that all sessions of a project are done."""

    def start(self) -> None:
        """Check whenever a session is done."""
        self.on(self._check_ended)

    def _check_ended(self, changes: Sequence[FactsChange]) -> None:
        ended_sessions = {
            change.after.project: change.after
            for change in changes
            if change.after and is_over(change.after) and not (change.before and is_over(change.before))
        }
        for last in ended_sessions.values():
            if event := self._completion_event(last):
                self.spawn(self._record(event))

    def _completion_event(self, last: SessionFacts) -> Event | None:
        project_sessions = {facts.id: facts for facts in self.flow.sessions.values() if facts.project == last.project}
        body = all_complete_event(project_sessions, self.flow.home.completed_sessions.get(last.project, ()))
        if body is None:
            return None
        runs = ",".join(f"{name}:{project_sessions[name].run}" for name in sorted(project_sessions))
        key = f"all-complete:{last.project}:{hashlib.sha256(runs.encode()).hexdigest()[:16]}"
        return Event(body, self.clock(), "daemon", key, last.project, last.id)

    async def _record(self, event: Event) -> None:
        try:
            await self.flow.append(event)
        except AoError as error:
            log.warning("the end of all work could not be recorded", error=str(error))


def all_complete_event(sessions: Mapping[str, SessionFacts], reported: Sequence[str]) -> e.AllComplete | None:
    """Return the event that all sessions are done, or None while one is not or if no session is new since the last event.

    A session without a task does not count, and a coordinating agent is never done.
    """
    counted = [
        facts
        for facts in sessions.values()
        if facts.spec.kind != COORDINATOR_KIND and (facts.launch or not facts.spec.defer or facts.stopped)
    ]
    if not counted or not all(is_over(facts) for facts in counted):
        return None
    unreported = [facts for facts in counted if facts.id not in reported and facts.spec.reviews is None]
    if not unreported:
        return None
    return e.AllComplete(tuple(facts.id for facts in unreported), "\n".join(_line(facts) for facts in unreported[:50]))


def _line(facts: SessionFacts) -> str:
    pr = facts.pr
    outcome = f"{pr.state} (#{pr.number})" if pr and pr.state != "open" else "stopped" if facts.stopped else "done"
    summary = (facts.done_summary or "").partition("\n")[0]
    return f"- {facts.id}: {outcome}{f', {summary}' if summary else ''}"
