"""What agents used, in tokens and dollars, summed by session, project, agent, model or day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts, Usage
from agent_orchestrator.core.plans import PlanUsage
from agent_orchestrator.errors import UsageError
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets, day_of

MAX_REPORTS = 10_000
MAX_POINTS = 500
"""The most points of a session's course that are returned; enough for any chart."""

GROUP_KEYS: Mapping[str, Callable[[SessionFacts, str, str], str]] = {
    "session": lambda facts, _day, _model: facts.id,
    "project": lambda facts, _day, _model: facts.project,
    "agent": lambda facts, _day, _model: facts.spec.profile or facts.spec.agent,
    "model": lambda _facts, _day, model: model or "unknown",
    "day": lambda _facts, day, _model: day,
}


class UsageReports:
    """Sums what sessions used."""

    def __init__(self, flow: Flow, quota: AccountLimits, budgets: Budgets) -> None:
        self.flow = flow
        self.account_limits = quota
        self.budgets = budgets

    def report(
        self, project: str | None, by: str = "session", since: str | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Return the table, with the accounts and what they are held for, and the budgets and what is left of them, as JSON."""
        rows = self.table(project, by, since, session)
        return {**rows, "accounts": self.account_limits.accounts(), "budgets": self.budgets.table(project)}

    def table(
        self, project: str | None, by: str = "session", since: str | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Return rows by session, project, agent, model or day (UTC), the dearest first; `since` is a day such as `2026-11-15`."""
        if by not in GROUP_KEYS:
            raise UsageError(f"usage is not kept by {by!r}", f"by one of {', '.join(GROUP_KEYS)}")
        key = GROUP_KEYS[by]
        rows: dict[str, Usage] = {}
        for facts in self.flow.sessions.values():
            if project not in (None, facts.project) or session not in (None, facts.id):
                continue
            for day_and_model, usage in facts.daily_usage.items():
                day, _, model = day_and_model.partition(" ")
                if since is None or day >= since:
                    name = key(facts, day, model)
                    rows[name] = rows.get(name, Usage()).plus(usage)
        for plan in self.flow.home.plans.values() if session is None else ():
            day, spent = day_of(plan.created_at), plan.usage
            if project in (None, plan.project) and (since is None or day >= since) and spent != PlanUsage():
                names = {"project": plan.project, "agent": plan.agent, "model": plan.model or "unknown", "day": day}
                name = names.get(by, f"plan {plan.id}")
                rows[name] = rows.get(name, Usage()).plus(Usage(spent.input, spent.output, usd=spent.usd))
        total = Usage()
        for usage in rows.values():
            total = total.plus(usage)
        sorted_rows = sorted(rows.items(), key=lambda row: (-(row[1].usd or 0.0), -row[1].output, row[0]))
        if by == "day":
            sorted_rows.sort(key=lambda row: row[0])
        return {"rows": [{"key": name, **usage_json(usage)} for name, usage in sorted_rows], "total": usage_json(total)}

    async def history(self, session: str) -> dict[str, Any]:
        """Return what a session used over time, summed up, and how much of it by model."""
        events = await self.flow.store.events(0, MAX_REPORTS, session=session, kind="agent-usage", newest=True)
        total, points = Usage(), []
        for event in events:
            if isinstance(event.body, e.AgentUsage):
                body = event.body
                total = total.plus(
                    Usage(body.input, body.output, body.cache_read, body.cache_write, body.usd, body.forge)
                )
                points.append({"at": rfc3339(event.time), **usage_json(total)})
        step = len(points) // MAX_POINTS + 1
        return {"points": points[::-1][::step][::-1], "models": self.table(None, "model", session=session)["rows"]}


def usage_json(used: Usage) -> dict[str, Any]:
    """Return usage in the shape that the API promises."""
    return {
        "input": used.input,
        "output": used.output,
        "cacheRead": used.cache_read,
        "cacheWrite": used.cache_write,
        "usd": None if used.usd is None else round(used.usd, 6),
        "forgeCalls": used.forge,
    }
