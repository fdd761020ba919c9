"""The fleet in one line: who is at work, how the base branches are, which limits hold, what was used today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from agent_orchestrator import __version__
from agent_orchestrator.changes.checks.base_branch import BaseStates
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.scope import ConfigSet, Limit
from agent_orchestrator.config.values import Amount
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts, Usage
from agent_orchestrator.core.plans import Spent
from agent_orchestrator.fleet.scheduling.slots import holds_slot, waiting
from agent_orchestrator.fleet.usage.budgets import amount, day_of
from agent_orchestrator.fleet.usage.usage import usage_json

DAY = 86400.0


class Overviews:
    """Adds up what concerns all sessions."""

    def __init__(self, flow: Flow, config: ConfigSet, bases: BaseStates) -> None:
        self.flow = flow
        self.config = config
        self.bases = bases
        self._settings: dict[str, tuple[str | None, Amount | None]] = {}
        self._of_day: dict[str, tuple[Mapping[str, Usage], str, Usage | None]] = {}

    def forget(self) -> None:
        """The configuration changed."""
        self._settings.clear()

    def changes_at(self, now: float) -> float:
        """When it changes next by time alone: a limit ends, a day does."""
        ends = [one.until for one in self.flow.home.accounts.values() if one.released is None and one.until > now]
        return min([now - now % DAY + DAY, *ends])

    def now(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """How things stand; `columns`: session → where it is on the board."""
        now, day = self.flow.clock(), rfc3339(self.flow.clock())[:10]
        sessions = self.flow.sessions.values()
        active = Counter(facts.project for facts in sessions if holds_slot(facts))
        open_ones = Counter(facts.project for facts in sessions if columns.get(facts.id) != "Done")
        calling = Counter(facts.project for facts in sessions if columns.get(facts.id) == "Needs you")
        used: dict[str, Usage] = {}
        for facts in sessions:
            if (one := self._spent(facts, day)) is not None:
                used[facts.project] = used.get(facts.project, Usage()).plus(one)
        for plan in self.flow.home.plans.values():
            if plan.spent != Spent() and day_of(plan.created_at) == day:
                one = Usage(plan.spent.input, plan.spent.output, usd=plan.spent.usd)
                used[plan.project] = used.get(plan.project, Usage()).plus(one)
        projects = self.config.projects()
        limits = tuple(one for one in self.config.limits() if one.profile is None)
        today = Usage()
        for one in used.values():
            today = today.plus(one)
        return {
            "version": __version__,
            "active": active.total(),
            "limit": limit_of_all(limits, [project.id for project in projects]),
            "waiting": len(waiting(sessions)),
            "projects": [
                {
                    **self._project(project),
                    "active": active[project.id],
                    "limit": min((one.count for one in limits if project.id in one.projects), default=None),
                    "sessions": open_ones[project.id],
                    "needsYou": calling[project.id],
                }
                for project in projects
            ],
            "limits": [
                {"account": key, "until": rfc3339(one.until)}
                for key, one in sorted(self.flow.home.accounts.items())
                if one.released is None and one.until > now
            ],
            "today": usage_json(today),
            "budgets": [
                {
                    "project": project.id,
                    "unit": "tokens" if budget.unit == "tokens" else "usd",
                    "spent": round(amount(used.get(project.id, Usage()), budget.unit), 6),
                    "budget": budget.value,
                }
                for project in projects
                if (budget := self._of(project)[1])
            ],
        }

    def _spent(self, facts: SessionFacts, day: str) -> Usage | None:
        """What a session used that day; added up anew only when it used more."""
        known = self._of_day.get(facts.id)
        if known is None or known[0] is not facts.spent or known[1] != day:
            total: Usage | None = None
            for place, one in facts.spent.items():
                if place.startswith(day):
                    total = (total or Usage()).plus(one)
            known = self._of_day[facts.id] = (facts.spent, day, total)
        return known[2]

    def _project(self, project: ProjectConfig) -> dict[str, Any]:
        base = self._of(project)[0]
        state = self.bases.state(project.id, base)
        return {
            "id": project.id,
            "name": project.name,
            "base": base,
            "baseState": state.name,
            "baseFailing": list(state.failing),
        }

    def _of(self, project: ProjectConfig) -> tuple[str | None, Amount | None]:
        """Its base branch, and what it may use in a day."""
        if project.id not in self._settings:
            budget = project.budget.per_day
            base = project.default_branch or default_branch(project.path)
            self._settings[project.id] = (base, budget)
        return self._settings[project.id]


def limit_of_all(limits: tuple[Limit, ...], projects: list[str]) -> int | None:
    """How many agents may work at once in all projects together; nothing: as many as there is room for."""
    of_each = [min((one.count for one in limits if name in one.projects), default=None) for name in projects]
    for_all = [one.count for one in limits if one.projects.issuperset(projects)]
    counts = [count for count in of_each if count is not None]
    together = [sum(counts)] if counts and len(counts) == len(of_each) else []
    return min([*for_all, *together], default=None) if projects else None
