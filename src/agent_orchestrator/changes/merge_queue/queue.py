"""The merge queue as the rest of the program sees it: the effect that lands a change, who is in the queue, and how to leave it."""

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

_SHOWN = {"clashing": "waiting", "failing": "checking", "doubtful": "checking"}
"""How a place's state is called outside, where it has another name there."""


class MergeQueue:
    """All queues of a home: one for each branch that changes land on."""

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
        """A project's predicted collisions."""
        self.call_off_elsewhere: Callable[[str, str], Awaitable[None]] | None = None
        """The same as `call_off`, for a session that lands at a forge and not here."""
        self.on_plan: list[Callable[[], None]] = []
        """Told when what `entries` says may be another, and no event tells of it."""
        self.checking.on_state = self._planned
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._tasks: set[asyncio.Task[list[Event]]] = set()
        flow.on_change.append(self._on_change)

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"land": Effect(self.land)}

    async def close(self) -> None:
        """End what is under way; the next daemon begins where this one was."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- landing -------------------------------------------------------------------------------------------------------

    async def land(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Land a change when it is its turn and it is good there; what cannot be done is told as a refusal."""
        try:
            return await self._land(intent)
        except AoError as error:
            if error.retryable:
                raise
            return self.telling.failed(self.flow.sessions[intent.session], intent.key, error)

    async def _land(self, intent: Intent) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        if facts.pr is None or facts.pr.landing is None:
            return []
        spec = landing_spec(self.home, facts)
        outcome: Outcome | None = await merge.find_landing(self.host, spec)
        if outcome is None:
            outcome = await self._wait(intent, spec, self._lane(facts.project, spec))
        else:  # and may have been cut short right after, with a checkout still locked
            await merge.settle(self.host, spec.repo)
        return await self.telling.outcome(self.flow.sessions[intent.session], intent.key, outcome)

    async def _wait(self, intent: Intent, spec: merge.LandingSpec, lane: Lane) -> Outcome:
        await lane.find_base()
        facts = self.flow.sessions[intent.session]
        asked = facts.pr.landing if facts.pr else None
        if asked is None:
            return CalledOff()
        if facts.head != spec.head:
            return merge.BranchMoved(facts.head)
        unchecked = asked.force or not self.plugins.checks(facts)
        entry = Entry(facts.id, spec.head, facts.spec.priority, asked.at, unchecked)
        return await lane.join(Ticket(entry, spec, waits=asked.waits))

    def _lane(self, project: str, spec: merge.LandingSpec) -> Lane:
        place = (project, spec.base)
        if place not in self._lanes:
            check, tell = self.checking.judge, self._tell
            self._lanes[place] = Lane(
                self.host,
                spec.repo,
                spec.base,
                check,
                tell,
                lambda: self._room(project),
                lambda: clashes(self.collisions(project)),
            )
            self._lanes[place].looked = self._planned
            self._lanes[place].workspaces = lambda: self._workspaces(spec)
        return self._lanes[place]

    def _workspaces(self, spec: merge.LandingSpec) -> list[Path]:
        """Where agents work that have no business on the base."""
        others = (facts for facts in self.flow.sessions.values() if facts.spec.repo == str(spec.repo))
        return [Path(facts.spec.path) for facts in others if not facts.stopped and facts.branch != spec.base]

    def _planned(self) -> None:
        for tell in self.on_plan:
            tell()

    def _room(self, project: str) -> int:
        """How many changes are checked at a time: as many as the project lets run of its checks."""
        try:
            checks = list(self.plugins.project(project).ci.values())
        except AoError:
            return 1
        for facts in self.flow.sessions.values():
            if facts.pr and facts.pr.landing and facts.project == project:
                checks += self.plugins.own_checks(facts).values()
        return max((check.parallel for check in checks), default=1)

    def _tell(self, ticket: Ticket, reason: str) -> None:
        events = self.telling.waits(self.flow.sessions[ticket.entry.session], reason)
        if events:
            task = asyncio.get_running_loop().create_task(self.flow.append(*events))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Somebody's branch moved, his landing is not wanted any more, the base went on, or two are seen to collide."""
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

    # -- what people ask -----------------------------------------------------------------------------------------------

    async def call_off(self, session: str, key: str | None = None) -> None:
        """Take a change out of the queue again; one that is being landed is not stopped half-way."""
        facts = self.flow.sessions[session]
        unique = f"call-off:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(unique):
            return  # the same request again
        if facts.pr is None or facts.pr.landing is None:
            raise Conflict(f"{session} is not to land", "see what is: ao queue")
        if facts.spec.scm != "local" and self.call_off_elsewhere is not None:
            await self.call_off_elsewhere(session, unique)
            return
        spec = landing_spec(self.home, facts)
        lane = self._lane(facts.project, spec)
        paused = lane.pause(session)
        try:
            if not paused or await merge.find_landing(self.host, spec):
                again = f"take it back by a new change: ao undo {session}"
                raise Conflict(f"{session} is landing this very moment", again)
            off = e.LandingFailed("a person called it off", "called-off")
            await self.flow.append(self.telling.event(facts, off, unique, "person"))
        finally:
            lane.resume(session)

    def entries(self, project: str | None) -> list[dict[str, Any]]:
        """What is to land, in order, queue by queue."""
        waiting = [
            facts
            for facts in self.flow.sessions.values()
            if facts.pr and facts.pr.landing and project in (None, facts.project)
        ]
        queues: dict[tuple[str, str], list[SessionFacts]] = {}
        for facts in waiting:
            assert facts.pr is not None
            queues.setdefault((facts.project, facts.pr.base), []).append(facts)
        return [entry for key in sorted(queues) for entry in self._queue(key, queues[key])]

    def _queue(self, key: tuple[str, str], waiting: list[SessionFacts]) -> list[dict[str, Any]]:
        """One queue: as it was planned, then those who are only about to join it."""
        lane, met = self._lanes.get(key), clashes(self.collisions(key[0]))
        places = {place.entry.session: place for place in lane.plan.places} if lane else {}
        planned = [place.entry for place in places.values()]
        numbers = {session: number for number, session in enumerate(places)}
        asked = {facts.id: facts.pr.landing.at for facts in waiting if facts.pr and facts.pr.landing}

        def rank(facts: SessionFacts) -> tuple[int, int, float, str]:
            return -facts.spec.priority, numbers.get(facts.id, len(numbers)), asked[facts.id], facts.id

        shown = []
        for position, facts in enumerate(sorted(waiting, key=rank), 1):
            place = places.get(facts.id)
            first = passed_by(place.entry, planned) if place else []
            collides = sorted(met.get(facts.id, frozenset()) & asked.keys())
            shown.append({**self._entry(facts, place, position), "passedBy": first, "collides": collides})
        return shown

    def _entry(self, facts: SessionFacts, place: Place | None, position: int) -> dict[str, Any]:
        assert facts.pr is not None and facts.pr.landing is not None
        lane, waits = self._lanes.get((facts.project, facts.pr.base)), facts.pr.landing.waits
        built = place.built if place and isinstance(place.built, Built) else None
        state = _SHOWN.get(place.state, place.state) if place else "queued"
        if lane and lane.lands(facts.id):
            state = "landing"
        elif waits:
            state = "waiting"
        states = self.checking.states(built.commit) if built else {}
        return {
            "session": facts.id,
            "position": position,
            "state": state,
            "reason": waits or None,
            "base": facts.pr.base,
            "ahead": list(place.ahead) if place else [],
            "tree": built.tree if built else None,
            "checks": [{"name": name, "state": now, "url": None} for name, now in states.items()],
        }

    # -- afterwards ----------------------------------------------------------------------------------------------------

    async def forget_branch(self, facts: SessionFacts) -> str:
        """After a landing: remove the branch, once all of it is provably on the base; says what became of it."""
        if facts.pr is None or facts.pr.state != "merged" or facts.pr.keep_branch:
            return ""
        try:
            cleaned = await merge.cleanup(self.host, landing_spec(self.home, facts))
        except AoError as error:
            return f"branch {facts.branch} stays: {error.text}"
        if not cleaned.deleted:
            return f"branch {facts.branch} stays: {cleaned.reason}"
        return f"branch {facts.branch} is removed; its commits are kept as {cleaned.kept}"
