"""Marks in the texts of issues that were created for a plan at another tracker: they show which task an issue is for, so that no second
one is created. Pure functions of the facts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue, issue_number
from agent_orchestrator.core.plans import APPLYING, Plan, PlannedTask
from agent_orchestrator.protocols.forge import TrackerIssue as RemoteIssue

_MARK = re.compile(r"ao plan (P\d+) task (\S+) ([0-9a-f]{12})", re.ASCII)


def mark_of(plan: Plan, task: str) -> str:
    """Return the mark that identifies a task's issue at a tracker; it cannot be derived from the mark of another task."""
    digest = hashlib.sha256(f"{plan.token} {task}".encode()).hexdigest()[:12]
    return f"ao plan {plan.id} task {task} {digest}"


def task_of_mark(home: HomeFacts, project: str, issue: RemoteIssue) -> tuple[Plan, PlannedTask] | None:
    """Return the plan and the task whose mark an issue has, or None; only plans that are being applied count."""
    for plan_id, task_id, _ in _MARK.findall(issue.body):
        plan = home.plans.get(plan_id)
        if plan is None or plan.state != APPLYING or plan.project != project:
            continue
        for task in plan.tasks:
            if task.id == task_id and task.issue is None and mark_of(plan, task_id) in issue.body:
                return plan, task
    return None


def created_issues(home: HomeFacts, plan: Plan) -> dict[str, int]:
    """Return task → number of the issue that was created for it."""
    return {
        issue.plan_entry.task: issue.number
        for issue in home.issues.values()
        if issue.project == plan.project and issue.plan_entry and issue.plan_entry.plan == plan.id
    }


def issue_planned_event(
    home: HomeFacts, plan: Plan, task: PlannedTask, numbers: Mapping[str, int], *, start: bool
) -> e.IssuePlanned:
    """Return the event that says what the plan says about a task's issue; what the issue waits for already is kept."""
    number = numbers[task.id]
    existing = home.issues.get(issue_key(plan.project, number))
    predecessors = (
        *(existing.after if existing else ()),
        *(numbers[name] for name in task.dependencies if name in numbers),
    )
    after = tuple(dict.fromkeys(predecessors))
    return e.IssuePlanned(number, plan.id, task.id, task.profile, task.priority, task.files, after, start)


def events_for_marked_issue(home: HomeFacts, project: str, issue: RemoteIssue, recorded: Issue | None) -> list[e.Body]:
    """Return the events to record with an issue that has the mark of a plan which is being applied, else an empty list."""
    plan_and_task, number = task_of_mark(home, project, issue), issue_number(issue.id)
    if plan_and_task is None or number is None or (recorded is not None and recorded.plan_entry is not None):
        return []
    plan, task = plan_and_task
    created = created_issues(home, plan)
    if task.id in created:
        return []
    return [issue_planned_event(home, plan, task, {**created, task.id: number}, start=False)]
