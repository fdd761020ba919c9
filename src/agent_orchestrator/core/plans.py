"""A goal made into tasks: what a plan is, and its fold. Pure. `fleet/plans/validation.py` says what is wrong with one.

    planning ─► draft ─► applying ─► applied          planning ─► failed
                  ▲          │                        draft, failed, planning ─► discarded
                  └──────────┘ refused

At the local tracker a plan goes from draft to applied at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event

PLANNING, DRAFT, FAILED, APPLYING, APPLIED, DISCARDED = (
    "planning",
    "draft",
    "failed",
    "applying",
    "applied",
    "discarded",
)
EFFORTS = ("small", "medium", "large")


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task of a plan."""

    id: str
    title: str
    description: str = ""
    acceptance: tuple[str, ...] = ()
    """What must hold when it is done."""
    dependencies: tuple[str, ...] = ()
    """Tasks that must have landed before."""
    effort: str = "medium"
    labels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Files that it is expected to change; glob patterns too."""
    profile: str | None = None
    priority: int = 0
    issue: int | None = None
    """The issue that it is, where there is one already."""

    def data(self) -> dict[str, Any]:
        """As it stands in an event."""
        return {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else value
            for item in fields(self)
        }


def task_of(data: Mapping[str, Any]) -> PlannedTask:
    """What `PlannedTask.data` wrote."""
    names = {item.name for item in fields(PlannedTask)}
    given: dict[str, Any] = {"id": "", "title": ""}
    for name, value in data.items():
        if name in names:
            given[name] = tuple(value) if isinstance(value, list) else value
    return PlannedTask(**given)


@dataclass(frozen=True, slots=True)
class Spent:
    """What the planning took."""

    input: int = 0
    output: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything known of one plan."""

    id: str
    project: str
    goal: str
    created_at: float
    updated_at: float
    token: str
    """Tells its issues at a tracker from those of another home's plan of the same name."""
    agent: str = ""
    model: str | None = None
    from_issues: bool = False
    state: str = PLANNING
    tasks: tuple[PlannedTask, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    spent: Spent = Spent()
    start: bool = True
    group_limit: int = 0
    applied_by: str = ""
    """Who said last that its tasks are to become issues."""
    applied_at: float = 0.0
    """When it was last said that its tasks are to become issues."""
    issues: Mapping[str, int] = field(default_factory=dict)
    """Task → number of its issue, once it is applied."""


def reduce_plans(plans: Mapping[str, Plan], event: Event) -> Mapping[str, Plan]:
    """The plans after one more event; what comes too late for a plan's state changes nothing."""
    body = event.body
    if isinstance(body, e.PlanRequested):
        if body.plan in plans:
            return plans
        token = hashlib.sha256(event.key.encode(errors="replace")).hexdigest()[:10]
        made = Plan(
            body.plan,
            event.project or "",
            body.goal,
            event.time,
            event.time,
            token,
            body.agent,
            body.model,
            body.from_issues,
        )
        return {**plans, made.id: made}
    known = plans.get(str(getattr(body, "plan", ""))) if isinstance(body, _OF_PLANS) else None
    after = _changed(known, event) if known else None
    if known is None or after is None:
        return plans
    return {**plans, known.id: replace(after, updated_at=max(event.time, known.updated_at))}


_OF_PLANS = (
    e.PlanDrafted,
    e.PlanFailed,
    e.PlanChanged,
    e.PlanApplyRequested,
    e.PlanApplied,
    e.PlanRefused,
    e.PlanDiscarded,
)


def _changed(plan: Plan, event: Event) -> Plan | None:
    match event.body:
        case e.PlanDrafted() as body if plan.state == PLANNING:
            spent = Spent(body.input, body.output, body.usd)
            tasks = tuple(map(task_of, body.tasks))
            return replace(plan, state=DRAFT, tasks=tasks, notes=body.notes, error="", spent=spent)
        case e.PlanFailed() as body if plan.state == PLANNING:
            return replace(plan, state=FAILED, error=body.error, spent=Spent(body.input, body.output, body.usd))
        case e.PlanChanged() as body if plan.state in (DRAFT, FAILED):
            goal = plan.goal if body.goal is None else body.goal
            tasks = tuple(map(task_of, body.tasks))
            return replace(plan, state=DRAFT, goal=goal, tasks=tasks, notes=body.notes, error="")
        case e.PlanApplyRequested() as body if plan.state == DRAFT:
            asked = replace(plan, start=body.start, group_limit=body.group_limit, applied_by=event.source)
            return replace(asked, state=APPLYING, error="", applied_at=event.time)
        case e.PlanApplied() as body if plan.state == APPLYING:
            return replace(plan, state=APPLIED, issues=dict(body.issues))
        case e.PlanRefused() as body if plan.state == APPLYING:
            return replace(plan, state=DRAFT, error=body.error)
        case e.PlanDiscarded() if plan.state in (PLANNING, DRAFT, FAILED):
            return replace(plan, state=DISCARDED)
    return None


def plan_number(plan: str) -> int:
    """3 of `P3`; 0 of what is no plan's id."""
    digits = plan.removeprefix("P")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def next_plan(plans: Mapping[str, Plan]) -> str:
    """The id of the next plan of this home."""
    return f"P{max(map(plan_number, plans), default=0) + 1}"
