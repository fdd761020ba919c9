"""Usage limits: an account that reached one is held for all its sessions; after the reset one session tries it first.

Whatever would use the account asks first: a start, a message, a session that reached the limit itself. While the
account is held, all of them wait. After the reset the first one goes alone; the others follow a few seconds apart once
the first one works, or was not refused for a minute. A refusal holds all of them again.

A limit that a plugin read in its agent's own record is trusted. A line of the spool or the screen is only the session's
claim, because whatever runs in the session can write it: it holds that session for as long as it claims, and all others
of the account for a quarter of an hour, once in four hours; longer only when another session claims the same.

Look here when sessions wait for an account although they should not, or the other way round.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import AccountHold, SessionFacts, hold_key
from agent_orchestrator.core.fold.usage import MAX_LIMIT_SECONDS, plausible_reset_time
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import limited_until
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.core.signals import AccountsReviewed
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.fleet.scheduling.start_decision import holds_slot, list_waiting
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.lifecycle.usage_wait import SessionWait
from agent_orchestrator.sessions.part import Core, Part

UNKNOWN_RESET_HOLD = 1800.0
"""Seconds that an account is held if no reset time is known; doubled after each refusal in a row."""
MAX_UNKNOWN_RESET_HOLD_SECONDS = 4 * 3600.0
TRIAL_SECONDS = 60.0
"""Seconds after which the first session that tries counts as not refused."""
SESSION_INTERVAL = 3.0
"""Seconds between two sessions that continue after a limit; each waits up to half as long in addition."""
ONE_BY_ONE_SECONDS = 900.0
"""Seconds after the end of a hold in which sessions continue one after the other."""
LIMITED_FIRST_SECONDS = 300.0
"""Seconds after the end of a hold in which sessions that reached the limit precede all others; one that cannot continue
blocks no longer.
"""
CLAIM_HOLD_SECONDS = 900.0
"""Seconds that an account is held on the claim of one session."""
CLAIM_INTERVAL = 4 * 3600.0
"""Seconds in which a second claim of the same session does not hold its account again."""
CLAIM_SOURCES = frozenset({"spool", "screen"})
"""Sources of activity that whatever runs in a session can write to."""
RECHECK_SECONDS = 30.0
"""Seconds after which a hold is checked again at the latest, so that a clock that jumps is noticed."""

MIN_DATE_DIGITS = 6
_PART = re.compile(r"[a-z]+|\d+")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _LimitRefusal:
    """A session's report that it reached a usage limit; `read` is whether its plugin read it, otherwise the session claims it."""

    facts: SessionFacts
    resets_at: float | None
    model: str
    at: float
    is_read: bool


@dataclass(slots=True)
class _ContinuationQueue:
    """The sessions that continued since the end of a hold, in order, each with the time."""

    hold: AccountHold
    continued_at: dict[str, float] = field(default_factory=dict)


def account_of(facts: SessionFacts) -> str:
    """Return the account whose usage limits a session shares: its profile's account, else its agent's own login."""
    return facts.spec.account or facts.spec.agent


@lru_cache(maxsize=1024)
def is_same_model(held: str, mine: str) -> bool:
    """Return whether `mine` may be the held model. An unknown one may be any; `opus` is any opus, but `gpt-5` is not `gpt-5-mini`."""
    if not held or not mine:
        return True
    short, long = sorted((_model_parts(held), _model_parts(mine)), key=len)
    return any(
        long[start : start + len(short)] == short
        and _is_version_suffix(long[start + len(short) :], allow_versions="".join(short).isalpha())
        for start in range(len(long) - len(short) + 1)
    )


def _model_parts(model: str) -> list[str]:
    """Return the words and numbers of a model's name, without a part in brackets, as in `opus[1m]`."""
    return _PART.findall(model.lower().partition("[")[0])


def _is_version_suffix(suffix: Sequence[str], *, allow_versions: bool) -> bool:
    """Return whether what follows a model's name is only its version, or a date where the name already has a version."""
    return all(
        part == "latest" or (part.isdigit() and (allow_versions or len(part) >= MIN_DATE_DIGITS)) for part in suffix
    )


def applies_to(hold: AccountHold, account: str, model: str) -> bool:
    """Return whether a hold applies to this account and model."""
    return hold.account == account and is_same_model(hold.model, model)


def hold_end(hold: AccountHold, now: float) -> float:
    """Return when a hold ends. A time that cannot be right by the current clock counts as over: the next session that tries finds out."""
    if hold.until > now + MAX_LIMIT_SECONDS or (not hold.is_reset_time_reported and now < hold.since - 1.0):
        return now
    return hold.until


def active_hold(holds: Mapping[str, AccountHold], account: str, model: str, now: float) -> AccountHold | None:
    """Return the hold that applies to this account and model now, the longest if there are several, or None."""
    active_holds = [
        hold
        for hold in holds.values()
        if hold.released_at is None and applies_to(hold, account, model) and hold_end(hold, now) > now
    ]
    return max(active_holds, key=lambda hold: hold.until, default=None)


def next_hold(
    holds: Mapping[str, AccountHold], account: str, model: str, resets_at: float | None, at: float
) -> e.AccountHeld:
    """Return the hold that a refusal at time `at` causes: until the reset time, or for a period that grows with each refusal."""
    previous = holds.get(hold_key(account, model))
    is_repeated = previous is not None and previous.released_at is None and at >= previous.until
    times = (
        previous.consecutive_holds + 1
        if previous and is_repeated
        else previous.consecutive_holds
        if previous and previous.released_at is None
        else 1
    )
    until = plausible_reset_time(resets_at, at)
    if until is not None:
        return e.AccountHeld(account, until, "the usage limit is reached", model, True, times)
    pause = min(MAX_UNKNOWN_RESET_HOLD_SECONDS, UNKNOWN_RESET_HOLD * 2.0 ** min(times - 1, 10))
    reason = "the usage limit is reached; nobody said until when"
    return e.AccountHeld(account, at + pause, reason, model, False, times)


def limit_to_claim(hold: e.AccountHeld, at: float, until: float) -> e.AccountHeld:
    """Return the hold that a mere claim of a session causes: the session waits as long as it claims, the others at most until `until`."""
    until = min(hold.until, until)
    reason = "a session says that the usage limit is reached"
    return replace(
        hold, until=until, named=hold.named and until == hold.until, reason=reason, waits=max(at, hold.until)
    )


def is_limit_read_by_plugin(facts: SessionFacts) -> bool:
    """Return whether the session's limit was read by its plugin, not claimed by the session itself."""
    return facts.activity.state == "limited" and facts.activity.source not in CLAIM_SOURCES


def delay_after(session: str) -> float:
    """Return the seconds that the next session waits after this one."""
    share = int.from_bytes(hashlib.sha256(session.encode()).digest()[:4], "big") / float(1 << 32)
    return SESSION_INTERVAL * (1.0 + share / 2.0)


def holds_at_once(rules: Sequence[Rule]) -> bool:
    """Return whether the rules hold an account as soon as its limit is reached, without any further condition."""
    for rule in rules:
        if rule.trigger == "usage-limit" and rule.action == "hold" and rule.auto:
            return not (rule.condition or rule.delay or rule.threshold or rule.approval_after is not None)
    return False


class AccountLimits(Part):
    """Decides which session may use which account when."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._queues: dict[str, _ContinuationQueue] = {}
        self._unrecorded_holds: dict[str, AccountHold] = {}
        """Holds that are being recorded; they count already."""
        self._limited_sessions: dict[str, tuple[int, Sequence[SessionFacts]]] = {}
        self._claimed_at: dict[str, float] = {}
        """Session → when its claim alone held its account."""
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def start(self) -> None:
        """Hold the accounts whose limits were reached while the daemon was down, and those whose limits are reached from now on."""
        self.on(self._check_changed)
        missed = [facts for facts in self.flow.sessions.values() if facts.limited]
        if missed:
            self.spawn(self._hold_missed(missed))
        self._review_holds()

    async def _hold_missed(self, limited: Sequence[SessionFacts]) -> None:
        for facts in limited:
            if await self.flow.store.event_by_key(_hold_event_key(facts, facts.limited_at or 0.0)) is None:
                at = facts.limited_at or 0.0
                self._hold(
                    [_LimitRefusal(facts, facts.limit_until, facts.limit_model, at, is_limit_read_by_plugin(facts))]
                )

    async def close(self) -> None:
        """Cancel the timer and all recordings under way."""
        if self._timer:
            self._timer.cancel()
        await super().close()

    # -- asking whether an account may be used -------------------------------------------------------------------------

    def model_of(self, facts: SessionFacts) -> str:
        """Return the session's model: the configured one, else the one it used last."""
        return facts.spec.model or self._configured_model(facts) or max(facts.daily_usage, default="").partition(" ")[2]

    def _configured_model(self, facts: SessionFacts) -> str:
        """Return the model that a session's profile or agent is configured with, or ""."""
        settings = self.core.config.agent(facts.project, facts.spec.profile or facts.spec.agent)
        return (settings and settings.model) or ""

    def holds(self) -> Mapping[str, AccountHold]:
        """Return all holds, including those that are being recorded."""
        return {**self.flow.home.account_holds, **self._unrecorded_holds}

    def wait(self, facts: SessionFacts) -> SessionWait | None:
        """Return why a session may not use its account now, and until when, or None if it may."""
        if not self.flow.home.account_holds and not self._unrecorded_holds:
            return None
        now, own_holds = self.clock(), self._holds_of(facts)
        for hold in own_holds:
            if hold.released_at is None and (until := hold_end(hold, now)) > now:
                return self._wait_until(f"the usage limit of {hold.key} to end at {rfc3339(until)[:19]}Z", until)
        for hold in own_holds:
            if wait := self._wait_for_turn(facts, hold, now):
                return wait
        return None

    def _holds_of(self, facts: SessionFacts) -> list[AccountHold]:
        """Return the holds of a session's account that apply to its model."""
        account = account_of(facts)
        holds = [hold for hold in self.holds().values() if hold.account == account]
        if any(hold.model for hold in holds):
            model = self.model_of(facts)
            holds = [hold for hold in holds if is_same_model(hold.model, model)]
        return holds

    def _wait_until(self, reason: str, until: float) -> SessionWait:
        """Return a wait and schedule a review of the holds for its end."""
        self._schedule_review(until)
        return SessionWait(reason, until)

    def _wait_for_turn(self, facts: SessionFacts, hold: AccountHold, now: float) -> SessionWait | None:
        """Return why a session waits for its turn after a hold, or None: sessions continue one after the other, the
        first one alone as a trial.
        """
        if hold.released_at is not None and now > hold.released_at + ONE_BY_ONE_SECONDS:
            return None
        went = self._queue_since(hold).continued_at
        if facts.id in went:
            return None
        in_order = now < (hold.until if hold.released_at is None else hold.released_at) + LIMITED_FIRST_SECONDS
        if in_order and any(
            _precedes(other, facts, now) for other in self._sessions_limited_by(hold) if other.id not in went
        ):
            return self._wait_until(f"its turn after the usage limit of {hold.key}", now + 1.0)
        if not went:
            return None
        first_session, trial_started = next(iter(went.items()))
        if hold.released_at is None and now < trial_started + TRIAL_SECONDS:
            return self._wait_until(
                f"the usage limit of {hold.key}: {first_session} tries whether it is over",
                trial_started + TRIAL_SECONDS,
            )
        last_session, last_time = max(went.items(), key=lambda entry: entry[1])
        turn = last_time + delay_after(last_session)
        return self._wait_until(f"its turn after the usage limit of {hold.key}", turn) if now < turn else None

    def claim_turn_or_wait(self, facts: SessionFacts) -> SessionWait | None:
        """Return as `wait` does; if the session may use the account, count it as having continued."""
        if wait := self.wait(facts):
            return wait
        self._note_continued(facts)
        return None

    def gate(self, facts: SessionFacts, at_work: Sequence[SessionFacts]) -> str:
        """Return why a waiting session must not start now, or ""; `at_work` includes the sessions that start in the same round."""
        if not self.flow.home.account_holds and not self._unrecorded_holds:
            return ""
        if wait := self.wait(facts):
            return wait.reason
        now = self.clock()
        for hold in self._holds_of(facts):
            is_over = hold.released_at is not None and now > hold.released_at + ONE_BY_ONE_SECONDS
            if is_over or facts.id in self._queue_since(hold).continued_at:
                continue
            for other in at_work:
                if not other.admitted and hold in self._holds_of(other):
                    return self._wait_until(
                        f"its turn after the usage limit of {hold.key}", now + delay_after(other.id)
                    ).reason
        return ""

    def _queue_since(self, hold: AccountHold) -> _ContinuationQueue:
        """Return the sessions that continued since this hold; a new hold begins an empty list."""
        queue = self._queues.get(hold.key)
        if queue is None or (queue.hold.until, queue.hold.since) != (hold.until, hold.since):
            queue = self._queues[hold.key] = _ContinuationQueue(hold)
        return queue

    def _note_continued(self, facts: SessionFacts) -> None:
        now = self.clock()
        for hold in self._holds_of(facts):
            if hold.released_at is not None or hold_end(hold, now) <= now:
                self._queue_since(hold).continued_at.setdefault(facts.id, now)

    # -- holding accounts ----------------------------------------------------------------------------------------------

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        refusals: list[_LimitRefusal] = []
        is_released = False
        for change in changes:
            body, facts, event = change.event.body, change.after, change.event
            if isinstance(body, e.AccountHeld):
                self._unrecorded_holds.pop(hold_key(body.account, body.model), None)
            is_released = is_released or isinstance(body, e.AccountReleased)
            if facts is None:
                continue
            if isinstance(body, e.AgentLimit):
                refusals.append(
                    _LimitRefusal(facts, body.resets_at, body.model, event.time, event.source not in CLAIM_SOURCES)
                )
            elif isinstance(body, e.SessionAdmitted):
                self._note_continued(facts)
            elif _proves_model_answers(body):
                self._release_if_over(facts, event.time)
        self._hold(refusals)
        self._review_holds()
        if is_released:
            self.emit(AccountsReviewed())

    def _hold(self, refusals: Sequence[_LimitRefusal]) -> None:
        events: list[Event] = []
        for refusal in refusals:
            facts, account, key = (
                refusal.facts,
                account_of(refusal.facts),
                hold_key(account_of(refusal.facts), refusal.model),
            )
            if not holds_at_once(self.flow.rules(facts.project, facts.spec.profile)):
                continue
            body = self._limit_to_evidence(
                refusal, next_hold(self.holds(), account, refusal.model, refusal.resets_at, refusal.at)
            )
            if body is None:
                continue
            current_hold = self.holds().get(key)
            if current_hold and current_hold.released_at is None and current_hold.until > max(refusal.at, body.until):
                body = replace(
                    body,
                    until=current_hold.until,
                    reason=current_hold.reason,
                    named=current_hold.is_reset_time_reported,
                    times=current_hold.consecutive_holds,
                )
            self._unrecorded_holds[key] = AccountHold(
                account, refusal.model, body.until, refusal.at, body.named, body.times, body.reason, facts.id
            )
            now, body_for_others = self.clock(), replace(body, waits=None)
            for other in self._sessions_limited(account, refusal.model, except_session=facts.id):
                if (other.limit_until or 0.0) > body.until:
                    continue
                event_key = f"held:{other.id}:{other.generation}:{body.until:.3f}"
                events.append(Event(body_for_others, now, "daemon", event_key, other.project, other.id))
            events.append(Event(body, now, "daemon", _hold_event_key(facts, refusal.at), facts.project, facts.id))
        if events:
            self._record(events)

    def _limit_to_evidence(self, refusal: _LimitRefusal, hold: e.AccountHeld) -> e.AccountHeld | None:
        """Return the hold that a refusal justifies: in full if it was read or two sessions claim it, else a short one,
        and None if that is too soon.
        """
        if refusal.is_read:
            return hold
        key, session = hold_key(hold.account, hold.model), refusal.facts.id
        current_hold = self.holds().get(key)
        active_hold = current_hold if current_hold and current_hold.released_at is None else None
        other = self.flow.sessions.get(active_hold.session) if active_hold and active_hold.session != session else None
        if active_hold and other and other.limited:
            return limit_to_claim(
                hold, refusal.at, max(refusal.at + CLAIM_HOLD_SECONDS, active_hold.until, limited_until(other))
            )
        last_claim = self._claimed_at.get(
            session, current_hold.since if current_hold and current_hold.session == session else -CLAIM_INTERVAL
        )
        if refusal.at - last_claim >= CLAIM_INTERVAL or refusal.at < last_claim:
            self._claimed_at[session] = refusal.at
            return limit_to_claim(hold, refusal.at, refusal.at + CLAIM_HOLD_SECONDS)
        return limit_to_claim(hold, refusal.at, active_hold.until) if active_hold else None

    def _sessions_limited_by(self, hold: AccountHold) -> Sequence[SessionFacts]:
        """Return the sessions that reached this limit, computed again only after something changed."""
        seq, sessions = self._limited_sessions.get(hold.key, (-1, ()))
        if seq != self.flow.seq:
            sessions = self._sessions_limited(hold.account, hold.model)
            self._limited_sessions[hold.key] = (self.flow.seq, sessions)
        return sessions

    def _sessions_limited(self, account: str, model: str, except_session: str = "") -> list[SessionFacts]:
        """Return the sessions that reached this limit and wait for its end."""
        return [
            facts
            for facts in self.flow.sessions.values()
            if facts.id != except_session
            and facts.limited
            and account_of(facts) == account
            and is_same_model(model, self.model_of(facts))
        ]

    # -- releasing accounts --------------------------------------------------------------------------------------------

    def _release_if_over(self, facts: SessionFacts, at: float) -> None:
        """Release the hold of an account that a session works with again after the hold's time is up."""
        now = self.clock()
        for hold in self._holds_of(facts) if self.flow.home.account_holds else ():
            if hold.released_at is not None or hold.key in self._unrecorded_holds or hold_end(hold, now) > now:
                continue
            continued_at = self._queue_since(hold).continued_at.get(facts.id)
            if continued_at is not None and at >= continued_at:
                self._release(hold, f"{facts.id} works with it again")

    def _release(self, hold: AccountHold, reason: str, source: str = "daemon") -> None:
        self._record(self._release_events(hold, reason, source))

    def _release_events(self, hold: AccountHold, reason: str, source: str) -> list[Event]:
        body, now = e.AccountReleased(hold.account, hold.model, reason), self.clock()
        event_key = f"released:{hold.key}:{hold.since:.3f}:{hold.until:.3f}"
        waiting_sessions = self._sessions_limited(hold.account, hold.model)
        return [
            Event(body, now, source, event_key),
            *(
                Event(body, now, source, f"{event_key}:{waiting.id}", waiting.project, waiting.id)
                for waiting in waiting_sessions
            ),
        ]

    async def release(self, name: str) -> dict[str, Any]:
        """Release an account on a person's request; `name` is an account, for all its holds, or account and model.
        Raises NotFound if none is held.
        """
        now = self.clock()
        active_holds = [active_hold for active_hold in self.holds().values() if active_hold.released_at is None]
        chosen = [active_hold for active_hold in active_holds if name in (active_hold.key, active_hold.account)]
        if not chosen:
            held_names = ", ".join(sorted(active_hold.key for active_hold in active_holds))
            remedy = f"held are: {held_names}" if held_names else "none is: see ao usage"
            raise NotFound(f"no account {name} is held", remedy)
        events = [event for hold in chosen for event in self._release_events(hold, "a person says so", "person")]
        await self.flow.append(*events)
        self._unrecorded_holds = {
            key: active_hold for key, active_hold in self._unrecorded_holds.items() if active_hold not in chosen
        }
        return {"released": [active_hold.key for active_hold in chosen], "at": rfc3339(now)}

    def _review_holds(self) -> None:
        """Release the holds that no session tried for long or whose time cannot be right, and schedule the next review."""
        now = self.clock()
        for hold in self.flow.home.account_holds.values():
            if hold.released_at is not None or hold.key in self._unrecorded_holds:
                continue
            until = hold_end(hold, now)
            trial_started = next(iter(self._queue_since(hold).continued_at.values()), until)
            holding_session = self.flow.sessions.get(hold.session)
            if (
                holding_session is not None and holding_session.limited
            ):  # it waits longer than the others, and its next try belongs to this hold
                trial_started = max(trial_started, holding_session.limit_until or 0.0)
            if until != hold.until:
                self._release(hold, "its time cannot be right by the clock")
            elif until <= now and now >= max(until, trial_started) + ONE_BY_ONE_SECONDS:
                self._release(hold, "its time is up, and nobody was refused")
            else:
                self._schedule_review(until if until > now else now + RECHECK_SECONDS)

    def _schedule_review(self, moment: float) -> None:
        if self._timer and self._timer_at <= moment:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at, now = moment, self.clock()
        self._timer = self.clock.call_later(max(0.05, min(moment - now, RECHECK_SECONDS)), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._review_holds()
        self.emit(AccountsReviewed())

    def _record(self, events: Sequence[Event]) -> None:
        self.spawn(self._append(events))

    async def _append(self, events: Sequence[Event]) -> None:
        try:
            stored_events = await self.flow.append(*events)
        except AoError as error:
            log.warning("a usage limit could not be recorded", error=str(error))
            return
        if not stored_events:  # it was recorded before
            for event in events:
                if isinstance(event.body, e.AccountHeld):
                    self._unrecorded_holds.pop(hold_key(event.body.account, event.body.model), None)

    # -- showing -------------------------------------------------------------------------------------------------------

    def accounts(self) -> list[dict[str, Any]]:
        """Return every account that is in use or held, with its hold, as JSON."""
        now, sessions = self.clock(), [facts for facts in self.flow.sessions.values() if not facts.stopped]
        rows = [self._row(hold, sessions, now) for hold in self.holds().values() if hold.released_at is None]
        held_accounts = {row["account"] for row in rows if row["model"] is None}
        for account in sorted({account_of(facts) for facts in sessions} - held_accounts):
            account_sessions = [facts for facts in sessions if account_of(facts) == account]
            rows.append(_account_json(account, None, "free", account_sessions))
        return sorted(rows, key=lambda row: (row["account"], row["model"] or ""))

    def _row(self, hold: AccountHold, sessions: Iterable[SessionFacts], now: float) -> dict[str, Any]:
        held_sessions = [facts for facts in sessions if hold in self._holds_of(facts)]
        until = hold_end(hold, now)
        row = _account_json(hold.account, hold.model or None, "held" if until > now else "trying", held_sessions)
        return {**row, "until": rfc3339(until), "resetKnown": hold.is_reset_time_reported, "reason": hold.reason}


def _account_json(account: str, model: str | None, state: str, sessions: Sequence[SessionFacts]) -> dict[str, Any]:
    limited_sessions = [facts for facts in sessions if facts.limited]
    return {
        "account": account,
        "model": model,
        "state": state,
        "until": None,
        "resetKnown": None,
        "reason": None,
        "agents": sorted({facts.spec.agent for facts in sessions}),
        "working": sum(holds_slot(facts) for facts in sessions) - sum(holds_slot(facts) for facts in limited_sessions),
        "waiting": len(list_waiting(sessions)) + len(limited_sessions),
    }


def _precedes(other: SessionFacts, facts: SessionFacts, now: float) -> bool:
    """Return whether `other`, which reached a limit, continues before this session after the hold: its reset time has come,
    and this session did not reach the limit or did so later.
    """
    if other.id == facts.id or other.requested_state != "run" or other.failure or (other.limit_until or now) > now:
        return False
    if not facts.limited:
        return True
    return (other.limited_at, other.created_at, other.id) < (facts.limited_at, facts.created_at, facts.id)


def _hold_event_key(facts: SessionFacts, at: float) -> str:
    """Return the event key of the hold that a session's refusal causes."""
    return f"held:{facts.id}:{facts.generation}:{at:.3f}"


def _proves_model_answers(body: e.Body) -> bool:
    """Return whether an event occurs only if the agent's model answers."""
    if isinstance(body, e.AgentUsage):
        return body.output > 0
    return isinstance(body, e.AgentTurnEnded | e.AgentDone | e.PermissionAsked | e.AgentProgress)
