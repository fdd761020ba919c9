"""Budgets: what a session, a day or a project may use, in dollars or tokens.

When a session starts, an amount is reserved for it: what earlier sessions of its kind used. As many sessions start at
once as fit. Actual use is counted as it is measured; a session over a budget gets an event, and the rule
`budget-exceeded` decides: by default the session is stopped, its work is saved, and a person is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import structlog

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.units import Amount
from agent_orchestrator.core import events as e
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Offer, SessionFacts, Usage
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.start_decision import holds_slot
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.lifecycle.usage_wait import SessionWait
from agent_orchestrator.sessions.part import Core, Part

WARNING_SHARE = 0.8
"""The part of a budget at which a person is notified."""
DEFAULT_EXPECTED_USE = {"USD": 0.25, "tokens": 100_000.0}
"""What a session is expected to use if nothing is known about its kind; at most a tenth of the shared budget."""
MAX_SHARE_FACTOR = 1.5
"""How many times its limit of a shared budget one session counts for at most: usage is its agent's claim and must not block all others."""
MAX_OWN_FACTOR = 10.0
"""The same factor for the session's own budget: it is paused at the end of it, and a single step does not cost more than that."""
SAMPLE_SIZE = 20
"""The number of earlier sessions that an expectation is computed from."""
DAY_SECONDS = 86400.0
DAY_RECHECK_SECONDS = 300.0
"""Seconds after which it is checked again whether another day has begun."""
NEXT_DAY_MESSAGE = "Another day has begun, and its budget with it. Go on where you left off."

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cap:
    """One budget: which sessions count, and over which time."""

    scope: str
    """`session`, `day` or `project`."""
    amount: Amount
    name: str
    """The name that people are shown."""
    projects: frozenset[str]
    profile: str | None = None
    """Only sessions of this profile count; None: all of the projects."""

    def applies_to(self, facts: SessionFacts) -> bool:
        """Return whether a session's use counts towards this budget."""
        return facts.project in self.projects and self.profile in (None, facts.spec.profile)


def usage_amount(used: Usage, unit: str) -> float:
    """Return the usage in a budget's unit; 0 dollars if they are not known."""
    return float(used.input + used.output) if unit == "tokens" else used.usd or 0.0


def has_unmeasured_usage(facts: SessionFacts, unit: str) -> bool:
    """Return whether a session used something whose amount in this unit is not known."""
    if unit != "tokens" and any(
        usage.usd is None and usage.input + usage.output for usage in facts.daily_usage.values()
    ):
        return True
    total = facts.usage
    has_worked = facts.launch is not None and (
        facts.launch.ended or facts.done_summary is not None or bool(facts.last_turn_text)
    )
    return has_worked and not (total.input or total.output or total.usd)


def day_of(time: float) -> str:
    """Return the UTC day of a time, as usage is kept by."""
    return rfc3339(time)[:10]


def usage_on(facts: SessionFacts, day: str) -> Usage:
    """Return what a session used on a day."""
    total = Usage()
    for day_and_model, usage in facts.daily_usage.items():
        if day_and_model.startswith(day):
            total = total.plus(usage)
    return total


def raise_key(scope: str, day: str) -> str:
    """Return the key of a budget among those that a person raised for a session."""
    return f"day {day}" if scope == "day" else scope


def format_amount(value: float, unit: str) -> str:
    """Return an amount as text for people, without its unit."""
    return f"{value:,.0f}" if unit == "tokens" else f"{value:.2f}" if value >= 0.01 or not value else f"{value:.4f}"


class Budgets(Part):
    """Measures what sessions spend against the budgets, and decides which may start or continue."""

    source = "budget"

    def __init__(self, core: Core, notices: NoticeGate) -> None:
        super().__init__(core)
        self._notices = notices
        self._caps: dict[tuple[str, str | None], tuple[ProjectConfig, tuple[Cap, ...]]] = {}
        self._spent_amounts: tuple[int, str, dict[Cap, float]] = (-1, "", {})
        self._usual_amounts: tuple[int, dict[tuple[str, str, str, float], float | None]] = (-1, {})
        self._reservations: tuple[Sequence[SessionFacts], int, dict[Cap, float]] = ((), 0, {})
        self._timer: Timer | None = None

    def start(self) -> None:
        """Check what was spent before the start, and whenever a session spends more."""
        self.on(self._check_spenders)
        self._check_sessions(list(self.flow.sessions.values()))
        self._resume_on_new_day()

    async def close(self) -> None:
        """Cancel the timer and all recordings under way."""
        if self._timer:
            self._timer.cancel()
        await super().close()

    # -- the budgets and their use -------------------------------------------------------------------------------------

    def caps(self, project: str, profile: str | None) -> tuple[Cap, ...]:
        """Return the budgets that sessions of a project and profile count towards."""
        settings = self.core.config.project(project)
        if settings is None:
            return ()
        cached = self._caps.get((project, profile))
        if cached is None or cached[0] is not settings:
            cached = self._caps[project, profile] = (settings, tuple(self._configured_caps(settings, profile)))
        return cached[1]

    def _configured_caps(self, project: ProjectConfig, profile: str | None) -> Iterable[Cap]:
        of_profile = project.profiles[profile].budget if profile and profile in project.profiles else None
        projects, maximum = (
            frozenset({project.id}),
            (of_profile and of_profile.per_session) or project.budget.per_session,
        )
        if maximum:
            yield Cap("session", maximum, "the session's budget", projects, profile)
        if project.budget.per_day:
            yield Cap("day", project.budget.per_day, f"the day's budget of {project.id}", projects)
        if of_profile and of_profile.per_day:
            yield Cap("day", of_profile.per_day, f"the day's budget of {profile}", projects, profile)
        for limit in self.core.config.day_budgets():
            if project.id in limit.projects:
                yield Cap("day", limit.amount, "the day's budget of all projects", limit.projects)
        if project.budget.per_project:
            yield Cap("project", project.budget.per_project, f"the budget of {project.id}", projects)
        if of_profile and of_profile.per_project:
            yield Cap("project", of_profile.per_project, f"the budget of {profile}", projects, profile)

    def spent_use(self, cap: Cap) -> float:
        """Return what was used of a shared budget, as far as it is known."""
        day = day_of(self.clock())
        if self._spent_amounts[:2] != (self.flow.seq, day):
            self._spent_amounts = (self.flow.seq, day, {})
        sums = self._spent_amounts[2]
        if cap not in sums:
            sessions = (facts for facts in self.flow.sessions.values() if cap.applies_to(facts))
            unit, by_day, budget = cap.amount.unit, cap.scope == "day", cap.amount.value
            values = (
                (facts, usage_amount(usage_on(facts, day) if by_day else facts.usage, unit)) for facts in sessions
            )
            counted = (value if value <= budget / 10 else self._plausible(cap, facts, value) for facts, value in values)
            sums[cap] = sum(counted) + self._spent_by_plans(cap, day)
        return sums[cap]

    def _plausible(self, cap: Cap, facts: SessionFacts, value: float) -> float:
        """Return what a session claims to have used, capped at what its own budget and the shared one would have allowed."""
        caps, unit = self.caps(facts.project, facts.spec.profile), cap.amount.unit
        own_maxima = [
            MAX_OWN_FACTOR * self.limit(own_cap, facts)
            for own_cap in caps
            if own_cap.scope == "session" and own_cap.amount.unit == unit
        ]
        return min(value, MAX_SHARE_FACTOR * self.limit(cap, facts), *own_maxima)

    def _spent_by_plans(self, cap: Cap, day: str) -> float:
        """Return what the plans of the budget's projects used; planning counts towards a project's use."""
        if cap.profile is not None:
            return 0.0
        plans = [entry for entry in self.flow.home.plans.values() if entry.project in cap.projects]
        plan_usage = [entry.usage for entry in plans if cap.scope != "day" or day_of(entry.created_at) == day]
        return sum(
            usage_amount(Usage(entry.input, entry.output, usd=entry.usd), cap.amount.unit) for entry in plan_usage
        )

    def limit(self, cap: Cap, facts: SessionFacts) -> float:
        """Return how much a session may use: the budget, and as much again for each time that a person raised it."""
        key = raise_key(cap.scope, day_of(self.clock()))
        return cap.amount.value * (1 + facts.budget_raises.get(key, 0))

    # -- reserving -----------------------------------------------------------------------------------------------------

    def expected_use(self, facts: SessionFacts, cap: Cap) -> float:
        """Return what a session is expected to use in all: what earlier ones of its kind used, at most its budgets."""
        caps, unit = self.caps(facts.project, facts.spec.profile), cap.amount.unit
        own_budget = next(
            (other_cap.amount for other_cap in caps if other_cap.scope == "session" and other_cap.amount.unit == unit),
            None,
        )
        usual = self._median_use(facts, unit, MAX_SHARE_FACTOR * cap.amount.value)
        if usual is None:
            usual = own_budget.value if own_budget else min(DEFAULT_EXPECTED_USE[unit], cap.amount.value / 10)
        return min(usual, cap.amount.value, own_budget.value if own_budget else usual)

    def _median_use(self, facts: SessionFacts, unit: str, maximum: float) -> float | None:
        """Return the median use of earlier sessions of the same kind, or None; uses above `maximum` cannot be right and are left out."""
        if self._usual_amounts[0] != self.flow.seq:
            self._usual_amounts = (self.flow.seq, {})
        kind = facts.spec.profile or facts.spec.agent
        key = (facts.project, kind, unit, maximum)
        if key not in self._usual_amounts[1]:
            similar = [
                (session.created_at, use)
                for session in self.flow.sessions.values()
                if session.project == facts.project
                and (session.spec.profile or session.spec.agent) == kind
                and not holds_slot(session)
                and 0 < (use := usage_amount(session.usage, unit)) <= maximum
            ]
            amounts = [use for _, use in sorted(similar)[-SAMPLE_SIZE:]]
            self._usual_amounts[1][key] = median(amounts) if amounts else None
        return self._usual_amounts[1][key]

    def reserved_use(self, cap: Cap, at_work: Sequence[SessionFacts]) -> float:
        """Return what is reserved for the sessions at work beyond what they used; continues the sum if the same list has grown."""
        counted_list, count, sums = self._reservations
        if counted_list is not at_work or count > len(at_work):
            count, sums = 0, {}
        for session in at_work[count:]:
            for session_cap in self.caps(session.project, session.spec.profile):
                if session_cap.scope != "session":
                    remaining = self.expected_use(session, session_cap) - usage_amount(
                        session.usage, session_cap.amount.unit
                    )
                    sums[session_cap] = sums.get(session_cap, 0.0) + max(0.0, remaining)
        self._reservations = (at_work, len(at_work), sums)
        return sums.get(cap, 0.0)

    def gate(self, facts: SessionFacts, at_work: Sequence[SessionFacts]) -> str:
        """Return why a waiting session must not start: a budget is spent, or reserved for sessions at work; "" if it may start."""
        for cap in self.caps(facts.project, facts.spec.profile):
            if cap.scope == "session":
                continue
            spent, reserved, limit = self.spent_use(cap), self.reserved_use(cap, at_work), self.limit(cap, facts)
            unit, still_expected = (
                cap.amount.unit,
                max(0.0, self.expected_use(facts, cap) - usage_amount(facts.usage, cap.amount.unit)),
            )
            if spent >= limit:
                return self._spent_reason(cap, spent, limit)
            if (spent or reserved) and spent + reserved + still_expected > limit * (1 + 1e-9):
                figures = f"{format_amount(spent, unit)} of {format_amount(limit, unit)} {unit} spent"
                figures += f", {format_amount(reserved, unit)} reserved"
                return f"room in {cap.name}: {figures}, {format_amount(still_expected, unit)} expected"
        return ""

    def exhausted_reason(self, project: str, profile: str | None) -> str:
        """Return a sentence that names the shared budget which leaves nothing for more of this work, or "" if there is room."""
        for cap in self.caps(project, profile):
            if cap.scope != "session" and (spent := self.spent_use(cap)) >= cap.amount.value:
                unit = cap.amount.unit
                return f"{cap.name} is spent: {format_amount(spent, unit)} of {format_amount(cap.amount.value, unit)} {unit}"
        return ""

    def wait(self, facts: SessionFacts) -> SessionWait | None:
        """Return why a session gets no message: its day's or project's budget is spent and the rule is to stop then; None if it may."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        if not any(rule.trigger == "budget-exceeded" and rule.action == "stop" and rule.auto for rule in rules):
            return None
        now = self.clock()
        for cap in self.caps(facts.project, facts.spec.profile):
            if cap.scope != "session" and (spent := self.spent_use(cap)) > (limit := self.limit(cap, facts)):
                return SessionWait(
                    self._spent_reason(cap, spent, limit),
                    now - now % DAY_SECONDS + DAY_SECONDS if cap.scope == "day" else now + DAY_SECONDS,
                )
        return None

    def _spent_reason(self, cap: Cap, spent: float, limit: float) -> str:
        unit = cap.amount.unit
        text = f"{cap.name} is spent: {format_amount(spent, unit)} of {format_amount(limit, unit)} {unit}"
        return f"tomorrow: {text}" if cap.scope == "day" else f"a greater budget: {text}"

    # -- checking what was spent ---------------------------------------------------------------------------------------

    def _check_spenders(self, changes: Sequence[FactsChange]) -> None:
        spenders = {
            change.after.id: change.after for change in changes if change.after and _is_usage(change.event.body)
        }
        if spenders:
            self._check_sessions(list(spenders.values()))

    def _check_sessions(self, sessions: Sequence[SessionFacts]) -> None:
        events = {event.key: event for facts in sessions for event in self._budget_events(facts)}
        self._record_in_background(list(events.values()))

    def _record_in_background(self, events: Sequence[Event]) -> None:
        if events:
            self.spawn(self._append(events))

    async def _append(self, events: Sequence[Event]) -> None:
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("a spent budget could not be recorded; it is at the next use", error=str(error))

    def _budget_events(self, facts: SessionFacts) -> list[Event]:
        """Return events for the budgets that a session's use exceeds or nearly does: its own, and those it shares with others."""
        events: list[Event] = []
        for cap in self.caps(facts.project, facts.spec.profile):
            is_own = cap.scope == "session"
            spent = usage_amount(facts.usage, cap.amount.unit) if is_own else self.spent_use(cap)
            if spent > cap.amount.value:
                affected = (
                    [facts]
                    if is_own
                    else [session for session in self.flow.sessions.values() if cap.applies_to(session)]
                )
                events += [
                    self._exceeded_event(session, cap, spent)
                    for session in affected
                    if self._must_pause(session, cap, spent, facts)
                ]
            elif spent >= WARNING_SHARE * cap.amount.value and not facts.stopped:
                events.append(self._warning_event(facts, cap, spent))
        return events

    def _must_pause(self, facts: SessionFacts, cap: Cap, spent: float, spender: SessionFacts) -> bool:
        """Return whether a session is to be paused for a spent budget: it is at work, or it spent it."""
        at_work = facts.live and (holds_slot(facts) or facts.id == spender.id)
        return at_work and facts.requested_state == "run" and not facts.stopped and spent > self.limit(cap, facts)

    def _exceeded_event(self, facts: SessionFacts, cap: Cap, spent: float) -> Event:
        unit, now = cap.amount.unit, self.clock()
        day = day_of(now) if cap.scope == "day" else ""
        limit = Amount(self.limit(cap, facts), unit)
        body = e.BudgetExceeded(cap.scope, str(limit), str(Amount(round(spent, 4), unit)), day)
        key = f"budget:{facts.id}:{cap.scope}:{cap.profile or ''}:{limit}:{day}:{facts.run}"
        return Event(body, now, "budget", key, facts.project, facts.id)

    def _warning_event(self, facts: SessionFacts, cap: Cap, spent: float) -> Event:
        unit, now = cap.amount.unit, self.clock()
        text = f"{format_amount(spent, unit)} of {format_amount(cap.amount.value, unit)} {unit} are spent"
        notification = e.Notified("budget-warning", f"{facts.id}: {cap.name} is nearly spent", text, "warning")
        period = {"session": facts.id, "day": day_of(now)}.get(cap.scope, "")
        key = f"budget-nearly:{cap.name}:{cap.amount}:{','.join(sorted(cap.projects))}:{period}"
        return Event(self._notices(facts.project, notification), now, "budget", key, facts.project, facts.id)

    # -- another day ---------------------------------------------------------------------------------------------------

    def _resume_on_new_day(self) -> None:
        """Restore the sessions that were paused because a day's budget was spent, once another day has begun, and
        schedule the next check.
        """
        now, today, events = self.clock(), day_of(self.clock()), []
        for facts in self.flow.sessions.values():
            offer = facts.stopped and paused_for_day(facts)
            if offer and str(offer.event.get("day")) < today:
                key = f"next-day:{facts.id}:{offer.id}"
                message = e.MessageQueued(f"r-{offer.id}", NEXT_DAY_MESSAGE, f"rule {offer.rule}")
                for number, body in enumerate((e.RestoreRequested(), message)):
                    events.append(Event(body, now, f"rule {offer.rule}", f"{key}:{number}", facts.project, facts.id))
        self._record_in_background(events)
        self._timer = self.clock.call_later(
            min(DAY_RECHECK_SECONDS, max(1.0, DAY_SECONDS - now % DAY_SECONDS)), self._resume_on_new_day
        )

    # -- showing -------------------------------------------------------------------------------------------------------

    def table(self, project: str | None) -> list[dict[str, Any]]:
        """Return every shared budget with what is spent and reserved of it, and the sessions whose use is not known, as JSON."""
        sessions = list(self.flow.sessions.values())
        at_work = [session for session in sessions if holds_slot(session)]
        rows = []
        for cap in self._all_caps(project):
            unit = cap.amount.unit
            unmeasured_sessions = sorted(
                session.id for session in sessions if cap.applies_to(session) and has_unmeasured_usage(session, unit)
            )
            rows.append(
                {
                    "scope": cap.scope,
                    "name": cap.name,
                    "projects": sorted(cap.projects),
                    "profile": cap.profile,
                    "unit": "tokens" if unit == "tokens" else "usd",
                    "budget": cap.amount.value,
                    "spent": None if cap.scope == "session" else round(self.spent_use(cap), 6),
                    "reserved": None if cap.scope == "session" else round(self.reserved_use(cap, at_work), 6),
                    "unknown": unmeasured_sessions,
                }
            )
        return rows

    def _all_caps(self, project: str | None) -> list[Cap]:
        caps: dict[Cap, None] = {}
        for settings in self.core.config.projects():
            if project in (None, settings.id):
                for profile in (None, *settings.profiles):
                    caps |= dict.fromkeys(self.caps(settings.id, profile))
        without_profile = {(cap.scope, cap.amount, cap.projects) for cap in caps if cap.profile is None}
        return [
            cap
            for cap in caps
            if cap.scope != "session"
            or cap.profile is None
            or ("session", cap.amount, cap.projects) not in without_profile
        ]

    def unenforced_reason(self, facts: SessionFacts) -> str:
        """Return why a session's budgets cannot be enforced, or "" if they can or there are none."""
        units = {cap.amount.unit for cap in self.caps(facts.project, facts.spec.profile)}
        unknown_units = sorted(unit for unit in units if has_unmeasured_usage(facts, unit))
        if not unknown_units:
            return ""
        missing = "dollars" if unknown_units == ["USD"] and facts.usage.output else "usage"
        return f"its {missing} are not known: {facts.spec.agent} does not report them; its budget cannot be enforced"


def paused_for_day(facts: SessionFacts) -> Offer | None:
    """Return the offer to raise the budget of a session that is paused because a day's budget is spent, or None."""
    if facts.pr is not None and facts.pr.state != "open":
        return None
    return next((offer for offer in facts.offers if offer.action == RAISE_BUDGET and offer.event.get("day")), None)


def _is_usage(body: e.Body) -> bool:
    return isinstance(body, e.AgentUsage)
