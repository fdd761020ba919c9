"""Budgets: whoever spends more than a session or a day of its project may is told of, and his rule decides (by default: stopped, work
saved). While an account is held or a day's budget is spent, nobody starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import structlog

from agent_orchestrator.config.effective import AgentSettings
from agent_orchestrator.config.values import Amount
from agent_orchestrator.errors import AoError
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.flow.events import Event, rfc3339
from agent_orchestrator.flow.facts import SessionFacts, Usage
from agent_orchestrator.services.plugins import Plugins
from agent_orchestrator.services.scheduler import waiting

log = structlog.get_logger()


class Budgets:
    """Watches what is spent."""

    def __init__(self, flow: Flow, plugins: Plugins) -> None:
        self.flow = flow
        self.plugins = plugins
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look at what was spent before, and whenever something is."""
        self.flow.on_change.append(self._on_change)
        self._look(list(self.flow.sessions.values()))

    def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()

    def _on_change(self, changes: Sequence[Change]) -> None:
        spending = {change.after.id: change.after for change in changes if change.after and _spent(change.event.body)}
        if spending:
            self._look(list(spending.values()))

    def _look(self, sessions: Sequence[SessionFacts]) -> None:
        told = [event for facts in sessions for event in self._exceeded(facts)]
        if told:
            task = asyncio.get_running_loop().create_task(self._tell(told))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, events: Sequence[Event]) -> None:
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("a spent budget could not be recorded; it is at the next use", error=str(error))

    def _exceeded(self, facts: SessionFacts) -> list[Event]:
        """What a session's use exceeds: its own budget, and the day's for all of its project that are at work."""
        settings = self._settings(facts)
        if settings is None or facts.stopped or facts.wanted == "stop":
            return []
        events = []
        own, day = settings.budget.per_session, rfc3339(self.flow.clock())[:10]
        if own is not None and (spent := amount(facts.usage, own.unit)) > own.value:
            events.append(self._event(facts, "session", own, spent, f"{facts.run}"))
        if of_day := self._day(facts.project, settings, day):
            others = (one for one in self.flow.sessions.values() if one.project == facts.project)
            live = [one for one in others if one.live and one.wanted == "run"]
            events += [self._event(one, "day", *of_day, f"{day}:{one.run}") for one in live]
        return events

    def _day(self, project: str, settings: AgentSettings, day: str) -> tuple[Amount, float] | None:
        """The day's budget and what was spent of it, if that is more."""
        budget = settings.budget.per_day
        if budget is None:
            return None
        used = _of_day((one for one in self.flow.sessions.values() if one.project == project), day)
        spent = amount(used, budget.unit)
        return (budget, spent) if spent > budget.value else None

    def _event(self, facts: SessionFacts, scope: str, budget: Amount, spent: float, unique: str) -> Event:
        body = e.BudgetExceeded(scope, str(budget), str(Amount(round(spent, 4), budget.unit)))
        key = f"budget:{facts.id}:{scope}:{budget}:{unique}"
        return Event(body, self.flow.clock(), "budget", key, facts.project, facts.id)

    def _settings(self, facts: SessionFacts) -> AgentSettings | None:
        return self.plugins.config.agent(facts.project, facts.spec.profile or facts.spec.agent)

    def held(self) -> Mapping[str, str]:
        """Why sessions that wait may not start: their account is held, or the day's budget is spent."""
        now, reasons = self.flow.clock(), {}
        day = rfc3339(now)[:10]
        for facts in waiting(self.flow.sessions.values()):
            until = self.flow.home.accounts.get(facts.spec.agent, 0.0)
            settings = self._settings(facts)
            if until > now:
                reasons[facts.id] = f"the usage limit of {facts.spec.agent} to end at {rfc3339(until)}"
            elif settings and (spent := self._day(facts.project, settings, day)):
                reasons[facts.id] = f"tomorrow: the day's budget of {spent[0]} is spent"
        return reasons


def amount(used: Usage, unit: str) -> float:
    """What was used, in a budget's unit."""
    return float(used.input + used.output) if unit == "tokens" else used.usd or 0.0


def _of_day(sessions: Iterable[SessionFacts], day: str) -> Usage:
    total = Usage()
    for facts in sessions:
        for place, used in facts.spent.items():
            if place.startswith(day):
                total = total.plus(used)
    return total


def _spent(body: e.Body) -> bool:
    return isinstance(body, e.AgentUsage)
