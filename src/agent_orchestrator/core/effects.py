"""Carrying out: takes rows from the outbox, runs their effects, records the results.

Rows of one session run one after the other, sessions side by side. An effect returns the events that tell its result; they are
appended in one transaction with the row's end. It may raise `Again` (not now), `Hindered` (later, as long as it is wanted), a
retryable error (later, a few times), or any other error (given up, told as an event). Whether an effect is still wanted is looked at
right before it runs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
from structlog.contextvars import bound_contextvars

from agent_orchestrator.core.actor import DAEMON, acting
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import (
    Body,
    EffectDelayed,
    EffectFailed,
    Event,
    LandingFailed,
    MessageFailed,
    SessionFailed,
)
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.outbox import Row, pause, postponed, settled
from agent_orchestrator.core.reactions import Intent, still_needed
from agent_orchestrator.errors import AoError, machine_short

MOST_ATTEMPTS = 6
UNTOLD = 2
"""Attempts at something hindered that may fail before it is told, if the reason is one that mostly passes by itself."""
LONGEST_HINDRANCE = 300.0
"""The longest pause between two attempts at something hindered."""
LONGEST_WAIT = 300.0
"""A due time is looked at again at least this often, so that a clock that jumps is noticed."""

FOR_THE_AGENT = frozenset({"deliver", "rebase"})
"""Kinds that may have to wait for the agent's turn to end."""

log = structlog.get_logger()


class Again(Exception):
    """Not now: look again in `after` seconds, or as soon as the session's activity changes."""

    def __init__(self, after: float, *events: Event) -> None:
        super().__init__(f"again in {after:g} s")
        self.after = after
        self.events = events


class Hindered(Exception):
    """Something outside keeps it from being done, and may pass: it is tried again, with growing pauses, as long as it is wanted."""

    def __init__(self, error: AoError) -> None:
        super().__init__(str(error))
        self.error = error


Run = Callable[[Intent, int], Awaitable[Sequence[Event]]]


def patient(run: Run, passes: Callable[[AoError], bool] = lambda _: True) -> Run:
    """The same effect, which is tried again after every error that may pass, as long as it is wanted."""

    async def tried(intent: Intent, attempts: int) -> Sequence[Event]:
        try:
            return await run(intent, attempts)
        except (AoError, OSError) as error:
            known = error if isinstance(error, AoError) else machine_short(error)
            if known and passes(known):
                raise Hindered(known) from error
            raise

    return tried


@dataclass(frozen=True, slots=True)
class Effect:
    """How one kind of intent is carried out."""

    run: Run
    """Takes the intent and the number of attempts made before."""
    ambiguous: bool = False
    """It cannot tell by itself whether it ran before: the attempt is written down first."""
    fatal: str = ""
    """When given up, the session fails at this step."""
    even_if_stale: bool = False
    """Once attempted, it is carried to its end although the facts have moved on, for the outcome must be known."""


class Timer(Protocol):
    """What can be called off."""

    def cancel(self) -> None:
        """It shall not come."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Seconds and what is to be called then; the event loop's own, unless time is somebody else's."""


class Runner:
    """Keeps every lane of the outbox moving."""

    def __init__(self, flow: Flow, effects: Mapping[str, Effect], call_later: CallLater | None = None) -> None:
        self.flow = flow
        self.effects = effects
        self._call_later = call_later
        self.confirm: Callable[[], Awaitable[None]] | None = None
        """Called before each effect; fails where it is not certain that nobody else carries it out."""
        self.on_attempt: list[Callable[[Row, Row, float, Sequence[Event]], None]] = []
        """Told of each attempt: the row before and after it, when it began, and the events that tell its result."""
        self._told: dict[str, Sequence[Event]] = {}
        self._lanes: dict[str, dict[str, Row]] = defaultdict(dict)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[str, Timer] = {}
        self._running = False
        flow.on_rows.append(self.take)
        flow.on_change.append(self._on_change)

    def start(self, pending: Sequence[Row]) -> None:
        """Carry out what an earlier run left, what was recorded since this one was made, and whatever comes."""
        self._running = True
        self.take(pending)
        for lane in list(self._lanes):
            self._pump(lane)

    async def drain(self, patience: float = 10.0) -> None:
        """Begin nothing more; wait for what is under way, and leave what takes longer to the next start."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        if self._busy:
            _, late = await asyncio.wait(self._busy.values(), timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def take(self, rows: Sequence[Row]) -> None:
        """New rows, or rows with a new due time."""
        lanes = set()
        for row in rows:
            if row.state == "pending" and not self.flow.elsewhere(row.intent.session):
                self._lanes[row.lane][row.intent.key] = row
                lanes.add(row.lane)
        for lane in lanes:
            self._pump(lane)

    def pending(self) -> list[Row]:
        """All that is to be carried out, now or later."""
        return [row for rows in self._lanes.values() for row in rows.values()]

    def hurry(self) -> None:
        """Whatever waits to start an agent or to speak to one is tried now: what it waits for may be over."""
        now = self.flow.clock()
        for lane, rows in list(self._lanes.items()):
            for key, row in rows.items():
                if row.due > now and row.intent.kind in FOR_THE_AGENT:
                    rows[key] = replace(row, due=now)
            self._pump(lane)

    def _on_change(self, changes: Sequence[Change]) -> None:
        """What waited for another activity, or is not needed any more, need not wait for its time."""
        for change in changes:
            before, after = change.before, change.after
            if before is None or after is None or not _moved(before, after):
                continue
            now = self.flow.clock()
            for lane in (after.id, f"{after.id} silence"):
                rows = self._lanes.get(lane)
                if not rows:
                    continue
                for key, row in rows.items():
                    if row.due > now and (row.intent.kind in FOR_THE_AGENT or not still_needed(row.intent, after)):
                        rows[key] = replace(row, due=now)
                self._pump(lane)

    def _pump(self, lane: str) -> None:
        if timer := self._timers.pop(lane, None):
            timer.cancel()
        rows = self._lanes.get(lane)
        if not rows:
            self._lanes.pop(lane, None)
            return
        if lane in self._busy or not self._running:
            return
        now = self.flow.clock()
        begun = any(row.attempts and self._to_its_end(row) for row in rows.values())
        # Before the next launch it must be known whether the last one was still given its message.
        open_rows = [row for row in rows.values() if not (begun and row.intent.kind == "launch")]
        due = [row for row in open_rows if row.due <= now]
        loop = asyncio.get_running_loop()
        if due:
            row = min(due, key=lambda one: one.order)
            self._busy[lane] = task = loop.create_task(self._carry_out(row), name=row.intent.key)
            task.add_done_callback(lambda _: self._finished(lane))
        else:
            wait = max(min(min(row.due for row in open_rows) - now, LONGEST_WAIT), 0.001)
            self._timers[lane] = (self._call_later or loop.call_later)(wait, lambda: self._pump(lane))

    def _to_its_end(self, row: Row) -> bool:
        effect = self.effects.get(row.intent.kind)
        return effect is not None and effect.even_if_stale

    def _finished(self, lane: str) -> None:
        self._busy.pop(lane, None)
        self._pump(lane)

    async def _carry_out(self, row: Row) -> None:
        rows, key = self._lanes[row.lane], row.intent.key
        seen = self.flow.sessions.get(row.intent.session)
        try:
            if self.confirm is not None and not await self._certain():
                rows[key] = replace(row, due=self.flow.clock() + 1.0)
                return
            with acting(_actor(row.intent), row.cause), about(row.intent.session):
                began = self.flow.clock()
                after = await self._attempt(row)
                self._tell(row, after, began)
                if after.state == "dropped":
                    self._forget(row)
                    await self._needed_again(row.intent)
        except asyncio.CancelledError:
            return
        except Exception as error:  # nothing was recorded, so try again later
            known = isinstance(error, AoError)
            (log.warning if known else log.exception)(
                "the result of an effect could not be recorded", intent=key, error=str(error)
            )
            after = replace(rows.get(key, row), due=self.flow.clock() + 1.0)
        if after.state != "pending":
            self._forget(row)
            return
        now = self.flow.sessions.get(row.intent.session)
        if row.intent.kind in FOR_THE_AGENT and seen and now and _moved(seen, now):
            after = replace(after, due=self.flow.clock())  # what it waits for may have come while it was being tried
        rows[key] = after

    async def _certain(self) -> bool:
        assert self.confirm is not None
        try:
            await self.confirm()
        except AoError as error:
            log.warning("an effect waits for the database", error=error.text)
            return False
        return True

    def _forget(self, row: Row) -> None:
        """It has come to its end; a row that was recorded anew under its key stays."""
        rows = self._lanes[row.lane]
        if row.intent.key in rows and rows[row.intent.key].order == row.order:
            del rows[row.intent.key]

    async def _needed_again(self, intent: Intent) -> None:
        """What it was dropped for may have passed before that was recorded."""
        facts = self.flow.sessions.get(intent.session)
        if facts is not None and intent.kind in self.effects and still_needed(intent, facts):
            await self.flow.recheck(intent.session)

    async def _attempt(self, row: Row) -> Row:
        intent, effect, now = row.intent, self.effects.get(row.intent.kind), self.flow.clock()
        facts = self.flow.sessions.get(intent.session)
        wanted = not intent.session or (facts is not None and still_needed(intent, facts))
        if effect is None or not (wanted or (effect.even_if_stale and row.attempts)):
            return await self._record(row, [], settled(row, "dropped", now, "not needed any more"))
        if effect.ambiguous:
            row = await self._record(row, [], postponed(row, row.due, now, failed_attempt=True))
            self._lanes[row.lane][intent.key] = row
        try:
            events = await effect.run(intent, row.attempts - effect.ambiguous)
        except Again as again:
            later = replace(row, due=self.flow.clock() + again.after, attempts=row.attempts - effect.ambiguous)
            return await self._record(row, again.events, replace(later, updated=now))
        except Hindered as hindered:
            return await self._hindered(row, effect, hindered.error)
        except Exception as error:
            return await self._failed(row, effect, error)
        return await self._record(row, events, settled(row, "done", self.flow.clock()))

    async def _hindered(self, row: Row, effect: Effect, error: AoError) -> Row:
        """Later; each new reason is told, once."""
        now, intent = self.flow.clock(), row.intent
        attempts = row.attempts + (not effect.ambiguous)
        due = max(now + pause(attempts, most=LONGEST_HINDRANCE), getattr(error, "until", None) or 0.0)
        mere = error.retryable and attempts <= UNTOLD
        later = postponed(row, due, now, failed_attempt=not effect.ambiguous, result="" if mere else str(error))
        told = []
        if not mere and later.result != row.result:
            log.warning("an effect is delayed", intent=intent.key, error=str(error), attempts=attempts)
            facts = self.flow.sessions.get(intent.session)
            body = EffectDelayed(intent.kind, error.text, error.remedy or "it is tried again by itself", attempts)
            key = f"{intent.key}:{row.order}:delayed:{attempts}"
            told = [Event(body, now, "daemon", key, facts.project if facts else None, intent.session)]
        return await self._record(row, told, later)

    async def _failed(self, row: Row, effect: Effect, error: Exception) -> Row:
        now = self.flow.clock()
        error = machine_short(error) or error
        if not isinstance(error, AoError):
            log.error("an effect failed unexpectedly", intent=row.intent.key, exc_info=error)
        attempts = row.attempts + (not effect.ambiguous)
        if getattr(error, "retryable", False) and attempts < MOST_ATTEMPTS:
            log.warning("an effect is tried again", intent=row.intent.key, error=str(error), attempts=attempts)
            due = max(now + pause(attempts), getattr(error, "until", None) or 0.0)
            later = postponed(row, due, now, failed_attempt=not effect.ambiguous, result=str(error))
            return await self._record(row, [], later)
        text = error.text if isinstance(error, AoError) else f"{type(error).__name__}: {error}"
        remedy = error.remedy if isinstance(error, AoError) else "see the daemon's log"
        intent = row.intent
        facts = self.flow.sessions.get(intent.session)
        body: Body = EffectFailed(intent.kind, text, remedy, attempts)
        if effect.fatal:
            body = SessionFailed(effect.fatal, text, remedy)
        elif intent.kind == "land":  # nobody waits for what is not tried any more
            body = LandingFailed(text, "error")
        elif intent.kind == "deliver":
            tried = attempts > 1 or getattr(error, "retryable", False)
            doubt = "; it cannot be told whether it was written all the same: send it again if it was not"
            body = MessageFailed(intent.args["message"], f"it could not be delivered: {text}{doubt if tried else ''}")
        told = Event(body, now, "daemon", f"{intent.key}:failed", facts.project if facts else None, intent.session)
        return await self._record(row, [told], settled(row, "failed", now, text))

    async def _record(self, row: Row, events: Sequence[Event], after: Row) -> Row:
        if after.state == "pending" and not events and after.attempts == row.attempts:
            return after
        stored = await self.flow.append(*events, rows=[after])
        if self.on_attempt:
            self._told[row.intent.key] = stored
        return after

    def _tell(self, row: Row, after: Row, began: float) -> None:
        """What a listener does wrong keeps nothing from being done."""
        told = self._told.pop(row.intent.key, ())
        for on_attempt in self.on_attempt:
            try:
                on_attempt(row, after, began, told)
            except Exception:
                log.exception("a listener failed", intent=row.intent.key)


@contextmanager
def about(session: str) -> Iterator[None]:
    """What is logged meanwhile names the session."""
    with bound_contextvars(session=session) if session else nullcontext():
        yield


def _actor(intent: Intent) -> str:
    """Who carries it out: a rule, where one called for it."""
    rule = intent.args.get("rule")
    return f"rule {rule}" if rule else DAEMON


def _moved(before: SessionFacts, after: SessionFacts) -> bool:
    """Something changed that an effect may wait for."""
    return (before.activity.state, before.live, before.wanted) != (after.activity.state, after.live, after.wanted)
