"""Usage limits: an account that met one is held for all its sessions, and tried by one of them when its time has come.

Whoever would use the account asks first: a start, a message, a session that met the limit itself. While it is held, nobody goes. After
the reset the first one goes alone; the others follow a few seconds apart once that one works, or was not refused for a minute. A refusal
holds all of them again.

What a plugin reads in its tool's own record is believed. A line of the spool or the screen is a session's word, and whatever runs in it
can write that: it holds the session for as long as it says, and all others of the account for a quarter of an hour, once in four hours;
longer only when another session says the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import CallLater, Timer
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import AccountHold, SessionFacts, hold_key
from agent_orchestrator.core.fold.sessions import LONGEST_LIMIT, believable
from agent_orchestrator.core.reactions import limited_until
from agent_orchestrator.core.rules import Rule
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.fleet.scheduling.slots import holds_slot, waiting
from agent_orchestrator.sessions.usage_wait import Wait

UNKNOWN = 1800.0
"""Seconds that an account is held where no reset time is known; twice as long after each refusal in a row."""
LONGEST_UNKNOWN = 4 * 3600.0
TRIAL = 60.0
"""Seconds after which the first one counts as not refused."""
APART = 3.0
"""Seconds between two that go on after a limit; each waits up to half as long again."""
OPENING = 900.0
"""Seconds after the end of a hold in which sessions go one after the other."""
IN_ORDER = 300.0
"""Seconds after the end of a hold in which those that met the limit go before all others; one that cannot go stops nobody for longer."""
SPOKEN = 900.0
"""Seconds that an account is held on the word of one session."""
SPOKEN_AGAIN = 4 * 3600.0
"""Seconds in which the same session's word holds its account no second time."""
WORDS = frozenset({"spool", "screen"})
"""Where whatever runs in a session may speak."""
LOOK_AGAIN = 30.0
"""A hold is looked at again at least this often, so that a clock that jumps is noticed."""

SHORTEST_DATE = 6
_PART = re.compile(r"[a-z]+|\d+")

log = structlog.get_logger()

Models = Callable[[SessionFacts], str]
"""A session's model, as configured; nothing: not known."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A session met a limit; `read`: its plugin read so, otherwise the session says it."""

    facts: SessionFacts
    resets_at: float | None
    model: str
    at: float
    read: bool


@dataclass(slots=True)
class _Line:
    """Who went on since the end of a hold, in order."""

    hold: AccountHold
    went: dict[str, float] = field(default_factory=dict)


def account_of(facts: SessionFacts) -> str:
    """Whose usage limits a session shares: its profile's account, else its agent's own login."""
    return facts.spec.account or facts.spec.agent


@lru_cache(maxsize=1024)
def same_model(held: str, mine: str) -> bool:
    """May this be the model that is held? One that is not known may be any; `opus` is any opus, but `gpt-5` is no `gpt-5-mini`."""
    if not held or not mine:
        return True
    short, long = sorted((_parts(held), _parts(mine)), key=len)
    return any(
        long[at : at + len(short)] == short
        and _only_numbers(long[at + len(short) :], versions="".join(short).isalpha())
        for at in range(len(long) - len(short) + 1)
    )


def _parts(model: str) -> list[str]:
    """The words and numbers of a model's name, without what stands in brackets: `opus[1m]`."""
    return _PART.findall(model.lower().partition("[")[0])


def _only_numbers(rest: Sequence[str], *, versions: bool) -> bool:
    """Is what follows a model's name but its version, or, where the name has one already, a date?"""
    return all(part == "latest" or (part.isdigit() and (versions or len(part) >= SHORTEST_DATE)) for part in rest)


def concerns(hold: AccountHold, account: str, model: str) -> bool:
    """Does a hold keep this account and model?"""
    return hold.account == account and same_model(hold.model, model)


def ends(hold: AccountHold, now: float) -> float:
    """When a hold's time is up. What cannot be true by today's clock is up already: who tries will see."""
    if hold.until > now + LONGEST_LIMIT or (not hold.named and now < hold.since - 1.0):
        return now
    return hold.until


def is_held(holds: Mapping[str, AccountHold], account: str, model: str, now: float) -> AccountHold | None:
    """The hold that keeps this account and model just now, the longest of several."""
    kept = [
        one for one in holds.values() if one.released is None and concerns(one, account, model) and ends(one, now) > now
    ]
    return max(kept, key=lambda one: one.until, default=None)


def next_hold(
    holds: Mapping[str, AccountHold], account: str, model: str, resets_at: float | None, at: float
) -> e.AccountHeld:
    """What a refusal at a moment holds, and for how long: until the reset, or for a while that grows."""
    known = holds.get(hold_key(account, model))
    again = known is not None and known.released is None and at >= known.until
    times = known.times + 1 if known and again else known.times if known and known.released is None else 1
    until = believable(resets_at, at)
    if until is not None:
        return e.AccountHeld(account, until, "the usage limit is reached", model, True, times)
    pause = min(LONGEST_UNKNOWN, UNKNOWN * 2.0 ** min(times - 1, 10))
    reason = "the usage limit is reached; nobody said until when"
    return e.AccountHeld(account, at + pause, reason, model, False, times)


def on_a_word(hold: e.AccountHeld, at: float, until: float) -> e.AccountHeld:
    """The same hold where only a session's word is there for it: the session waits as it said, the others until then."""
    until = min(hold.until, until)
    reason = "a session says that the usage limit is reached"
    return replace(
        hold, until=until, named=hold.named and until == hold.until, reason=reason, waits=max(at, hold.until)
    )


def is_read(facts: SessionFacts) -> bool:
    """Was its limit read by its plugin, and not told by the session itself?"""
    return facts.activity.state == "limited" and facts.activity.source not in WORDS


def apart(session: str) -> float:
    """Seconds that the next one keeps behind this session."""
    share = int.from_bytes(hashlib.sha256(session.encode()).digest()[:4], "big") / float(1 << 32)
    return APART * (1.0 + share / 2.0)


def holds_at_once(rules: Sequence[Rule]) -> bool:
    """Do the rules hold an account as soon as its limit is met, without a look at anything else?"""
    for rule in rules:
        if rule.trigger == "usage-limit" and rule.action == "hold" and rule.auto:
            return not (rule.condition or rule.delay or rule.threshold or rule.approval_after is not None)
    return False


class Quota:
    """Who may use which account when."""

    def __init__(self, flow: Flow, models: Models, call_later: CallLater | None = None) -> None:
        self.flow = flow
        self.models = models
        self._call_later = call_later
        self._lines: dict[str, _Line] = {}
        self._fresh: dict[str, AccountHold] = {}
        """Holds that are being recorded: they count already."""
        self._known: dict[str, tuple[int, Sequence[SessionFacts]]] = {}
        self._spoke: dict[str, float] = {}
        """When a session's word alone held its account."""
        self._timer: Timer | None = None
        self._due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_release: list[Callable[[], None]] = []
        """Told when somebody who waited may ask again."""

    def start(self) -> None:
        """Hold what was met while nobody looked, and whatever is from now on."""
        self.flow.on_change.append(self._on_change)
        missed = [facts for facts in self.flow.sessions.values() if facts.limited]
        if missed:
            self._begin(self._catch_up(missed))
        self._look()

    async def _catch_up(self, limited: Sequence[SessionFacts]) -> None:
        for facts in limited:
            if await self.flow.store.event_by_key(_held_by(facts, facts.limited_at or 0.0)) is None:
                at = facts.limited_at or 0.0
                self._hold([_Refusal(facts, facts.limit_until, facts.limit_model, at, is_read(facts))])

    def close(self) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- asking --------------------------------------------------------------------------------------------------------

    def model_of(self, facts: SessionFacts) -> str:
        """The session's model: as it is configured, else as it was used last."""
        return facts.spec.model or self.models(facts) or max(facts.spent, default="").partition(" ")[2]

    def holds(self) -> Mapping[str, AccountHold]:
        """All holds, with those that are being recorded."""
        return {**self.flow.home.accounts, **self._fresh}

    def wait(self, facts: SessionFacts) -> Wait | None:
        """Why a session may not use its account just now; nothing: it may."""
        if not self.flow.home.accounts and not self._fresh:
            return None
        now, mine = self.flow.clock(), self._of(facts)
        for hold in mine:
            if hold.released is None and (until := ends(hold, now)) > now:
                return self._later(f"the usage limit of {hold.key} to end at {rfc3339(until)[:19]}Z", until)
        for hold in mine:
            if later := self._behind(facts, hold, now):
                return later
        return None

    def _of(self, facts: SessionFacts) -> list[AccountHold]:
        """The holds of a session's account, of its model or of all."""
        account = account_of(facts)
        found = [one for one in self.holds().values() if one.account == account]
        if any(one.model for one in found):
            model = self.model_of(facts)
            found = [one for one in found if same_model(one.model, model)]
        return found

    def _later(self, reason: str, until: float) -> Wait:
        """Who waits is looked at again when his time comes."""
        self._look_at(until)
        return Wait(reason, until)

    def _behind(self, facts: SessionFacts, hold: AccountHold, now: float) -> Wait | None:
        """Those who go on after a limit do so one after the other; the first of them tries."""
        if hold.released is not None and now > hold.released + OPENING:
            return None
        went = self._line(hold).went
        if facts.id in went:
            return None
        in_order = now < (hold.until if hold.released is None else hold.released) + IN_ORDER
        if in_order and any(_before(one, facts, now) for one in self._met(hold) if one.id not in went):
            return self._later(f"its turn after the usage limit of {hold.key}", now + 1.0)
        if not went:
            return None
        first, began = next(iter(went.items()))
        if hold.released is None and now < began + TRIAL:
            return self._later(f"the usage limit of {hold.key}: {first} tries whether it is over", began + TRIAL)
        last, at = max(went.items(), key=lambda one: one[1])
        turn = at + apart(last)
        return self._later(f"its turn after the usage limit of {hold.key}", turn) if now < turn else None

    def take(self, facts: SessionFacts) -> Wait | None:
        """The same; who may go has gone with that."""
        if later := self.wait(facts):
            return later
        self._went(facts)
        return None

    def gate(self, facts: SessionFacts, at_work: Sequence[SessionFacts]) -> str:
        """Why a session that waits to start must not, given those that are let start in the same moment."""
        if not self.flow.home.accounts and not self._fresh:
            return ""
        if later := self.wait(facts):
            return later.reason
        now = self.flow.clock()
        for hold in self._of(facts):
            over = hold.released is not None and now > hold.released + OPENING
            if over or facts.id in self._line(hold).went:
                continue
            for other in at_work:
                if not other.admitted and hold in self._of(other):
                    return self._later(f"its turn after the usage limit of {hold.key}", now + apart(other.id)).reason
        return ""

    def _line(self, hold: AccountHold) -> _Line:
        """Who went since this hold; a new one begins a new line."""
        line = self._lines.get(hold.key)
        if line is None or (line.hold.until, line.hold.since) != (hold.until, hold.since):
            line = self._lines[hold.key] = _Line(hold)
        return line

    def _went(self, facts: SessionFacts) -> None:
        now = self.flow.clock()
        for hold in self._of(facts):
            if hold.released is not None or ends(hold, now) <= now:
                self._line(hold).went.setdefault(facts.id, now)

    # -- holding -------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        met: list[_Refusal] = []
        over = False
        for change in changes:
            body, facts, event = change.event.body, change.after, change.event
            if isinstance(body, e.AccountHeld):
                self._fresh.pop(hold_key(body.account, body.model), None)
            over = over or isinstance(body, e.AccountReleased)
            if facts is None:
                continue
            if isinstance(body, e.AgentLimit):
                met.append(_Refusal(facts, body.resets_at, body.model, event.time, event.source not in WORDS))
            elif isinstance(body, e.SessionAdmitted):
                self._went(facts)
            elif _works(body):
                self._is_over(facts, event.time)
        self._hold(met)
        self._look()
        for told in self.on_release if over else ():
            told()

    def _hold(self, met: Sequence[_Refusal]) -> None:
        events: list[Event] = []
        for one in met:
            facts, account, key = one.facts, account_of(one.facts), hold_key(account_of(one.facts), one.model)
            if not holds_at_once(self.flow.rules(facts.project, facts.spec.profile)):
                continue
            body = self._weighed(one, next_hold(self.holds(), account, one.model, one.resets_at, one.at))
            if body is None:
                continue
            known = self.holds().get(key)
            if known and known.released is None and known.until > max(one.at, body.until):
                body = replace(body, until=known.until, reason=known.reason, named=known.named, times=known.times)
            self._fresh[key] = AccountHold(
                account, one.model, body.until, one.at, body.named, body.times, body.reason, facts.id
            )
            now, others = self.flow.clock(), replace(body, waits=None)
            for other in self._limited(account, one.model, but=facts.id):
                if (other.limit_until or 0.0) > body.until:
                    continue
                unique = f"held:{other.id}:{other.generation}:{body.until:.3f}"
                events.append(Event(others, now, "daemon", unique, other.project, other.id))
            events.append(Event(body, now, "daemon", _held_by(facts, one.at), facts.project, facts.id))
        if events:
            self._record(events)

    def _weighed(self, one: _Refusal, hold: e.AccountHeld) -> e.AccountHeld | None:
        """How much of a hold a refusal is good for: all of it if it was read, or two sessions say so; else a while, and not again soon."""
        if one.read:
            return hold
        key, session = hold_key(hold.account, hold.model), one.facts.id
        known = self.holds().get(key)
        standing = known if known and known.released is None else None
        other = self.flow.sessions.get(standing.session) if standing and standing.session != session else None
        if standing and other and other.limited:
            return on_a_word(hold, one.at, max(one.at + SPOKEN, standing.until, limited_until(other)))
        recent = self._spoke.get(session, known.since if known and known.session == session else -SPOKEN_AGAIN)
        if one.at - recent >= SPOKEN_AGAIN or one.at < recent:
            self._spoke[session] = one.at
            return on_a_word(hold, one.at, one.at + SPOKEN)
        return on_a_word(hold, one.at, standing.until) if standing else None

    def _met(self, hold: AccountHold) -> Sequence[SessionFacts]:
        """The sessions that met this limit, looked for anew when something changed."""
        seq, found = self._known.get(hold.key, (-1, ()))
        if seq != self.flow.seq:
            found = self._limited(hold.account, hold.model)
            self._known[hold.key] = (self.flow.seq, found)
        return found

    def _limited(self, account: str, model: str, but: str = "") -> list[SessionFacts]:
        """The sessions that met this limit and wait for its end."""
        return [
            facts
            for facts in self.flow.sessions.values()
            if facts.id != but
            and facts.limited
            and account_of(facts) == account
            and same_model(model, self.model_of(facts))
        ]

    # -- letting go ----------------------------------------------------------------------------------------------------

    def _is_over(self, facts: SessionFacts, at: float) -> None:
        """A session works with an account whose time is up: the limit is over."""
        now = self.flow.clock()
        for hold in self._of(facts) if self.flow.home.accounts else ():
            if hold.released is not None or hold.key in self._fresh or ends(hold, now) > now:
                continue
            began = self._line(hold).went.get(facts.id)
            if began is not None and at >= began:
                self._release(hold, f"{facts.id} works with it again")

    def _release(self, hold: AccountHold, reason: str, source: str = "daemon") -> None:
        self._record(self._releasing(hold, reason, source))

    def _releasing(self, hold: AccountHold, reason: str, source: str) -> list[Event]:
        body, now = e.AccountReleased(hold.account, hold.model, reason), self.flow.clock()
        unique = f"released:{hold.key}:{hold.since:.3f}:{hold.until:.3f}"
        mine = self._limited(hold.account, hold.model)
        return [
            Event(body, now, source, unique),
            *(Event(body, now, source, f"{unique}:{one.id}", one.project, one.id) for one in mine),
        ]

    async def release(self, name: str) -> dict[str, Any]:
        """A person says that an account may be used again; `name`: the account, for all its holds, or account and model."""
        now = self.flow.clock()
        standing = [one for one in self.holds().values() if one.released is None]
        chosen = [one for one in standing if name in (one.key, one.account)]
        if not chosen:
            known = ", ".join(sorted(one.key for one in standing))
            remedy = f"held are: {known}" if known else "none is: see ao usage"
            raise NotFound(f"no account {name} is held", remedy)
        events = [event for hold in chosen for event in self._releasing(hold, "a person says so", "person")]
        await self.flow.append(*events)
        self._fresh = {key: one for key, one in self._fresh.items() if one not in chosen}
        return {"released": [one.key for one in chosen], "at": rfc3339(now)}

    def _look(self) -> None:
        """Let go of what nobody tried for long, or what cannot be true; and come again."""
        now = self.flow.clock()
        for hold in self.flow.home.accounts.values():
            if hold.released is not None or hold.key in self._fresh:
                continue
            until = ends(hold, now)
            began = next(iter(self._line(hold).went.values()), until)
            own = self.flow.sessions.get(hold.session)
            if (
                own is not None and own.limited
            ):  # it waits longer than the others, and its next try belongs to this hold
                began = max(began, own.limit_until or 0.0)
            if until != hold.until:
                self._release(hold, "its time cannot be right by the clock")
            elif until <= now and now >= max(until, began) + OPENING:
                self._release(hold, "its time is up, and nobody was refused")
            else:
                self._look_at(until if until > now else now + LOOK_AGAIN)

    def _look_at(self, moment: float) -> None:
        if self._timer and self._due <= moment:
            return
        if self._timer:
            self._timer.cancel()
        self._due, now = moment, self.flow.clock()
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._timer = call_later(max(0.05, min(moment - now, LOOK_AGAIN)), self._again)

    def _again(self) -> None:
        self._timer = None
        self._look()
        for told in self.on_release:
            told()

    def _record(self, events: Sequence[Event]) -> None:
        self._begin(self._append(events))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, events: Sequence[Event]) -> None:
        try:
            stored = await self.flow.append(*events)
        except AoError as error:
            log.warning("a usage limit could not be recorded", error=str(error))
            return
        if not stored:  # it was recorded before
            for event in events:
                if isinstance(event.body, e.AccountHeld):
                    self._fresh.pop(hold_key(event.body.account, event.body.model), None)

    # -- telling -------------------------------------------------------------------------------------------------------

    def accounts(self) -> list[dict[str, Any]]:
        """Every account that is in use or held, with its hold."""
        now, sessions = self.flow.clock(), [one for one in self.flow.sessions.values() if not one.stopped]
        rows = [self._row(hold, sessions, now) for hold in self.holds().values() if hold.released is None]
        held = {row["account"] for row in rows if row["model"] is None}
        for account in sorted({account_of(one) for one in sessions} - held):
            mine = [one for one in sessions if account_of(one) == account]
            rows.append(_account_json(account, None, "free", mine))
        return sorted(rows, key=lambda row: (row["account"], row["model"] or ""))

    def _row(self, hold: AccountHold, sessions: Iterable[SessionFacts], now: float) -> dict[str, Any]:
        mine = [one for one in sessions if hold in self._of(one)]
        until = ends(hold, now)
        row = _account_json(hold.account, hold.model or None, "held" if until > now else "trying", mine)
        return {**row, "until": rfc3339(until), "resetKnown": hold.named, "reason": hold.reason}


def _account_json(account: str, model: str | None, state: str, sessions: Sequence[SessionFacts]) -> dict[str, Any]:
    kept = [one for one in sessions if one.limited]
    return {
        "account": account,
        "model": model,
        "state": state,
        "until": None,
        "resetKnown": None,
        "reason": None,
        "agents": sorted({one.spec.agent for one in sessions}),
        "working": sum(holds_slot(one) for one in sessions) - sum(holds_slot(one) for one in kept),
        "waiting": len(waiting(sessions)) + len(kept),
    }


def _before(other: SessionFacts, facts: SessionFacts, now: float) -> bool:
    """Does another go before this one: it met the limit, and met it earlier, and its time has come?"""
    if other.id == facts.id or other.wanted != "run" or other.failure or (other.limit_until or now) > now:
        return False
    if not facts.limited:
        return True
    return (other.limited_at, other.created_at, other.id) < (facts.limited_at, facts.created_at, facts.id)


def _held_by(facts: SessionFacts, at: float) -> str:
    """The key of the hold that a session's refusal made."""
    return f"held:{facts.id}:{facts.generation}:{at:.3f}"


def _works(body: e.Body) -> bool:
    """Something that only an agent does whose model answers."""
    if isinstance(body, e.AgentUsage):
        return body.output > 0
    return isinstance(body, e.AgentTurnEnded | e.AgentDone | e.PermissionAsked | e.AgentProgress)
