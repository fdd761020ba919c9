"""The one writer: appends events, folds them, decides, and records all of it in one transaction.

Whoever has something to tell calls `append`. Calls that arrive while a transaction is being written share the next one (group
commit). Facts in memory change only after the commit; listeners are told then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from agent_orchestrator.core.actor import DAEMON, Behalf, actor_by, current
from agent_orchestrator.core.event_redaction import row_without_secrets, without_secrets
from agent_orchestrator.core.events import Event, Notified
from agent_orchestrator.core.facts import HomeFacts, SessionFacts
from agent_orchestrator.core.fold.sessions import reduce, reduce_home
from agent_orchestrator.core.notices import deliveries
from agent_orchestrator.core.outbox import Batch, Known, Row, Snapshot, Store
from agent_orchestrator.core.reactions import Intent, concerned, decide, needed, react_to, react_to_issue
from agent_orchestrator.core.rules import Rule
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols import Clock

SNAPSHOT_EVERY = 500
"""Events after which changed facts are saved, so that a start need not fold the whole log."""
TRY_AGAIN = 0.5
"""Seconds after which a store that could not be written is tried again."""
SLICE = 10
"""Sessions whose facts are saved at one go: whoever has something to tell need not wait for those of a whole fleet."""

RulesFor = Callable[[str, str | None], Sequence[Rule]]
"""Project and profile → the rules in force."""
RoutesFor = Callable[[str | None, str], Sequence[str]]
"""Project and level → the notifiers that send a notification."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Change:
    """An event that was stored, and what it changed."""

    event: Event
    before: SessionFacts | None
    after: SessionFacts | None


@dataclass(slots=True)
class _Job:
    events: Sequence[Event]
    rows: Sequence[Row]
    behalf: Behalf | None
    answer: asyncio.Future[list[Event]]


@dataclass(slots=True)
class _Outcome:
    """What a transaction did: applied to memory once it is committed."""

    home: HomeFacts
    sessions: dict[str, SessionFacts]
    changes: list[Change] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    stored: list[list[Event]] = field(default_factory=list)
    decided: tuple[float, float] = (0.0, 0.0)


class Flow:
    """Events in, facts and outbox rows out."""

    def __init__(self, store: Store, clock: Clock, rules: RulesFor) -> None:
        self.store = store
        self.clock = clock
        self.rules = rules
        self.routes: RoutesFor = lambda _project, _level: ()
        self.home = HomeFacts()
        self.sessions: dict[str, SessionFacts] = {}
        self.seq = 0
        self.on_change: list[Callable[[Sequence[Change]], None]] = []
        self.on_rows: list[Callable[[Sequence[Row]], None]] = []
        self.decided = (0.0, 0.0)
        """When folding and deciding of what is told to listeners just now began and ended."""
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        self._hindered = False
        self._dirty: set[str] = set()
        self._saved = 0
        self._as_of = (0, HomeFacts())
        """What the store's saved facts are complete up to: an event, and the home's facts then."""
        self._saving: asyncio.Task[None] | None = None
        self._folded: int | None = None
        self.here = ""
        """The name of this home, where several have one store."""

    async def start(self) -> list[Row]:
        """Fold what the store has; returns the rows that are still to be carried out."""
        self.seq = await self.store.open()
        await self.follow()
        self._writer = asyncio.create_task(self._write_forever(), name="flow-writer")
        pending = await self.store.pending()
        await self.recheck(*self.sessions)
        known = {row.intent.key for row in pending}
        return pending + [row for row in await self.store.pending() if row.intent.key not in known]

    async def stop(self) -> None:
        """Write what is queued, save the facts, and end."""
        if self._writer is None:
            return
        self._closing = True
        self._wake.set()
        await self._writer
        self._writer = None
        if self._saving is not None:
            await self._saving
        if self._dirty or self._saved != self.seq:
            await self._save()

    async def append(self, *events: Event, rows: Sequence[Row] = ()) -> list[Event]:
        """Record events, and outbox rows with a new state, durably; returns those that were new, with their place in the log."""
        if self._writer is None or self._writer.done():
            raise Temporary("nothing is recorded any more: the daemon is stopping", "try again once it runs")
        answer: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        behalf = current()
        if behalf is not None:
            behalf.told += len(events)
        self._jobs.append(_Job([*map(without_secrets, events)], [*map(row_without_secrets, rows)], behalf, answer))
        self._wake.set()
        return await answer

    # -- reading back ------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Fold what the store has and was not folded yet: before the start, as often as somebody else has written."""
        if self._folded is None:
            snapshot = await self.store.snapshot()
            if snapshot:
                self.home, self.sessions = snapshot.home, dict(snapshot.sessions)
                self._as_of = (snapshot.seq, snapshot.home)
            self._folded = self._saved = snapshot.seq if snapshot else 0
        while page := await self.store.events(after=self._folded, limit=5000):
            for event in page:
                self._fold(event)
            self._folded = page[-1].seq

    def elsewhere(self, session: str) -> str:
        """The home that a session lives in, if that is neither this one nor a node: it can be seen and touched only there."""
        facts = self.sessions.get(session)
        if facts is None or facts.remote or facts.spec.home in ("", self.here):
            return ""
        return facts.spec.home

    def _fold(self, event: Event) -> None:
        """What the log has. A damaged record, or one that a newer version meant otherwise, keeps no other from being seen."""
        try:
            home = reduce_home(self.home, event)
            before = self.sessions.get(event.session or "")
            known = before is not None and event.seq <= before.seq  # saved later than the rest
            after = reduce(before, event) if event.session and not known else None
        except Exception as error:
            log.error("an event is not understood, and left out", seq=event.seq, type=event.type, error=repr(error))
            return
        self.home = home
        if event.session and after is not None:
            self.sessions[event.session] = after
            self._dirty.add(event.session)

    async def recheck(self, *sessions: str) -> None:
        """Record what these sessions call for by today's rules and nobody recorded, or what was dropped meanwhile."""
        rows: list[Row] = []
        for facts in (self.sessions[session] for session in sessions):
            rows += [
                _row(intent, facts.seq, 0) for intent in needed(facts, self.rules(facts.project, facts.spec.profile))
            ]
        if rows:
            await self.append(rows=rows)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        while not self._closing or self._jobs:
            await self._wake.wait()
            self._wake.clear()
            if jobs := self._jobs:
                self._jobs = []
                try:
                    await self._commit(jobs)
                except Exception as error:  # whatever it is: who writes next is not to suffer for it
                    log.exception("events could not be recorded")
                    for job in jobs:
                        if not job.answer.done():
                            job.answer.set_exception(error)

    async def _commit(self, jobs: list[_Job]) -> None:
        try:
            outcome = await self.store.write(lambda known: self._compute(jobs, known))
        except Exception as error:
            if len(jobs) > 1 and not isinstance(error, AoError):
                for job in jobs:  # one of them cannot be recorded: the others need not suffer for it
                    await self._commit([job])
                return
            await self._put_off(jobs, error)
            return
        if self._hindered:
            self._hindered = False
            log.info("the store can be written again")
        self.home = outcome.home
        self.sessions.update(outcome.sessions)
        self._dirty.update(outcome.sessions)
        self.seq += len(outcome.changes)
        for job, stored in zip(jobs, outcome.stored, strict=True):
            if not job.answer.done():
                job.answer.set_result(stored)
        self.decided = outcome.decided
        self._tell(outcome)
        if self.seq - self._saved >= SNAPSHOT_EVERY and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save(), name="flow-saving")

    async def _put_off(self, jobs: list[_Job], error: Exception) -> None:
        """Whoever asked is told that it could not be written; what nobody would say again is kept, and written as soon as possible."""
        patient = [job for job in jobs if not self._closing and isinstance(error, Temporary) and not _asked(job.behalf)]
        for job in jobs:
            if job not in patient and not job.answer.done():
                job.answer.set_exception(error)
        if patient:
            if not self._hindered:
                log.warning("the store cannot be written; it is tried again", error=str(error), waiting=len(patient))
            self._hindered = True
            self._jobs[:0] = patient
            self._wake.set()
            await asyncio.sleep(TRY_AGAIN)

    def _tell(self, outcome: _Outcome) -> None:
        """What a listener does wrong must not end the writing."""
        for on_change in self.on_change:
            try:
                on_change(outcome.changes)
            except Exception:
                log.exception("a listener failed", changes=[change.event.key for change in outcome.changes])
        if not outcome.rows:
            return
        for on_rows in self.on_rows:
            try:
                on_rows(outcome.rows)
            except Exception:
                log.exception("a listener failed", rows=[row.intent.key for row in outcome.rows])

    def _compute(self, jobs: Sequence[_Job], known: Known) -> tuple[Batch, _Outcome]:
        """Runs in the writer's thread: fold and decide. Touches nothing but its own outcome."""
        outcome, began = _Outcome(self.home, {}), self.clock()
        told = known.event_keys([event.key for job in jobs for event in job.events])
        intents: dict[str, Row] = {}
        updates: list[Row] = []
        seq = self.seq
        for job in jobs:
            stored = []
            for event in job.events:
                if event.key in told:
                    continue
                told.add(event.key)
                seq += 1
                numbered = replace(event, seq=seq, actor=_actor(event, job.behalf), cause=_cause(event, job.behalf))
                stored.append(numbered)
                for intent in (*self._apply(numbered, outcome), *self._told(numbered)):
                    intents.setdefault(intent.key, _row(intent, seq, len(intents)))
            outcome.stored.append(stored)
            for row in job.rows:
                if row.state == "pending" and not row.updated:
                    intents.setdefault(row.intent.key, row)
                else:
                    updates.append(row)
        there = known.intent_keys(list(intents))
        outcome.rows = [row for key, row in intents.items() if key not in there]
        outcome.decided = (began, self.clock())
        return Batch([change.event for change in outcome.changes], [*outcome.rows, *updates]), outcome

    def _apply(self, event: Event, outcome: _Outcome) -> list[Intent]:
        outcome.home = reduce_home(outcome.home, event)
        if not event.session:
            outcome.changes.append(Change(event, None, None))
            mine = concerned(event, {**self.sessions, **outcome.sessions}.values())
            if not mine and event.project:
                return react_to_issue(event, self.rules(event.project, None), self.clock())
            return [intent for facts in mine for intent in react_to(event, facts, self._rules_of(facts), self.clock())]
        before = outcome.sessions.get(event.session) or self.sessions.get(event.session)
        after = reduce(before, event)
        outcome.changes.append(Change(event, before, after))
        if after is None:
            return []
        rules, now = self._rules_of(after), max(event.time, self.clock())
        told = react_to(event, after, rules, now)
        if after is before:
            return told
        outcome.sessions[event.session] = after
        return decide(before, after, rules, now) + told

    def _told(self, event: Event) -> list[Intent]:
        """A notification is to be sent by those that its project names for its level."""
        return (
            deliveries(event, self.routes(event.project, event.body.level)) if isinstance(event.body, Notified) else []
        )

    def _rules_of(self, facts: SessionFacts) -> Sequence[Rule]:
        return self.rules(facts.project, facts.spec.profile)

    async def _save(self) -> None:
        """Only spares the next start some folding: a failure is told, and made good by the next save.

        What is written meanwhile comes between the slices. So until the last one there are sessions in the store that are further than
        what it counts as complete, which folding minds.
        """
        changed, as_of = sorted(self._dirty), (self.seq, self.home)
        self._saved, self._dirty = self.seq, set()
        slices = [changed[at : at + SLICE] for at in range(0, len(changed), SLICE)] or [[]]
        try:
            for number, part in enumerate(slices, 1):
                known = as_of if number == len(slices) else self._as_of
                facts = {session: self.sessions[session] for session in part}
                await self.store.save_snapshot(Snapshot(*known, facts), part)
            self._as_of = as_of
        except Exception as error:
            self._dirty.update(changed)
            log.warning("the facts could not be saved; the log has them", error=str(error))


def _row(intent: Intent, cause: int, order: int) -> Row:
    return Row(intent, cause, cause * 100 + order, intent.due)


def _asked(behalf: Behalf | None) -> bool:
    """Does somebody wait for it who can be told that it was not recorded?"""
    return behalf is not None and behalf.actor.partition(" ")[0] not in (DAEMON, "node", "rule")


def _actor(event: Event, behalf: Behalf | None) -> str:
    """Whoever acts; but what the daemon or a node does for a rule, or hears of an agent, is theirs."""
    if event.actor:
        return event.actor
    told = actor_by(event.source, event.session)
    for_others = behalf is not None and behalf.actor.partition(" ")[0] in (DAEMON, "node")
    if behalf is None or (for_others and told.startswith(("rule ", "agent "))):
        return told
    return behalf.actor


def _cause(event: Event, behalf: Behalf | None) -> int | None:
    return event.cause if event.cause is not None or behalf is None else behalf.cause
