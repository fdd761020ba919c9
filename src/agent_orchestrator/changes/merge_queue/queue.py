"""The merge queue's interface: the effect that merges a change, the queue's entries, and how to remove one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks import Checks
from agent_orchestrator.changes.conflicts import Pair, clashes
from agent_orchestrator.changes.merge import Built
from agent_orchestrator.changes.merge_queue.checks import Checking, SpecOf
from agent_orchestrator.changes.merge_queue.lane import CalledOff, Lane, Outcome, Ticket
from agent_orchestrator.changes.merge_queue.next_step import Entry, Place, passed_by
from agent_orchestrator.changes.merge_queue.outcome_events import Telling, landing_spec
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.plugins import Plugins

_PUBLIC_STATES = {"clashing": "waiting", "failing": "checking", "doubtful": "checking"}
"""Names of places' states in the interface, where they differ from the internal ones."""


class MergeQueue:
    """All merge queues of a home: one for each base branch."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        projects: Projects,
        checks: Checks,
        spec_of: SpecOf,
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.checking = Checking(flow, plugins, projects, checks, spec_of)
        self.telling = Telling(flow, plugins)
        self.collisions: Callable[[str], Sequence[Pair]] = lambda _project: ()
        """Returns a project's predicted conflicts."""
        self.call_off_elsewhere: Callable[[str, str], Awaitable[None]] | None = None
        """The same as `call_off`, for a session that merges at a forge."""
        self.on_plan: list[Callable[[], None]] = []
        """Called when the result of `entries` may have changed although no event was recorded."""
        self.checking.on_state = self._notify_plan_changed
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._tasks: set[asyncio.Task[list[Event]]] = set()
        flow.on_change.append(self._on_change)

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"land": Effect(self.land)}

    async def close(self) -> None:
        """End what is under way; the next daemon continues where this one stopped."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- merging -------------------------------------------------------------------------------------------------------

    async def land(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Merge a change when its turn has come and its checks pass; errors that a retry cannot solve become events."""
        try:
            return await self._merge(intent)
        except AoError as error:
            if error.retryable:
                raise
            return self.telling.failed(self.flow.sessions[intent.session], intent.key, error)

    async def _merge(self, intent: Intent) -> Sequence[Event]:
        """Merge a change, or find that it has merged already; return the events of the outcome."""
        facts = self.flow.sessions[intent.session]
        if facts.pr is None or facts.pr.landing is None:
            return []
        spec = landing_spec(self.home, facts)
        outcome: Outcome | None = await merge.find_landing(self.host, spec)
        if outcome is None:
            outcome = await self._wait_in_queue(intent, spec, self._lane_of(facts.project, spec))
        else:  # a crash right after the merge may have left a checkout locked
            await merge.settle(self.host, spec.repo)
        return await self.telling.outcome(self.flow.sessions[intent.session], intent.key, outcome)

    async def _wait_in_queue(self, intent: Intent, spec: merge.LandingSpec, lane: Lane) -> Outcome:
        """Add a change to its queue and wait for the outcome."""
        await lane.find_base()
        facts = self.flow.sessions[intent.session]
        request = facts.pr.landing if facts.pr else None
        if request is None:
            return CalledOff()
        if facts.head != spec.head:
            return merge.BranchMoved(facts.head)
        needs_no_check = request.force or not self.plugins.checks(facts)
        entry = Entry(facts.id, spec.head, facts.spec.priority, request.at, needs_no_check)
        return await lane.join(Ticket(entry, spec, waits=request.waits))

    def _lane_of(self, project: str, spec: merge.LandingSpec) -> Lane:
        """Return the queue of a base branch; created on first use."""
        key = (project, spec.base)
        if key not in self._lanes:
            check, report_wait = self.checking.judge, self._record_wait
            self._lanes[key] = Lane(
                self.host,
                spec.repo,
                spec.base,
                check,
                report_wait,
                lambda: self._max_checks(project),
                lambda: clashes(self.collisions(project)),
            )
            self._lanes[key].looked = self._notify_plan_changed
            self._lanes[key].workspaces = lambda: self._other_workspaces(spec)
        return self._lanes[key]

    def _other_workspaces(self, spec: merge.LandingSpec) -> list[Path]:
        """Return the workspaces of agents whose own branch is not the base."""
        repository_sessions = (facts for facts in self.flow.sessions.values() if facts.spec.repo == str(spec.repo))
        return [
            Path(facts.spec.path) for facts in repository_sessions if not facts.stopped and facts.branch != spec.base
        ]

    def _notify_plan_changed(self) -> None:
        """Call the listeners for a changed plan."""
        for listener in self.on_plan:
            listener()

    def _max_checks(self, project: str) -> int:
        """Return how many changes are checked at a time: the largest parallel limit of the project's checks."""
        try:
            checks = list(self.plugins.project(project).ci.values())
        except AoError:
            return 1
        for facts in self.flow.sessions.values():
            if facts.pr and facts.pr.landing and facts.project == project:
                checks += self.plugins.own_checks(facts).values()
        return max((check.parallel for check in checks), default=1)

    def _record_wait(self, ticket: Ticket, reason: str) -> None:
        """Record what a change waits for."""
        events = self.telling.waits(self.flow.sessions[ticket.entry.session], reason)
        if events:
            task = asyncio.get_running_loop().create_task(self.flow.append(*events))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Settle or recheck a queue when a branch or the base moved, a merge was withdrawn, or predicted conflicts changed."""
        for change in changes:
            after = change.after
            lane = self._lanes.get((after.project, after.pr.base)) if after and after.pr else None
            if after is None or after.pr is None or lane is None:
                continue
            match change.event.body:
                case e.HeadMoved() if after.pr.landing and after.head != after.pr.landing.head:
                    lane.settle(after.id, merge.BranchMoved(after.head))
                case e.LandingFailed() | e.PrClosed():
                    lane.settle(after.id, CalledOff())
                case e.BaseMoved() | e.ConflictPredicted() | e.ConflictCleared():
                    lane.look()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def call_off(self, session: str, key: str | None = None) -> None:
        """Remove a change from the queue. Raises `Conflict` if it is not in the queue, or is being merged."""
        facts = self.flow.sessions[session]
        event_key = f"call-off:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(event_key):
            return  # a repeated request
        if facts.pr is None or facts.pr.landing is None:
            raise Conflict(f"{session} is not to land", "see what is: ao queue")
        if facts.spec.scm != "local" and self.call_off_elsewhere is not None:
            await self.call_off_elsewhere(session, event_key)
            return
        spec = landing_spec(self.home, facts)
        lane = self._lane_of(facts.project, spec)
        paused = lane.pause(session)
        try:
            if not paused or await merge.find_landing(self.host, spec):
                remedy = f"take it back by a new change: ao undo {session}"
                raise Conflict(f"{session} is landing this very moment", remedy)
            called_off = e.LandingFailed("a person called it off", "called-off")
            await self.flow.append(self.telling.event(facts, called_off, event_key, "person"))
        finally:
            lane.resume(session)

    def entries(self, project: str | None) -> list[dict[str, Any]]:
        """Return the changes that are to merge, in order, queue by queue."""
        waiting = [
            facts
            for facts in self.flow.sessions.values()
            if facts.pr and facts.pr.landing and project in (None, facts.project)
        ]
        queues: dict[tuple[str, str], list[SessionFacts]] = {}
        for facts in waiting:
            assert facts.pr is not None
            queues.setdefault((facts.project, facts.pr.base), []).append(facts)
        return [entry for key in sorted(queues) for entry in self._queue_rows(key, queues[key])]

    def _queue_rows(self, key: tuple[str, str], waiting: list[SessionFacts]) -> list[dict[str, Any]]:
        """Return one queue's rows: those that are planned in their order, then those that are about to join."""
        lane, predicted_conflicts = self._lanes.get(key), clashes(self.collisions(key[0]))
        places = {place.entry.session: place for place in lane.plan.places} if lane else {}
        planned = [place.entry for place in places.values()]
        numbers = {session: number for number, session in enumerate(places)}
        requested_at = {facts.id: facts.pr.landing.at for facts in waiting if facts.pr and facts.pr.landing}

        def rank(facts: SessionFacts) -> tuple[int, int, float, str]:
            """Return the sort key of a session in the queue."""
            return -facts.spec.priority, numbers.get(facts.id, len(numbers)), requested_at[facts.id], facts.id

        rows = []
        for position, facts in enumerate(sorted(waiting, key=rank), 1):
            place = places.get(facts.id)
            overtaking = passed_by(place.entry, planned) if place else []
            conflicting = sorted(predicted_conflicts.get(facts.id, frozenset()) & requested_at.keys())
            rows.append({**self._entry_row(facts, place, position), "passedBy": overtaking, "collides": conflicting})
        return rows

    def _entry_row(self, facts: SessionFacts, place: Place | None, position: int) -> dict[str, Any]:
        """Return one row of the queue for the interface."""
        assert facts.pr is not None and facts.pr.landing is not None
        lane, wait_reason = self._lanes.get((facts.project, facts.pr.base)), facts.pr.landing.waits
        built = place.built if place and isinstance(place.built, Built) else None
        state = _PUBLIC_STATES.get(place.state, place.state) if place else "queued"
        if lane and lane.lands(facts.id):
            state = "landing"
        elif wait_reason:
            state = "waiting"
        states = self.checking.states(built.commit) if built else {}
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

    # -- after a merge -------------------------------------------------------------------------------------------------

    async def forget_branch(self, facts: SessionFacts) -> str:
        """After a merge, delete the branch if all of it is on the base.

        Return what became of it, or "" if there is nothing to do.
        """
        if facts.pr is None or facts.pr.state != "merged" or facts.pr.keep_branch:
            return ""
        try:
            cleaned = await merge.cleanup(self.host, landing_spec(self.home, facts))
        except AoError as error:
            return f"branch {facts.branch} stays: {error.text}"
        if not cleaned.deleted:
            return f"branch {facts.branch} stays: {cleaned.reason}"
        return f"branch {facts.branch} is removed; its commits are kept as {cleaned.kept}"
