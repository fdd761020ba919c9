"""A goal broken into tasks: what a plan is, and its fold. Pure. `fleet/plans/validation.py` finds errors in a plan.

    planning ─► draft ─► applying ─► applied          planning ─► failed
                  ▲          │                        draft, failed, planning ─► discarded
                  └──────────┘ refused

For the local tracker a plan goes from draft to applied at once.
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
    """Criteria that must be met when it is done."""
    dependencies: tuple[str, ...] = ()
    """Tasks that must be merged before it."""
    effort: str = "medium"
    labels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Files that it is expected to change; may be glob patterns."""
    profile: str | None = None
    priority: int = 0
    issue: int | None = None
    """The number of its issue, if it has one already."""

    def to_json(self) -> dict[str, Any]:
        """Return the task as it is stored in an event."""
        return {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else value
            for item in fields(self)
        }


def task_from_json(data: Mapping[str, Any]) -> PlannedTask:
    """Return the task from data that `PlannedTask.to_json` returned; unknown keys are ignored."""
    names = {item.name for item in fields(PlannedTask)}
    values: dict[str, Any] = {"id": "", "title": ""}
    for name, value in data.items():
        if name in names:
            values[name] = tuple(value) if isinstance(value, list) else value
    return PlannedTask(**values)


@dataclass(frozen=True, slots=True)
class PlanUsage:
    """Tokens and dollars that the planning used."""

    input: int = 0
    output: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything known about one plan."""

    id: str
    project: str
    goal: str
    created_at: float
    updated_at: float
    token: str
    """Distinguishes its issues at a tracker from those of another home's plan with the same id."""
    agent: str = ""
    model: str | None = None
    from_issues: bool = False
    state: str = PLANNING
    tasks: tuple[PlannedTask, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    usage: PlanUsage = PlanUsage()
    start: bool = True
    group_limit: int = 0
    applied_by: str = ""
    """Who last requested that its tasks become issues."""
    applied_at: float = 0.0
    """When it was last requested that its tasks become issues."""
    issues: Mapping[str, int] = field(default_factory=dict)
    """Task → number of its issue, once the plan is applied."""


def reduce_plans(plans: Mapping[str, Plan], event: Event) -> Mapping[str, Plan]:
    """Return the plans after an event; an event that comes too late for a plan's state changes nothing."""
    body = event.body
    if isinstance(body, e.PlanRequested):
        if body.plan in plans:
            return plans
        token = hashlib.sha256(event.key.encode(errors="replace")).hexdigest()[:10]
        new_plan = Plan(
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
        return {**plans, new_plan.id: new_plan}
    plan = plans.get(str(getattr(body, "plan", ""))) if isinstance(body, _PLAN_EVENTS) else None
    after = _change_plan(plan, event) if plan else None
    if plan is None or after is None:
        return plans
    return {**plans, plan.id: replace(after, updated_at=max(event.time, plan.updated_at))}


_PLAN_EVENTS = (
    e.PlanDrafted,
    e.PlanFailed,
    e.PlanChanged,
    e.PlanApplyRequested,
    e.PlanApplied,
    e.PlanRefused,
    e.PlanDiscarded,
)
"""Kinds of events that change a plan."""


def _change_plan(plan: Plan, event: Event) -> Plan | None:
    """Return the plan after an event, or None if its state does not allow the event."""
    match event.body:
        case e.PlanDrafted() as body if plan.state == PLANNING:
            spent = PlanUsage(body.input, body.output, body.usd)
            tasks = tuple(map(task_from_json, body.tasks))
            return replace(plan, state=DRAFT, tasks=tasks, notes=body.notes, error="", usage=spent)
        case e.PlanFailed() as body if plan.state == PLANNING:
            return replace(plan, state=FAILED, error=body.error, usage=PlanUsage(body.input, body.output, body.usd))
        case e.PlanChanged() as body if plan.state in (DRAFT, FAILED):
            goal = plan.goal if body.goal is None else body.goal
            tasks = tuple(map(task_from_json, body.tasks))
            return replace(plan, state=DRAFT, goal=goal, tasks=tasks, notes=body.notes, error="")
        case e.PlanApplyRequested() as body if plan.state == DRAFT:
            applying = replace(plan, start=body.start, group_limit=body.group_limit, applied_by=event.source)
            return replace(applying, state=APPLYING, error="", applied_at=event.time)
        case e.PlanApplied() as body if plan.state == APPLYING:
            return replace(plan, state=APPLIED, issues=dict(body.issues))
        case e.PlanRefused() as body if plan.state == APPLYING:
            return replace(plan, state=DRAFT, error=body.error)
        case e.PlanDiscarded() if plan.state in (PLANNING, DRAFT, FAILED):
            return replace(plan, state=DISCARDED)
    return None


def plan_number(plan: str) -> int:
    """Return the number in a plan's id (3 for `P3`), or 0 if it is not a plan's id."""
    digits = plan.removeprefix("P")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def next_plan_id(plans: Mapping[str, Plan]) -> str:
    """Return the id for the next plan of this home."""
    return f"P{max(map(plan_number, plans), default=0) + 1}"
