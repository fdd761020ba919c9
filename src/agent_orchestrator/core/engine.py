"""The single writer of the event log.

It appends events, folds them into facts, decides what they call for, and records all of it in one transaction. Other
code records events with `Flow.append`; calls that arrive while a transaction is being written share the next one (group
commit). Facts in memory change, and listeners are called, only after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from agent_orchestrator.core.actor import DAEMON, Actor, actor_of_source, current_actor
from agent_orchestrator.core.event_redaction import row_without_secrets, without_secrets
from agent_orchestrator.core.events import Event, Notified
from agent_orchestrator.core.facts import Facts, HomeFacts, SessionFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.listeners import FactsChange, Listeners
from agent_orchestrator.core.notices import notify_intents
from agent_orchestrator.core.outbox import Batch, OutboxRow, Snapshot, Store, StoredKeys
from agent_orchestrator.core.reactions import (
    Intent,
    decide,
    lifecycle_intents,
    react_to,
    react_to_issue,
    sessions_of_issue_event,
)
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols import Clock

SNAPSHOT_EVERY = 500
"""Number of events after which changed facts are saved, so that a start does not fold the whole log."""
WRITE_RETRY_SECONDS = 0.5
"""Seconds until a failed write to the store is retried."""
SESSIONS_PER_SAVE = 10
"""Number of sessions whose facts are saved in one transaction; appends are written between these transactions."""

RulesFor = Callable[[str, str | None], Sequence[Rule]]
"""Return the reaction rules for a project and a profile."""
RoutesFor = Callable[[str | None, str], Sequence[str]]
"""Return the names of the notifiers for a project and a notification level."""

log = structlog.get_logger()


def no_routes(_project: str | None, _level: str) -> Sequence[str]:
    """Return no notifiers."""
    return ()


@dataclass(slots=True)
class _Append:
    """A call of `append` that waits for its transaction."""

    events: Sequence[Event]
    rows: Sequence[OutboxRow]
    actor: Actor | None
    result: asyncio.Future[list[Event]]


@dataclass(slots=True)
class _TransactionResult:
    """The result of folding and deciding for one transaction; it is applied to memory after the commit."""

    home: HomeFacts
    sessions: dict[str, SessionFacts]
    changes: list[FactsChange] = field(default_factory=list)
    rows: list[OutboxRow] = field(default_factory=list)
    stored_events: list[list[Event]] = field(default_factory=list)
    decision_times: tuple[float, float] = (0.0, 0.0)


class Flow:
    """Records events, and keeps the facts and outbox rows that follow from them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: RulesFor,
        routes: RoutesFor = no_routes,
        facts: Facts | None = None,
        here: str = "",
    ) -> None:
        """Create a writer for a store; `facts` are kept up to date, and `here` names this home if several share the store."""
        self.store = store
        self.clock = clock
        self.rules = rules
        self.routes = routes
        self.facts = facts or Facts()
        self.home_name = here
        self.seq = 0
        self.listeners = Listeners()
        self.decision_times = (0.0, 0.0)
        """Start and end of the fold and decision for the changes that are passed to listeners at the moment."""
        self._queued_appends: list[_Append] = []
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        self._write_failing = False
        self._unsaved: set[str] = set()
        self._saved_seq = 0
        self._saved_snapshot_point = (0, HomeFacts())
        """The point up to which the facts saved in the store are complete: sequence number of the event, and the home's facts then."""
        self._save_task: asyncio.Task[None] | None = None
        self._folded_seq: int | None = None

    @property
    def home(self) -> HomeFacts:
        """The facts that belong to no session."""
        return self.facts.home

    @property
    def sessions(self) -> dict[str, SessionFacts]:
        """The facts of all sessions, by id."""
        return self.facts.sessions

    async def start(self) -> list[OutboxRow]:
        """Fold the stored events, start the writer, and return the outbox rows that are still pending."""
        self.seq = await self.store.open()
        await self.catch_up_from_store()
        self._writer = asyncio.create_task(self._write_forever(), name="flow-writer")
        pending = await self.store.pending()
        await self.recheck(*self.sessions)
        pending_keys = {row.intent.key for row in pending}
        return pending + [row for row in await self.store.pending() if row.intent.key not in pending_keys]

    async def stop(self) -> None:
        """Write the queued events, save the facts, and stop the writer."""
        if self._writer is None:
            return
        self._closing = True
        self._wake.set()
        await self._writer
        self._writer = None
        if self._save_task is not None:
            await self._save_task
        if self._unsaved or self._saved_seq != self.seq:
            await self._save()

    async def append(self, *events: Event, rows: Sequence[OutboxRow] = ()) -> list[Event]:
        """Record events and outbox rows in one transaction, and return the new events with their numbers.

        Events whose key is already in the log are skipped. Raises `Temporary` once the writer has stopped.
        """
        if self._writer is None or self._writer.done():
            raise Temporary("nothing is recorded any more: the daemon is stopping", "try again once it runs")
        answer: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        behalf = current_actor()
        if behalf is not None:
            behalf.recorded_event_count += len(events)
        self._queued_appends.append(
            _Append([*map(without_secrets, events)], [*map(row_without_secrets, rows)], behalf, answer)
        )
        self._wake.set()
        return await answer

    # -- reading back ------------------------------------------------------------------------------------------------

    async def catch_up_from_store(self) -> None:
        """Fold the stored events that are not folded yet: at the start, and whenever another daemon has written to the store."""
        if self._folded_seq is None:
            snapshot = await self.store.snapshot()
            if snapshot:
                self.facts.home, self.facts.sessions = snapshot.home, dict(snapshot.sessions)
                self._saved_snapshot_point = (snapshot.seq, snapshot.home)
            self._folded_seq = self._saved_seq = snapshot.seq if snapshot else 0
        while page := await self.store.events(after=self._folded_seq, limit=5000):
            for event in page:
                self._fold(event)
            self._folded_seq = page[-1].seq

    def owner_home(self, session: str) -> str:
        """Return the home that a session lives in if only that home can use it, or "" if the session is here or on a node."""
        facts = self.sessions.get(session)
        if facts is None or facts.remote or facts.spec.home in ("", self.home_name):
            return ""
        return facts.spec.home

    def _fold(self, event: Event) -> None:
        """Apply a stored event to the facts in memory.

        An event that raises an error (a damaged record, or one of a newer version) is logged and skipped, so that it
        does not block later ones.
        """
        try:
            home = reduce_home(self.home, event)
            before = self.sessions.get(event.session or "")
            is_included = before is not None and event.seq <= before.seq  # the session was saved after the home
            after = reduce(before, event) if event.session and not is_included else None
        except Exception as error:
            log.error("an event is not understood, and left out", seq=event.seq, type=event.type, error=repr(error))
            return
        self.facts.home = home
        if event.session and after is not None:
            self.sessions[event.session] = after
            self._unsaved.add(event.session)

    async def recheck(self, *sessions: str) -> None:
        """Record the intents that these sessions need by today's rules and that are missing in the outbox or were dropped."""
        rows: list[OutboxRow] = []
        for facts in (self.sessions[session] for session in sessions):
            rows += [
                _row(intent, facts.seq, 0)
                for intent in lifecycle_intents(facts, self.rules(facts.project, facts.spec.profile))
            ]
        if rows:
            await self.append(rows=rows)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        """Write queued appends until `stop` is called and the queue is empty."""
        while not self._closing or self._queued_appends:
            await self._wake.wait()
            self._wake.clear()
            if jobs := self._queued_appends:
                self._queued_appends = []
                try:
                    await self._commit(jobs)
                except Exception as error:  # later appends must still be written
                    log.exception("events could not be recorded")
                    for job in jobs:
                        if not job.result.done():
                            job.result.set_exception(error)

    async def _commit(self, jobs: list[_Append]) -> None:
        """Write the appends in one transaction, then update the facts in memory and notify listeners.

        If a transaction of several appends fails with an unexpected error, each is written on its own, so that one bad
        append does not fail the others.
        """
        try:
            outcome = await self.store.write(lambda stored_keys: self._compute(jobs, stored_keys))
        except Exception as error:
            if len(jobs) > 1 and not isinstance(error, AoError):
                for job in jobs:  # only the append that cannot be recorded fails
                    await self._commit([job])
                return
            await self._handle_write_error(jobs, error)
            return
        if self._write_failing:
            self._write_failing = False
            log.info("the store can be written again")
        self.facts.home = outcome.home
        self.sessions.update(outcome.sessions)
        self._unsaved.update(outcome.sessions)
        self.seq += len(outcome.changes)
        for job, stored in zip(jobs, outcome.stored_events, strict=True):
            if not job.result.done():
                job.result.set_result(stored)
        self.decision_times = outcome.decision_times
        self.listeners.notify(outcome.changes)
        if outcome.rows:
            self.listeners.notify_rows(outcome.rows)
        if self.seq - self._saved_seq >= SNAPSHOT_EVERY and (self._save_task is None or self._save_task.done()):
            self._save_task = asyncio.create_task(self._save(), name="flow-saving")

    async def _handle_write_error(self, jobs: list[_Append], error: Exception) -> None:
        """Fail the appends whose caller waits for an answer; queue the others again if the error is temporary.

        Without a waiting caller the append would never be repeated, so its events are kept until the store can be
        written.
        """
        patient = [
            job
            for job in jobs
            if not self._closing and isinstance(error, Temporary) and not _has_waiting_caller(job.actor)
        ]
        for job in jobs:
            if job not in patient and not job.result.done():
                job.result.set_exception(error)
        if patient:
            if not self._write_failing:
                log.warning("the store cannot be written; it is tried again", error=str(error), waiting=len(patient))
            self._write_failing = True
            self._queued_appends[:0] = patient
            self._wake.set()
            await asyncio.sleep(WRITE_RETRY_SECONDS)

    def _compute(self, jobs: Sequence[_Append], stored_keys: StoredKeys) -> tuple[Batch, _TransactionResult]:
        """Fold the events, decide what they call for, and return the batch to write with its result.

        Runs in the store's writer thread, so it changes nothing except its own result.
        """
        outcome, began = _TransactionResult(self.home, {}), self.clock()
        recorded_keys = stored_keys.event_keys([event.key for job in jobs for event in job.events])
        intents: dict[str, OutboxRow] = {}
        updates: list[OutboxRow] = []
        seq = self.seq
        for job in jobs:
            stored = []
            for event in job.events:
                if event.key in recorded_keys:
                    continue
                recorded_keys.add(event.key)
                seq += 1
                numbered = replace(event, seq=seq, actor=_actor(event, job.actor), cause=_cause(event, job.actor))
                stored.append(numbered)
                for intent in (*self._fold_into_result(numbered, outcome), *self._notification_intents(numbered)):
                    intents.setdefault(intent.key, _row(intent, seq, len(intents)))
            outcome.stored_events.append(stored)
            for row in job.rows:
                if row.state == "pending" and not row.updated_at:
                    intents.setdefault(row.intent.key, row)
                else:
                    updates.append(row)
        recorded_intents = stored_keys.intent_keys(list(intents))
        outcome.rows = [row for key, row in intents.items() if key not in recorded_intents]
        outcome.decision_times = (began, self.clock())
        return Batch([change.event for change in outcome.changes], [*outcome.rows, *updates]), outcome

    def _fold_into_result(self, event: Event, outcome: _TransactionResult) -> list[Intent]:
        """Fold one event into the result and return the intents that it calls for."""
        outcome.home = reduce_home(outcome.home, event)
        if not event.session:
            outcome.changes.append(FactsChange(event, None, None))
            affected = sessions_of_issue_event(event, {**self.sessions, **outcome.sessions}.values())
            if not affected and event.project:
                return react_to_issue(event, self.rules(event.project, None), self.clock())
            return [
                intent for facts in affected for intent in react_to(event, facts, self._rules_of(facts), self.clock())
            ]
        before = outcome.sessions.get(event.session) or self.sessions.get(event.session)
        after = reduce(before, event)
        outcome.changes.append(FactsChange(event, before, after))
        if after is None:
            return []
        rules, now = self._rules_of(after), max(event.time, self.clock())
        event_intents = react_to(event, after, rules, now)
        if after is before:
            return event_intents
        outcome.sessions[event.session] = after
        return decide(before, after, rules, now) + event_intents

    def _notification_intents(self, event: Event) -> list[Intent]:
        """Return one intent per notifier that the project configured for a notification's level, or none for other events."""
        return (
            notify_intents(event, self.routes(event.project, event.body.level))
            if isinstance(event.body, Notified)
            else []
        )

    def _rules_of(self, facts: SessionFacts) -> Sequence[Rule]:
        """Return the rules for a session's project and profile."""
        return self.rules(facts.project, facts.spec.profile)

    async def _save(self) -> None:
        """Save the facts of the changed sessions, so that the next start has fewer events to fold.

        A failure is logged, and the next save includes these sessions again. Appends may be written between the slices,
        so until the last slice the store can hold sessions that are newer than the recorded sequence number; `_fold`
        skips events that such a session already includes.
        """
        changed, latest = sorted(self._unsaved), (self.seq, self.home)
        self._saved_seq, self._unsaved = self.seq, set()
        slices = [changed[at : at + SESSIONS_PER_SAVE] for at in range(0, len(changed), SESSIONS_PER_SAVE)] or [[]]
        try:
            for number, session_ids in enumerate(slices, 1):
                complete_up_to = latest if number == len(slices) else self._saved_snapshot_point
                facts = {session: self.sessions[session] for session in session_ids}
                await self.store.save_snapshot(Snapshot(*complete_up_to, facts), session_ids)
            self._saved_snapshot_point = latest
        except Exception as error:
            self._unsaved.update(changed)
            log.warning("the facts could not be saved; the log has them", error=str(error))


def _row(intent: Intent, cause: int, order: int) -> OutboxRow:
    """Return a new pending outbox row for an intent; `order` sorts the intents of one transaction."""
    return OutboxRow(intent, cause, cause * 100 + order, intent.due)


def _has_waiting_caller(behalf: Actor | None) -> bool:
    """Return whether a caller (a person, token or agent) waits for the append and gets its error."""
    return behalf is not None and behalf.actor.partition(" ")[0] not in (DAEMON, "node", "rule")


def _actor(event: Event, behalf: Actor | None) -> str:
    """Return the actor to record for an event.

    Events that the daemon or a node records for a rule or an agent are attributed to that rule or agent.
    """
    if event.actor:
        return event.actor
    source_actor = actor_of_source(event.source, event.session)
    is_relayed = behalf is not None and behalf.actor.partition(" ")[0] in (DAEMON, "node")
    if behalf is None or (is_relayed and source_actor.startswith(("rule ", "agent "))):
        return source_actor
    return behalf.actor


def _cause(event: Event, behalf: Actor | None) -> int | None:
    """Return the number of the event that caused this one, or None if there is none."""
    return event.cause if event.cause is not None or behalf is None else behalf.cause
