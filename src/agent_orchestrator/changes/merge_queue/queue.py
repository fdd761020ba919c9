"""The merge queue's interface: the effect that merges a change, the queue's entries, and how to remove one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.conflicts import ConflictPredictor, text_conflicts
from agent_orchestrator.changes.merge import BuiltMerge
from agent_orchestrator.changes.merge_queue.base_queue import BaseQueue, QueueOutcome, Ticket, WithdrawnChange
from agent_orchestrator.changes.merge_queue.outcome_events import MergeEvents, merge_spec
from agent_orchestrator.changes.merge_queue.parallel_limit import max_checks
from agent_orchestrator.changes.merge_queue.plan import QueuedChange, QueuePosition, overtaking_sessions
from agent_orchestrator.changes.merge_queue.queue_checks import QueueChecks, SpecOf
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import QueuePlanned
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.sessions.part import Core, Part

_PUBLIC_STATES = {"clashing": "waiting", "failing": "checking", "doubtful": "checking"}
"""Names of places' states in the interface, where they differ from the internal ones."""


class MergeQueue(Part):
    """All merge queues of a home: one for each base branch."""

    def __init__(
        self, core: Core, checks: Checks, required: RequiredChecks, spec_of: SpecOf, conflicts: ConflictPredictor
    ) -> None:
        super().__init__(core)
        self.required = required
        self.conflicts = conflicts
        self.queue_checks = QueueChecks(core, checks, required, spec_of)
        self.merge_events = MergeEvents(core)
        self._base_queues: dict[tuple[str, str], BaseQueue] = {}
        self.on(
            self._update_base_queues,
            e.HeadMoved,
            e.LandingFailed,
            e.PrClosed,
            e.BaseMoved,
            e.ConflictPredicted,
            e.ConflictCleared,
        )

    async def close(self) -> None:
        """End what is under way; the next daemon continues where this one stopped."""
        await asyncio.gather(*(lane.close() for lane in self._base_queues.values()))
        await self._tasks.finish()
        await super().close()

    # -- merging -------------------------------------------------------------------------------------------------------

    async def merge_change(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Merge a change when its turn has come and its checks pass; errors that a retry cannot solve become events."""
        try:
            return await self._merge(intent)
        except AoError as error:
            if error.retryable:
                raise
            return self.merge_events.failure_events(self.flow.sessions[intent.session], intent.key, error)

    async def _merge(self, intent: Intent) -> Sequence[Event]:
        """Merge a change, or find that it has merged already; return the events of the outcome."""
        facts = self.flow.sessions[intent.session]
        if facts.pr is None or facts.pr.merge_request is None:
            return []
        spec = merge_spec(self.home, facts)
        outcome: QueueOutcome | None = await merge.find_merge(self.host, spec)
        if outcome is None:
            outcome = await self._wait_in_queue(intent, spec, self._base_queue_of(facts.project, spec))
        else:  # a crash right after the merge may have left a checkout locked
            await merge.repair_checkouts(self.host, spec.repo)
        return await self.merge_events.outcome_events(self.flow.sessions[intent.session], intent.key, outcome)

    async def _wait_in_queue(self, intent: Intent, spec: merge.MergeSpec, lane: BaseQueue) -> QueueOutcome:
        """Add a change to its queue and wait for the outcome."""
        await lane.read_base_head()
        facts = self.flow.sessions[intent.session]
        request = facts.pr.merge_request if facts.pr else None
        if request is None:
            return WithdrawnChange()
        if facts.head != spec.head:
            return merge.MovedBranch(facts.head)
        needs_no_check = request.force or not self.required.for_session(facts)
        entry = QueuedChange(facts.id, spec.head, facts.spec.priority, request.at, needs_no_check)
        return await lane.join(Ticket(entry, spec, wait_reason=request.wait_reason))

    def _base_queue_of(self, project: str, spec: merge.MergeSpec) -> BaseQueue:
        """Return the queue of a base branch; created on first use."""
        key = (project, spec.base)
        if key not in self._base_queues:
            check, report_wait = self.queue_checks.find_failure, self._record_wait
            self._base_queues[key] = BaseQueue(
                self.host,
                self.clock,
                spec.repo,
                spec.base,
                check,
                report_wait,
                lambda: max_checks(self.core, self.required, project),
                lambda: text_conflicts(self.conflicts.predicted_pairs(project)),
                lambda: self._other_workspaces(spec),
                lambda: self.emit(QueuePlanned()),
            )
        return self._base_queues[key]

    def _other_workspaces(self, spec: merge.MergeSpec) -> list[Path]:
        """Return the workspaces of agents whose own branch is not the base."""
        repository_sessions = (facts for facts in self.flow.sessions.values() if facts.spec.repo == str(spec.repo))
        return [
            Path(facts.spec.path) for facts in repository_sessions if not facts.stopped and facts.branch != spec.base
        ]

    def _record_wait(self, ticket: Ticket, reason: str) -> None:
        """Record what a change waits for."""
        events = self.merge_events.wait_events(self.flow.sessions[ticket.entry.session], reason)
        if events:
            self.spawn(self.flow.append(*events))

    def _update_base_queues(self, changes: Sequence[FactsChange]) -> None:
        """Settle or recheck a queue when a branch or the base moved, a merge was withdrawn, or predicted conflicts changed."""
        for change in changes:
            after = change.after
            lane = self._base_queues.get((after.project, after.pr.base)) if after and after.pr else None
            if after is None or after.pr is None or lane is None:
                continue
            match change.event.body:
                case e.HeadMoved() if after.pr.merge_request and after.head != after.pr.merge_request.head:
                    lane.remove(after.id, merge.MovedBranch(after.head))
                case e.LandingFailed() | e.PrClosed():
                    lane.remove(after.id, WithdrawnChange())
                case e.BaseMoved() | e.ConflictPredicted() | e.ConflictCleared():
                    lane.schedule_cycle()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def remove(self, facts: SessionFacts, event_key: str) -> None:
        """Remove a change that waits in the queue. Raises `Conflict` if an attempt to merge it has just succeeded."""
        session = facts.id
        spec = merge_spec(self.home, facts)
        lane = self._base_queue_of(facts.project, spec)
        try:
            await lane.pause(session)
            if await merge.find_merge(self.host, spec):
                remedy = f"take it back by a new change: ao undo {session}"
                raise Conflict(f"{session} is landing this very moment", remedy)
            called_off = e.LandingFailed("a person called it off", "called-off")
            await self.flow.append(self.merge_events.event(facts, called_off, event_key, "person"))
        finally:
            lane.resume(session)

    def entries(self, project: str | None) -> list[dict[str, Any]]:
        """Return the changes that are to merge, in order, queue by queue."""
        waiting = [
            facts
            for facts in self.flow.sessions.values()
            if facts.pr and facts.pr.merge_request and project in (None, facts.project)
        ]
        queues: dict[tuple[str, str], list[SessionFacts]] = {}
        for facts in waiting:
            assert facts.pr is not None
            queues.setdefault((facts.project, facts.pr.base), []).append(facts)
        return [entry for key in sorted(queues) for entry in self._queue_rows(key, queues[key])]

    def _queue_rows(self, key: tuple[str, str], waiting: list[SessionFacts]) -> list[dict[str, Any]]:
        """Return one queue's rows: those that are planned in their order, then those that are about to join."""
        lane, predicted_conflicts = self._base_queues.get(key), text_conflicts(self.conflicts.predicted_pairs(key[0]))
        places = {place.entry.session: place for place in lane.plan.positions} if lane else {}
        planned = [place.entry for place in places.values()]
        numbers = {session: number for number, session in enumerate(places)}
        requested_at = {facts.id: facts.pr.merge_request.at for facts in waiting if facts.pr and facts.pr.merge_request}

        def rank(facts: SessionFacts) -> tuple[int, int, float, str]:
            """Return the sort key of a session in the queue."""
            return -facts.spec.priority, numbers.get(facts.id, len(numbers)), requested_at[facts.id], facts.id

        rows = []
        for position, facts in enumerate(sorted(waiting, key=rank), 1):
            place = places.get(facts.id)
            overtaking = overtaking_sessions(place.entry, planned) if place else []
            conflicting = sorted(predicted_conflicts.get(facts.id, frozenset()) & requested_at.keys())
            rows.append({**self._entry_row(facts, place, position), "passedBy": overtaking, "collides": conflicting})
        return rows

    def _entry_row(self, facts: SessionFacts, place: QueuePosition | None, position: int) -> dict[str, Any]:
        """Return one row of the queue for the interface."""
        assert facts.pr is not None and facts.pr.merge_request is not None
        lane, wait_reason = self._base_queues.get((facts.project, facts.pr.base)), facts.pr.merge_request.wait_reason
        built = place.built if place and isinstance(place.built, BuiltMerge) else None
        state = _PUBLIC_STATES.get(place.state, place.state) if place else "queued"
        if lane and lane.is_merging(facts.id):
            state = "landing"
        elif wait_reason:
            state = "waiting"
        states = self.queue_checks.states(built.commit) if built else {}
        return {
            "session": facts.id,
            "position": position,
            "state": state,
            "reason": wait_reason or None,
            "base": facts.pr.base,
            "ahead": list(place.ahead) if place else [],
            "tree": built.tree if built else None,
            "checks": [{"name": name, "state": check_state, "url": None} for name, check_state in states.items()],
        }
