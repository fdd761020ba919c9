"""The overview of the fleet: agents at work, state of the base branches, active usage limits, today's usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from agent_orchestrator import __version__
from agent_orchestrator.changes.checks.base_branch_checks import BaseStates
from agent_orchestrator.config.config_set import ConfigSet, ParallelLimit
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.units import Amount
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts, Usage
from agent_orchestrator.core.plans import PlanUsage
from agent_orchestrator.fleet.scheduling.start_decision import holds_slot, list_waiting
from agent_orchestrator.fleet.usage.budgets import day_of, usage_amount
from agent_orchestrator.fleet.usage.usage_reports import usage_json

DAY_SECONDS = 86400.0


class FleetOverview:
    """Sums what concerns all sessions."""

    def __init__(self, flow: Flow, config: ConfigSet, bases: BaseStates) -> None:
        self.flow = flow
        self.config = config
        self.bases = bases
        self._settings: dict[str, tuple[str | None, Amount | None]] = {}
        self._day_usage: dict[str, tuple[Mapping[str, Usage], str, Usage | None]] = {}

    def drop_cached_settings(self) -> None:
        """Drop cached settings, because the configuration changed."""
        self._settings.clear()

    def changes_at(self, now: float) -> float:
        """Return when the overview next changes without an event: a usage limit ends, or the day."""
        limit_ends = [
            hold.until
            for hold in self.flow.home.account_holds.values()
            if hold.released_at is None and hold.until > now
        ]
        return min([now - now % DAY_SECONDS + DAY_SECONDS, *limit_ends])

    def current_json(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return the overview as JSON; `columns` has each session's column on the board."""
        now, day = self.flow.clock(), rfc3339(self.flow.clock())[:10]
        sessions = self.flow.sessions.values()
        active = Counter(facts.project for facts in sessions if holds_slot(facts))
        unfinished = Counter(facts.project for facts in sessions if columns.get(facts.id) != "Done")
        waiting_for_person = Counter(facts.project for facts in sessions if columns.get(facts.id) == "Needs you")
        usage_by_project: dict[str, Usage] = {}
        for facts in sessions:
            if (item := self._spent_on_day(facts, day)) is not None:
                usage_by_project[facts.project] = usage_by_project.get(facts.project, Usage()).plus(item)
        for plan in self.flow.home.plans.values():
            if plan.usage != PlanUsage() and day_of(plan.created_at) == day:
                item = Usage(plan.usage.input, plan.usage.output, usd=plan.usage.usd)
                usage_by_project[plan.project] = usage_by_project.get(plan.project, Usage()).plus(item)
        projects = self.config.projects()
        limits = tuple(item for item in self.config.parallel_limits() if item.profile is None)
        today = Usage()
        for item in usage_by_project.values():
            today = today.plus(item)
        return {
            "version": __version__,
            "active": active.total(),
            "limit": total_parallel_limit(limits, [project.id for project in projects]),
            "waiting": len(list_waiting(sessions)),
            "projects": [
                {
                    **self._project(project),
                    "active": active[project.id],
                    "limit": min((item.count for item in limits if project.id in item.projects), default=None),
                    "sessions": unfinished[project.id],
                    "needsYou": waiting_for_person[project.id],
                }
                for project in projects
            ],
            "limits": [
                {"account": key, "until": rfc3339(item.until)}
                for key, item in sorted(self.flow.home.account_holds.items())
                if item.released_at is None and item.until > now
            ],
            "today": usage_json(today),
            "budgets": [
                {
                    "project": project.id,
                    "unit": "tokens" if budget.unit == "tokens" else "usd",
                    "spent": round(usage_amount(usage_by_project.get(project.id, Usage()), budget.unit), 6),
                    "budget": budget.value,
                }
                for project in projects
                if (budget := self._base_and_budget(project)[1])
            ],
        }

    def _spent_on_day(self, facts: SessionFacts, day: str) -> Usage | None:
        """Return what a session used on a day; summed again only if it used more since."""
        cached = self._day_usage.get(facts.id)
        if cached is None or cached[0] is not facts.daily_usage or cached[1] != day:
            total: Usage | None = None
            for day_and_model, usage in facts.daily_usage.items():
                if day_and_model.startswith(day):
                    total = (total or Usage()).plus(usage)
            cached = self._day_usage[facts.id] = (facts.daily_usage, day, total)
        return cached[2]

    def _project(self, project: ProjectConfig) -> dict[str, Any]:
        base = self._base_and_budget(project)[0]
        state = self.bases.state(project.id, base)
        return {
            "id": project.id,
            "name": project.name,
            "base": base,
            "baseState": state.name,
            "baseFailing": list(state.failing),
        }

    def _base_and_budget(self, project: ProjectConfig) -> tuple[str | None, Amount | None]:
        """Return a project's base branch, and its budget per day."""
        if project.id not in self._settings:
            budget = project.budget.per_day
            base = project.default_branch or default_branch(project.path)
            self._settings[project.id] = (base, budget)
        return self._settings[project.id]


def total_parallel_limit(limits: tuple[ParallelLimit, ...], projects: list[str]) -> int | None:
    """Return how many agents may work at once in all projects together, or None if only capacity limits them."""
    per_project = [min((limit.count for limit in limits if name in limit.projects), default=None) for name in projects]
    of_all_projects = [limit.count for limit in limits if limit.projects.issuperset(projects)]
    counts = [count for count in per_project if count is not None]
    sum_of_projects = [sum(counts)] if counts and len(counts) == len(per_project) else []
    return min([*of_all_projects, *sum_of_projects], default=None) if projects else None
