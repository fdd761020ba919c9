"""The runner: takes rows from the outbox, runs their effects and records the results.

Rows of one session run one after the other, different sessions in parallel. An effect returns the events that describe
its result; they are appended in one transaction with the row's final state. It may raise `RetryLater` (try later),
`RetryWhileNeeded` (retry as long as the intent is needed), a retryable error (retry a few times) or any other error (give up
and record an event). Right before an effect runs, the runner checks again that its intent is still needed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import structlog
from structlog.contextvars import bound_contextvars

from agent_orchestrator.core.actor import DAEMON, acting_as
from agent_orchestrator.core.engine import Flow
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
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.outbox import OutboxRow, retry_pause, with_due_time, with_final_state
from agent_orchestrator.core.reactions import Intent, still_needed
from agent_orchestrator.core.signals import AccountsReviewed, EffectAttempted
from agent_orchestrator.errors import AoError, resource_shortage
from agent_orchestrator.protocols import Timer

MAX_ATTEMPTS = 6
"""Number of attempts after which an effect with a retryable error is given up."""
MAX_UNRECORDED_DELAYS = 2
"""Number of failed attempts at a delayed effect before the delay is recorded, if its error usually passes without help."""
MAX_DELAY_PAUSE = 300.0
"""Longest pause in seconds between two attempts at a delayed effect."""
MAX_TIMER_WAIT = 300.0
"""Longest time in seconds until a due time is checked again, so that a jump of the clock is noticed."""

AGENT_TURN_KINDS = frozenset({"deliver", "rebase"})
"""Kinds of intents that may have to wait for the end of the agent's turn."""

log = structlog.get_logger()


class RetryLater(Exception):
    """Raised by an effect that has to wait: run it again in `after` seconds, or as soon as the session's activity changes."""

    def __init__(self, after: float, *events: Event) -> None:
        super().__init__(f"again in {after:g} s")
        self.after = after
        self.events = events


class RetryWhileNeeded(Exception):
    """Raised by an effect that is blocked from outside: it is retried with growing pauses as long as its intent is needed."""

    def __init__(self, error: AoError) -> None:
        super().__init__(str(error))
        self.error = error


RunEffect = Callable[[Intent, int], Awaitable[Sequence[Event]]]


def retry_until_done(run: RunEffect, passes: Callable[[AoError], bool] = lambda _: True) -> RunEffect:
    """Return an effect that is retried as long as it is needed after every error for which `passes` is true."""

    async def run_or_delay(intent: Intent, attempts: int) -> Sequence[Event]:
        """Run the effect, and raise `RetryWhileNeeded` for an error that may pass."""
        try:
            return await run(intent, attempts)
        except (AoError, OSError) as error:
            ao_error = error if isinstance(error, AoError) else resource_shortage(error)
            if ao_error and passes(ao_error):
                raise RetryWhileNeeded(ao_error) from error
            raise

    return run_or_delay


@dataclass(frozen=True, slots=True)
class Effect:
    """How one kind of intent is carried out."""

    run: RunEffect
    """Carries out the intent; gets it with the number of attempts made before."""
    record_attempt_first: bool = False
    """The effect cannot detect whether it ran before, so the attempt is recorded before it starts."""
    fatal_step: str = ""
    """The step at which the session fails if this effect is given up; empty if the session continues."""
    finish_if_started: bool = False
    """Once attempted, the effect is completed even if its intent is no longer needed, because its outcome must be recorded."""


Confirm = Callable[[], Awaitable[None]]
"""Raises an error if another daemon might carry out the same effect."""


class EffectRunner:
    """Runs the due rows of every lane of the outbox."""

    def __init__(self, flow: Flow, effects: Mapping[str, Effect], confirm: Confirm | None = None) -> None:
        """Create a runner; `confirm` is called before each effect."""
        self.flow = flow
        self.effects = effects
        self._confirm = confirm
        self._recorded: dict[str, Sequence[Event]] = {}
        self._rows_by_lane: dict[str, dict[str, OutboxRow]] = defaultdict(dict)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[str, Timer] = {}
        self._running = False
        flow.listeners.on_rows(self.add_rows)
        flow.listeners.on_events(self._make_due)
        flow.listeners.on_signal(AccountsReviewed, self._run_waiting_after_release)

    def start(self, pending: Sequence[OutboxRow]) -> None:
        """Start running the rows of an earlier daemon, those recorded since this object was created, and new ones."""
        self._running = True
        self.add_rows(pending)
        for lane in list(self._rows_by_lane):
            self._schedule_lane(lane)

    async def drain(self, patience: float = 10.0) -> None:
        """Start no more effects, wait `patience` seconds for the running ones, and cancel the rest; the next start resumes them."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        if self._busy:
            _, late = await asyncio.wait(self._busy.values(), timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def add_rows(self, rows: Sequence[OutboxRow]) -> None:
        """Add new rows, or rows with a new due time."""
        lanes = set()
        for row in rows:
            if row.state == "pending" and not self.flow.owner_home(row.intent.session):
                self._rows_by_lane[row.lane][row.intent.key] = row
                lanes.add(row.lane)
        for lane in lanes:
            self._schedule_lane(lane)

    def pending(self) -> list[OutboxRow]:
        """Return all rows that are still to be carried out, now or later."""
        return [row for rows in self._rows_by_lane.values() for row in rows.values()]

    def run_waiting_now(self) -> None:
        """Run the rows now that wait for an agent's turn to end, because what they wait for may be over."""
        now = self.flow.clock()
        for lane, rows in list(self._rows_by_lane.items()):
            for key, row in rows.items():
                if row.due > now and row.intent.kind in AGENT_TURN_KINDS:
                    rows[key] = replace(row, due=now)
            self._schedule_lane(lane)

    def _run_waiting_after_release(self, _signal: AccountsReviewed) -> None:
        """Run the waiting rows now, because sessions may use an account again."""
        self.run_waiting_now()

    def _make_due(self, changes: Sequence[FactsChange]) -> None:
        """Make rows due that wait for a change of the agent's activity, or whose intent is no longer needed."""
        for change in changes:
            before, after = change.before, change.after
            if before is None or after is None or not _has_changed_activity(before, after):
                continue
            now = self.flow.clock()
            for lane in (after.id, f"{after.id} silence"):
                rows = self._rows_by_lane.get(lane)
                if not rows:
                    continue
                for key, row in rows.items():
                    if row.due > now and (row.intent.kind in AGENT_TURN_KINDS or not still_needed(row.intent, after)):
                        rows[key] = replace(row, due=now)
                self._schedule_lane(lane)

    def _schedule_lane(self, lane: str) -> None:
        """Start the lane's next due row, or set a timer for it."""
        if timer := self._timers.pop(lane, None):
            timer.cancel()
        rows = self._rows_by_lane.get(lane)
        if not rows:
            self._rows_by_lane.pop(lane, None)
            return
        if lane in self._busy or not self._running:
            return
        now = self.flow.clock()
        has_unfinished = any(row.attempts and self._must_finish(row) for row in rows.values())
        # Before the next launch it must be known whether the agent of the last one received its message.
        runnable = [row for row in rows.values() if not (has_unfinished and row.intent.kind == "launch")]
        due = [row for row in runnable if row.due <= now]
        if due:
            row = min(due, key=lambda candidate: candidate.order)
            task = asyncio.get_running_loop().create_task(self._run_row(row), name=row.intent.key)
            self._busy[lane] = task
            task.add_done_callback(lambda _: self._on_task_done(lane))
        else:
            wait = max(min(min(row.due for row in runnable) - now, MAX_TIMER_WAIT), 0.001)
            self._timers[lane] = self.flow.clock.call_later(wait, lambda: self._schedule_lane(lane))

    def _must_finish(self, row: OutboxRow) -> bool:
        """Return whether a row's effect must be completed once it was attempted."""
        effect = self.effects.get(row.intent.kind)
        return effect is not None and effect.finish_if_started

    def _on_task_done(self, lane: str) -> None:
        """Free the lane of a row whose task ended, and schedule the lane's next row."""
        self._busy.pop(lane, None)
        self._schedule_lane(lane)

    async def _run_row(self, row: OutboxRow) -> None:
        """Run one row, and keep, drop or postpone it according to the result."""
        rows, key = self._rows_by_lane[row.lane], row.intent.key
        facts_before = self.flow.sessions.get(row.intent.session)
        try:
            if self._confirm is not None and not await self._is_confirmed():
                rows[key] = replace(row, due=self.flow.clock() + 1.0)
                return
            with acting_as(_actor(row.intent), row.cause), log_context(row.intent.session):
                began = self.flow.clock()
                after = await self._attempt(row)
                events = self._recorded.pop(key, ())
                self.flow.listeners.emit(EffectAttempted(row, after, began, events))
                if after.state == "dropped":
                    self._forget(row)
                    await self._recheck_dropped(row.intent)
        except asyncio.CancelledError:
            return
        except Exception as error:  # nothing was recorded, so the row is retried
            is_expected = isinstance(error, AoError)
            (log.warning if is_expected else log.exception)(
                "the result of an effect could not be recorded", intent=key, error=str(error)
            )
            after = replace(rows.get(key, row), due=self.flow.clock() + 1.0)
        if after.state != "pending":
            self._forget(row)
            return
        facts_after = self.flow.sessions.get(row.intent.session)
        if (
            row.intent.kind in AGENT_TURN_KINDS
            and facts_before
            and facts_after
            and _has_changed_activity(facts_before, facts_after)
        ):
            after = replace(after, due=self.flow.clock())  # the change it waits for may have come during the attempt
        rows[key] = after

    async def _is_confirmed(self) -> bool:
        """Return whether `confirm` succeeds; log the error otherwise."""
        assert self._confirm is not None
        try:
            await self._confirm()
        except AoError as error:
            log.warning("an effect waits for the database", error=error.text)
            return False
        return True

    def _forget(self, row: OutboxRow) -> None:
        """Remove a row that was carried out; a newer row that was recorded under the same key stays."""
        rows = self._rows_by_lane[row.lane]
        if row.intent.key in rows and rows[row.intent.key].order == row.order:
            del rows[row.intent.key]

    async def _recheck_dropped(self, intent: Intent) -> None:
        """Recheck the session if a dropped intent became needed again before the drop was recorded."""
        facts = self.flow.sessions.get(intent.session)
        if facts is not None and intent.kind in self.effects and still_needed(intent, facts):
            await self.flow.recheck(intent.session)

    async def _attempt(self, row: OutboxRow) -> OutboxRow:
        """Run a row's effect once if it is still needed, and return the row with the recorded outcome."""
        intent, effect, now = row.intent, self.effects.get(row.intent.kind), self.flow.clock()
        facts = self.flow.sessions.get(intent.session)
        is_needed = not intent.session or (facts is not None and still_needed(intent, facts))
        if effect is None or not (is_needed or (effect.finish_if_started and row.attempts)):
            return await self._record(row, [], with_final_state(row, "dropped", now, "not needed any more"))
        if effect.record_attempt_first:
            row = await self._record(row, [], with_due_time(row, row.due, now, failed_attempt=True))
            self._rows_by_lane[row.lane][intent.key] = row
        try:
            events = await effect.run(intent, row.attempts - effect.record_attempt_first)
        except RetryLater as again:
            later = replace(
                row, due=self.flow.clock() + again.after, attempts=row.attempts - effect.record_attempt_first
            )
            return await self._record(row, again.events, replace(later, updated_at=now))
        except RetryWhileNeeded as hindered:
            return await self._record_delay(row, effect, hindered.error)
        except Exception as error:
            return await self._record_error(row, effect, error)
        return await self._record(row, events, with_final_state(row, "done", self.flow.clock()))

    async def _record_delay(self, row: OutboxRow, effect: Effect, error: AoError) -> OutboxRow:
        """Postpone a row whose effect is delayed; each new reason is recorded once as an event."""
        now, intent = self.flow.clock(), row.intent
        attempts = row.attempts + (not effect.record_attempt_first)
        due = max(now + retry_pause(attempts, most=MAX_DELAY_PAUSE), getattr(error, "until", None) or 0.0)
        is_transient = error.retryable and attempts <= MAX_UNRECORDED_DELAYS
        later = with_due_time(
            row, due, now, failed_attempt=not effect.record_attempt_first, result="" if is_transient else str(error)
        )
        events = []
        if not is_transient and later.result != row.result:
            log.warning("an effect is delayed", intent=intent.key, error=str(error), attempts=attempts)
            facts = self.flow.sessions.get(intent.session)
            body = EffectDelayed(intent.kind, error.text, error.remedy or "it is tried again by itself", attempts)
            key = f"{intent.key}:{row.order}:delayed:{attempts}"
            events = [Event(body, now, "daemon", key, facts.project if facts else None, intent.session)]
        return await self._record(row, events, later)

    async def _record_error(self, row: OutboxRow, effect: Effect, error: Exception) -> OutboxRow:
        """Postpone a row with a retryable error, or mark it as failed and record the event that says so."""
        now = self.flow.clock()
        error = resource_shortage(error) or error
        if not isinstance(error, AoError):
            log.error("an effect failed unexpectedly", intent=row.intent.key, exc_info=error)
        attempts = row.attempts + (not effect.record_attempt_first)
        if getattr(error, "retryable", False) and attempts < MAX_ATTEMPTS:
            log.warning("an effect is tried again", intent=row.intent.key, error=str(error), attempts=attempts)
            due = max(now + retry_pause(attempts), getattr(error, "until", None) or 0.0)
            later = with_due_time(row, due, now, failed_attempt=not effect.record_attempt_first, result=str(error))
            return await self._record(row, [], later)
        text = error.text if isinstance(error, AoError) else f"{type(error).__name__}: {error}"
        remedy = error.remedy if isinstance(error, AoError) else "see the daemon's log"
        intent = row.intent
        facts = self.flow.sessions.get(intent.session)
        body: Body = EffectFailed(intent.kind, text, remedy, attempts)
        if effect.fatal_step:
            body = SessionFailed(effect.fatal_step, text, remedy)
        elif intent.kind == "land":  # the merge is not retried, so it must not stay in the queue
            body = LandingFailed(text, "error")
        elif intent.kind == "deliver":
            may_have_run = attempts > 1 or getattr(error, "retryable", False)
            doubt = "; it cannot be told whether it was written all the same: send it again if it was not"
            body = MessageFailed(
                intent.args["message"], f"it could not be delivered: {text}{doubt if may_have_run else ''}"
            )
        failed_event = Event(
            body, now, "daemon", f"{intent.key}:failed", facts.project if facts else None, intent.session
        )
        return await self._record(row, [failed_event], with_final_state(row, "failed", now, text))

    async def _record(self, row: OutboxRow, events: Sequence[Event], after: OutboxRow) -> OutboxRow:
        """Record the events together with the row's new state, and return the row; do nothing if there is nothing to record."""
        if after.state == "pending" and not events and after.attempts == row.attempts:
            return after
        stored = await self.flow.append(*events, rows=[after])
        if self.flow.listeners.has_signal_listener(EffectAttempted):
            self._recorded[row.intent.key] = stored
        return after


@contextmanager
def log_context(session: str) -> Iterator[None]:
    """Add the session to every log line written within the context."""
    with bound_contextvars(session=session) if session else nullcontext():
        yield


def _actor(intent: Intent) -> str:
    """Return the actor of an intent: the rule that called for it, or the daemon."""
    rule = intent.args.get("rule")
    return f"rule {rule}" if rule else DAEMON


def _has_changed_activity(before: SessionFacts, after: SessionFacts) -> bool:
    """Return whether something changed that an effect may wait for: the activity, the process, or a requested stop."""
    return (before.activity.state, before.live, before.requested_state) != (
        after.activity.state,
        after.live,
        after.requested_state,
    )
