"""Budgets: what a session, a day or a project may use, in dollars or tokens.

A session that starts has something set aside for it: what earlier ones of its kind used. So many start at once as fit. What they really
use is counted as it is measured; whoever is over is told of by an event, and the rule `budget-exceeded` decides: by default he is stopped,
his work saved, and a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import structlog

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.config.values import Amount
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import CallLater, Timer
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Offer, SessionFacts, Usage
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.slots import holds_slot
from agent_orchestrator.sessions.usage_wait import Wait

WARN_AT = 0.8
"""The part of a budget at which a person is told."""
EXPECTED = {"USD": 0.25, "tokens": 100_000.0}
"""What a session is expected to use that nothing is known about; at most a tenth of the budget it counts into."""
COUNTED = 1.5
"""Of a budget that sessions share, how much one of them counts for at most: it is its agent's word, and a person can let others go on."""
OVERDRAWN = 10.0
"""The same, of its own budget: at the end of that it is paused, and a single step costs no more than that."""
REMEMBERED = 20
"""Earlier sessions that an expectation is made of."""
DAY = 86400.0
LOOK_AGAIN = 300.0
"""Seconds after which it is looked again whether another day has begun."""
NEXT_DAY = "Another day has begun, and its budget with it. Go on where you left off."

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cap:
    """One budget: of which sessions, over which time."""

    scope: str
    """`session`, `day` or `project`."""
    amount: Amount
    name: str
    """What people call it."""
    projects: frozenset[str]
    profile: str | None = None
    """Only sessions of this profile count."""

    def counts(self, facts: SessionFacts) -> bool:
        """Does a session's use count into it?"""
        return facts.project in self.projects and self.profile in (None, facts.spec.profile)


def amount(used: Usage, unit: str) -> float:
    """What was used, in a budget's unit, as far as that is known."""
    return float(used.input + used.output) if unit == "tokens" else used.usd or 0.0


def unmeasured(facts: SessionFacts, unit: str) -> bool:
    """Did a session use something of which nobody knows how much it is in this unit?"""
    if unit != "tokens" and any(one.usd is None and one.input + one.output for one in facts.spent.values()):
        return True
    used = facts.usage
    worked = facts.launch is not None and (facts.launch.ended or facts.done is not None or bool(facts.said))
    return worked and not (used.input or used.output or used.usd)


def day_of(time: float) -> str:
    """The UTC day, as usage is kept by."""
    return rfc3339(time)[:10]


def used_on(facts: SessionFacts, day: str) -> Usage:
    """What a session used on a day."""
    total = Usage()
    for place, used in facts.spent.items():
        if place.startswith(day):
            total = total.plus(used)
    return total


def raised_key(scope: str, day: str) -> str:
    """How a budget is named among those that a person raised for a session."""
    return f"day {day}" if scope == "day" else scope


def shown(value: float, unit: str) -> str:
    """A figure as people read it, without its unit."""
    return f"{value:,.0f}" if unit == "tokens" else f"{value:.2f}" if value >= 0.01 or not value else f"{value:.4f}"


class Budgets:
    """Watches what is spent, and says who may spend more."""

    def __init__(self, flow: Flow, config: ConfigSet, call_later: CallLater | None = None) -> None:
        self.flow = flow
        self.config = config
        self.notice: Callable[[str, e.Notified], e.Body] = lambda _project, told: told
        """What becomes of a notification; in quiet hours it waits."""
        self._call_later = call_later
        self._caps: dict[tuple[str, str | None], tuple[ProjectConfig, tuple[Cap, ...]]] = {}
        self._spent: tuple[int, str, dict[Cap, float]] = (-1, "", {})
        self._usual: tuple[int, dict[tuple[str, str, str, float], float | None]] = (-1, {})
        self._reserved: tuple[Sequence[SessionFacts], int, dict[Cap, float]] = ((), 0, {})
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look at what was spent before, and whenever something is."""
        self.flow.on_change.append(self._on_change)
        self._look(list(self.flow.sessions.values()))
        self._each_day()

    def close(self) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- what counts ---------------------------------------------------------------------------------------------------

    def caps(self, project: str, profile: str | None) -> tuple[Cap, ...]:
        """The budgets that sessions of a project and profile count into."""
        settings = self.config.project(project)
        if settings is None:
            return ()
        known = self._caps.get((project, profile))
        if known is None or known[0] is not settings:
            known = self._caps[project, profile] = (settings, tuple(self._made(settings, profile)))
        return known[1]

    def _made(self, project: ProjectConfig, profile: str | None) -> Iterable[Cap]:
        own = project.profiles[profile].budget if profile and profile in project.profiles else None
        one, each = frozenset({project.id}), (own and own.per_session) or project.budget.per_session
        if each:
            yield Cap("session", each, "the session's budget", one, profile)
        if project.budget.per_day:
            yield Cap("day", project.budget.per_day, f"the day's budget of {project.id}", one)
        if own and own.per_day:
            yield Cap("day", own.per_day, f"the day's budget of {profile}", one, profile)
        for limit in self.config.day_budgets():
            if project.id in limit.projects:
                yield Cap("day", limit.amount, "the day's budget of all projects", limit.projects)
        if project.budget.per_project:
            yield Cap("project", project.budget.per_project, f"the budget of {project.id}", one)
        if own and own.per_project:
            yield Cap("project", own.per_project, f"the budget of {profile}", one, profile)

    def spent(self, cap: Cap) -> float:
        """What was used of a shared budget, as far as it is known."""
        day = day_of(self.flow.clock())
        if self._spent[:2] != (self.flow.seq, day):
            self._spent = (self.flow.seq, day, {})
        sums = self._spent[2]
        if cap not in sums:
            mine = (facts for facts in self.flow.sessions.values() if cap.counts(facts))
            unit, by_day, most = cap.amount.unit, cap.scope == "day", cap.amount.value
            used = ((facts, amount(used_on(facts, day) if by_day else facts.usage, unit)) for facts in mine)
            told = (value if value <= most / 10 else self._believed(cap, facts, value) for facts, value in used)
            sums[cap] = sum(told) + self._of_plans(cap, day)
        return sums[cap]

    def _believed(self, cap: Cap, facts: SessionFacts, value: float) -> float:
        """What a session says it used, as far as its own budget and the shared one would have let it."""
        caps, unit = self.caps(facts.project, facts.spec.profile), cap.amount.unit
        own = [OVERDRAWN * self.limit(one, facts) for one in caps if one.scope == "session" and one.amount.unit == unit]
        return min(value, COUNTED * self.limit(cap, facts), *own)

    def _of_plans(self, cap: Cap, day: str) -> float:
        """Planning counts into what its project uses."""
        if cap.profile is not None:
            return 0.0
        plans = [one for one in self.flow.home.plans.values() if one.project in cap.projects]
        mine = [one.spent for one in plans if cap.scope != "day" or day_of(one.created_at) == day]
        return sum(amount(Usage(one.input, one.output, usd=one.usd), cap.amount.unit) for one in mine)

    def limit(self, cap: Cap, facts: SessionFacts) -> float:
        """How far a session may go: a person may have let it use as much again."""
        key = raised_key(cap.scope, day_of(self.flow.clock()))
        return cap.amount.value * (1 + facts.raised.get(key, 0))

    # -- setting aside -------------------------------------------------------------------------------------------------

    def expected(self, facts: SessionFacts, cap: Cap) -> float:
        """What a session is expected to use in all: what those before it did, at most what it may."""
        caps, unit = self.caps(facts.project, facts.spec.profile), cap.amount.unit
        own = next((one.amount for one in caps if one.scope == "session" and one.amount.unit == unit), None)
        usual = self._usually(facts, unit, COUNTED * cap.amount.value)
        if usual is None:
            usual = own.value if own else min(EXPECTED[unit], cap.amount.value / 10)
        return min(usual, cap.amount.value, own.value if own else usual)

    def _usually(self, facts: SessionFacts, unit: str, most: float) -> float | None:
        """The median of those alike; who says that he used more than anybody can is none."""
        if self._usual[0] != self.flow.seq:
            self._usual = (self.flow.seq, {})
        kind = facts.spec.profile or facts.spec.agent
        key = (facts.project, kind, unit, most)
        if key not in self._usual[1]:
            alike = [
                (one.created_at, used)
                for one in self.flow.sessions.values()
                if one.project == facts.project
                and (one.spec.profile or one.spec.agent) == kind
                and not holds_slot(one)
                and 0 < (used := amount(one.usage, unit)) <= most
            ]
            figures = [used for _, used in sorted(alike)[-REMEMBERED:]]
            self._usual[1][key] = median(figures) if figures else None
        return self._usual[1][key]

    def reserved(self, cap: Cap, at_work: Sequence[SessionFacts]) -> float:
        """What is set aside for those at work, beyond what they used; counted on where it was left off."""
        known, count, sums = self._reserved
        if known is not at_work or count > len(at_work):
            count, sums = 0, {}
        for one in at_work[count:]:
            for each in self.caps(one.project, one.spec.profile):
                if each.scope != "session":
                    rest = self.expected(one, each) - amount(one.usage, each.amount.unit)
                    sums[each] = sums.get(each, 0.0) + max(0.0, rest)
        self._reserved = (at_work, len(at_work), sums)
        return sums.get(cap, 0.0)

    def gate(self, facts: SessionFacts, at_work: Sequence[SessionFacts]) -> str:
        """Why a session that waits must not start: a budget is spent, or set aside for those at work."""
        for cap in self.caps(facts.project, facts.spec.profile):
            if cap.scope == "session":
                continue
            spent, kept, limit = self.spent(cap), self.reserved(cap, at_work), self.limit(cap, facts)
            unit, rest = cap.amount.unit, max(0.0, self.expected(facts, cap) - amount(facts.usage, cap.amount.unit))
            if spent >= limit:
                return self._over(cap, spent, limit)
            if (spent or kept) and spent + kept + rest > limit * (1 + 1e-9):
                figures = f"{shown(spent, unit)} of {shown(limit, unit)} {unit} spent, {shown(kept, unit)} reserved"
                return f"room in {cap.name}: {figures}, {shown(rest, unit)} expected"
        return ""

    def spent_for(self, project: str, profile: str | None) -> str:
        """Which shared budget leaves nothing for more of this work, in words; nothing: there is room."""
        for cap in self.caps(project, profile):
            if cap.scope != "session" and (spent := self.spent(cap)) >= cap.amount.value:
                unit = cap.amount.unit
                return f"{cap.name} is spent: {shown(spent, unit)} of {shown(cap.amount.value, unit)} {unit}"
        return ""

    def wait(self, facts: SessionFacts) -> Wait | None:
        """Why a session is not to be spoken to: its day's or its project's budget is spent, and the rule is to stop then."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        if not any(one.trigger == "budget-exceeded" and one.action == "stop" and one.auto for one in rules):
            return None
        now = self.flow.clock()
        for cap in self.caps(facts.project, facts.spec.profile):
            if cap.scope != "session" and (spent := self.spent(cap)) > (limit := self.limit(cap, facts)):
                return Wait(self._over(cap, spent, limit), now - now % DAY + DAY if cap.scope == "day" else now + DAY)
        return None

    def _over(self, cap: Cap, spent: float, limit: float) -> str:
        unit = cap.amount.unit
        what = f"{cap.name} is spent: {shown(spent, unit)} of {shown(limit, unit)} {unit}"
        return f"tomorrow: {what}" if cap.scope == "day" else f"a greater budget: {what}"

    # -- what was spent ------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        spending = {change.after.id: change.after for change in changes if change.after and _spends(change.event.body)}
        if spending:
            self._look(list(spending.values()))

    def _look(self, sessions: Sequence[SessionFacts]) -> None:
        told = {event.key: event for facts in sessions for event in self._found(facts)}
        self._tell(list(told.values()))

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            task = asyncio.get_running_loop().create_task(self._append(events))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _append(self, events: Sequence[Event]) -> None:
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("a spent budget could not be recorded; it is at the next use", error=str(error))

    def _found(self, facts: SessionFacts) -> list[Event]:
        """What a session's use exceeds, or nearly does: its own budget, and those that it shares with others."""
        events: list[Event] = []
        for cap in self.caps(facts.project, facts.spec.profile):
            own = cap.scope == "session"
            spent = amount(facts.usage, cap.amount.unit) if own else self.spent(cap)
            if spent > cap.amount.value:
                mine = [facts] if own else [one for one in self.flow.sessions.values() if cap.counts(one)]
                events += [self._exceeded(one, cap, spent) for one in mine if self._is_over(one, cap, spent, facts)]
            elif spent >= WARN_AT * cap.amount.value and not facts.stopped:
                events.append(self._warning(facts, cap, spent))
        return events

    def _is_over(self, facts: SessionFacts, cap: Cap, spent: float, spender: SessionFacts) -> bool:
        """Is a session to be paused for it: one at work, or who spent it?"""
        at_work = facts.live and (holds_slot(facts) or facts.id == spender.id)
        return at_work and facts.wanted == "run" and not facts.stopped and spent > self.limit(cap, facts)

    def _exceeded(self, facts: SessionFacts, cap: Cap, spent: float) -> Event:
        unit, now = cap.amount.unit, self.flow.clock()
        day = day_of(now) if cap.scope == "day" else ""
        limit = Amount(self.limit(cap, facts), unit)
        body = e.BudgetExceeded(cap.scope, str(limit), str(Amount(round(spent, 4), unit)), day)
        key = f"budget:{facts.id}:{cap.scope}:{cap.profile or ''}:{limit}:{day}:{facts.run}"
        return Event(body, now, "budget", key, facts.project, facts.id)

    def _warning(self, facts: SessionFacts, cap: Cap, spent: float) -> Event:
        unit, now = cap.amount.unit, self.flow.clock()
        text = f"{shown(spent, unit)} of {shown(cap.amount.value, unit)} {unit} are spent"
        told = e.Notified("budget-warning", f"{facts.id}: {cap.name} is nearly spent", text, "warning")
        which = {"session": facts.id, "day": day_of(now)}.get(cap.scope, "")
        key = f"budget-nearly:{cap.name}:{cap.amount}:{','.join(sorted(cap.projects))}:{which}"
        return Event(self.notice(facts.project, told), now, "budget", key, facts.project, facts.id)

    # -- another day ---------------------------------------------------------------------------------------------------

    def _each_day(self) -> None:
        """Whoever was paused because a day's budget was spent goes on when another day has begun."""
        now, today, events = self.flow.clock(), day_of(self.flow.clock()), []
        for facts in self.flow.sessions.values():
            paused = facts.stopped and paused_for_day(facts)
            if paused and str(paused.event.get("day")) < today:
                key = f"next-day:{facts.id}:{paused.id}"
                go_on = e.MessageQueued(f"r-{paused.id}", NEXT_DAY, f"rule {paused.rule}")
                for number, body in enumerate((e.RestoreRequested(), go_on)):
                    events.append(Event(body, now, f"rule {paused.rule}", f"{key}:{number}", facts.project, facts.id))
        self._tell(events)
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._timer = call_later(min(LOOK_AGAIN, max(1.0, DAY - now % DAY)), self._each_day)

    # -- telling -------------------------------------------------------------------------------------------------------

    def table(self, project: str | None) -> list[dict[str, Any]]:
        """Every shared budget with what is spent and set aside of it, and the sessions whose use nobody knows."""
        sessions = list(self.flow.sessions.values())
        at_work = [one for one in sessions if holds_slot(one)]
        rows = []
        for cap in self._all(project):
            unit = cap.amount.unit
            unknown = sorted(one.id for one in sessions if cap.counts(one) and unmeasured(one, unit))
            rows.append(
                {
                    "scope": cap.scope,
                    "name": cap.name,
                    "projects": sorted(cap.projects),
                    "profile": cap.profile,
                    "unit": "tokens" if unit == "tokens" else "usd",
                    "budget": cap.amount.value,
                    "spent": None if cap.scope == "session" else round(self.spent(cap), 6),
                    "reserved": None if cap.scope == "session" else round(self.reserved(cap, at_work), 6),
                    "unknown": unknown,
                }
            )
        return rows

    def _all(self, project: str | None) -> list[Cap]:
        found: dict[Cap, None] = {}
        for one in self.config.projects():
            if project in (None, one.id):
                for profile in (None, *one.profiles):
                    found |= dict.fromkeys(self.caps(one.id, profile))
        plain = {(cap.scope, cap.amount, cap.projects) for cap in found if cap.profile is None}
        return [
            cap
            for cap in found
            if cap.scope != "session" or cap.profile is None or ("session", cap.amount, cap.projects) not in plain
        ]

    def unenforced(self, facts: SessionFacts) -> str:
        """Why a session's budgets mean nothing; nothing: they are kept, or there are none."""
        units = {cap.amount.unit for cap in self.caps(facts.project, facts.spec.profile)}
        unknown = sorted(unit for unit in units if unmeasured(facts, unit))
        if not unknown:
            return ""
        what = "dollars" if unknown == ["USD"] and facts.usage.output else "usage"
        return f"its {what} are not known: {facts.spec.agent} does not report them; its budget cannot be enforced"


def paused_for_day(facts: SessionFacts) -> Offer | None:
    """What a person may say to a session that is paused because a day's budget is spent."""
    if facts.pr is not None and facts.pr.state != "open":
        return None
    return next((one for one in facts.offers if one.action == RAISE_BUDGET and one.event.get("day")), None)


def _spends(body: e.Body) -> bool:
    return isinstance(body, e.AgentUsage)
