"""Make issues of a plan's tasks: all of them, each exactly once, even if the daemon dies meanwhile.

For the local tracker that is one transaction. At another tracker each issue is created separately, with a unique mark in its text; no
second issue is created for a mark. Whichever reads such an issue first, this module or the tracker's poll, records with it what the plan
says about it. Work on the issues may start when all of them exist.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from agent_orchestrator.base.progress import Progress
from agent_orchestrator.changes.forge_sync import Repositories, Tracking
from agent_orchestrator.changes.forge_sync.backoff import of_the_host
from agent_orchestrator.changes.pull_requests.local import next_number
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.plans import APPLYING, Plan, PlannedTask
from agent_orchestrator.core.pull_request import Issue, issue_number
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.plans.validation import in_order
from agent_orchestrator.protocols.forge import Issue as Told
from agent_orchestrator.protocols.forge import Tracker

CLOCKS_APART = 3600.0
"""Seconds that the tracker's clock and ours may differ by."""
_MARK = re.compile(r"ao plan (P\d+) task (\S+) ([0-9a-f]{12})", re.ASCII)
_TRACKERS_WITH_COMMENTS = ("github", "gitlab")
"""Trackers whose texts may contain comments that are not shown."""


def issue_text(task: PlannedTask, mark: str = "") -> str:
    """Return the text of a task's issue, with the mark at its end."""
    parts = [task.description]
    if task.acceptance:
        parts.append("## Acceptance criteria\n\n" + "\n".join(f"- {line}" for line in task.acceptance))
    if task.files:
        parts.append("## Expected files\n\n" + "\n".join(f"- `{line}`" for line in task.files))
    return "\n\n".join(part for part in (*parts, mark) if part)


def mark_of(plan: Plan, task: str) -> str:
    """Return the mark that identifies a task's issue at a tracker; it cannot be derived from the mark of another task."""
    digest = hashlib.sha256(f"{plan.token} {task}".encode()).hexdigest()[:12]
    return f"ao plan {plan.id} task {task} {digest}"


class Applying:
    """Makes issues of plans."""

    def __init__(self, flow: Flow, repositories: Repositories, tracking: Tracking) -> None:
        self.flow = flow
        self.repositories = repositories
        self.tracking = tracking
        self.progress = Progress()
        """Plan id → how far its application is."""
        tracking.planned = self.planned

    # -- local tracker -------------------------------------------------------------------------------------------------

    def at_once(self, plan: Plan, how: e.PlanApplyRequested, key: str, by: str) -> list[Event]:
        """Return all events that apply a plan of the local tracker; no issue numbers may be assigned until they are recorded."""
        number, numbers = next_number(self.flow, plan.project), dict[str, int]()
        bodies: list[tuple[str, e.Body]] = [("apply", how)]
        for task in in_order(plan.tasks):
            dependencies = tuple(numbers[name] for name in task.dependencies)
            if task.issue is None:
                numbers[task.id] = number
                opened = e.IssueOpened(number, task.title, issue_text(task), task.labels, "plan", dependencies)
                bodies.append((f"issue:{task.id}", opened))
                number += 1
            else:
                numbers[task.id] = task.issue
            bodies.append((f"planned:{task.id}", self._planned_event(plan, task, numbers, start=how.start)))
        bodies.append(("applied", e.PlanApplied(plan.id, numbers)))
        created_at = self.flow.clock()
        return [Event(body, created_at, by, f"{key}:{name}", plan.project) for name, body in bodies]

    def _planned_event(
        self, plan: Plan, task: PlannedTask, numbers: Mapping[str, int], *, start: bool
    ) -> e.IssuePlanned:
        """Return the event that says what the plan says about a task's issue; what the issue waits for already is kept."""
        number = numbers[task.id]
        existing = self.flow.home.issues.get(issue_key(plan.project, number))
        predecessors = (
            *(existing.after if existing else ()),
            *(numbers[name] for name in task.dependencies if name in numbers),
        )
        after = tuple(dict.fromkeys(predecessors))
        return e.IssuePlanned(number, plan.id, task.id, task.profile, task.priority, task.files, after, start)

    # -- at a tracker --------------------------------------------------------------------------------------------------

    async def run(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Create the issues that do not exist yet, and return the events that let work on all of them start.

        A temporary error of the tracker is raised, so that the effect is retried; any other error is recorded as a refused plan.
        """
        plan = self.flow.home.plans.get(str(intent.args["plan"]))
        if plan is None or plan.state != APPLYING:
            return []
        try:
            bodies = await self._bodies(plan)
        except AoError as error:
            if of_the_host(error):
                self.progress[plan.id] = f"it is tried again by itself: {error}"
                raise
            bodies = [e.PlanRefused(plan.id, str(error))]
        self.progress.pop(plan.id, None)
        now, key = self.flow.clock(), f"{intent.key}:done"
        return [Event(body, now, "daemon", f"{key}:{index}", plan.project) for index, body in enumerate(bodies)]

    async def _bodies(self, plan: Plan) -> list[e.Body]:
        """Create the missing issues at the tracker, and return the events for all tasks of the plan."""
        name = await self.repositories.tracker_name(self.repositories.plugins.project(plan.project))
        tracker = await self.repositories.reach_tracker(plan.project, name)
        tasks_without_issue = [task for task in in_order(plan.tasks) if task.issue is None]
        if any(task.id not in self.made(plan) for task in tasks_without_issue):
            await self._find_created_issues(plan, name, tracker)
        for position, task in enumerate(tasks_without_issue, 1):
            if task.id in self.made(plan):
                continue
            self.progress[plan.id] = f"making issue {position} of {len(tasks_without_issue)}"
            mark = mark_of(plan, task.id)
            hidden = f"<!-- {mark} -->" if name in _TRACKERS_WITH_COMMENTS else f"({mark})"
            created = await tracker.create(task.title, issue_text(task, hidden), task.labels)
            await self.tracking.tell(plan.project, name, created, whole=True)
        numbers = {**self.made(plan), **{task.id: task.issue for task in plan.tasks if task.issue is not None}}
        planned = [self._planned_event(plan, task, numbers, start=plan.start) for task in plan.tasks]
        return [*planned, e.PlanApplied(plan.id, numbers)]

    async def _find_created_issues(self, plan: Plan, name: str, tracker: Tracker) -> None:
        """Record the issues of this plan that an earlier daemon created but did not record before it died."""
        for issue in await tracker.list(state="all", since=plan.created_at - CLOCKS_APART):
            if self._task_of_mark(plan.project, issue) is not None:
                await self.tracking.tell(plan.project, name, issue, whole=False)

    def made(self, plan: Plan) -> dict[str, int]:
        """Return task → number of the issue that was created for it."""
        return {
            issue.planned.task: issue.number
            for issue in self.flow.home.issues.values()
            if issue.project == plan.project and issue.planned and issue.planned.plan == plan.id
        }

    def planned(self, project: str, told: Told, known: Issue | None) -> list[e.Body]:
        """Return the events to record with an issue that has the mark of a plan which is being applied, else an empty list."""
        plan_and_task, number = self._task_of_mark(project, told), issue_number(told.id)
        if plan_and_task is None or number is None or (known is not None and known.planned is not None):
            return []
        plan, task = plan_and_task
        if task.id in self.made(plan):
            return []
        return [self._planned_event(plan, task, {**self.made(plan), task.id: number}, start=False)]

    def _task_of_mark(self, project: str, issue: Told) -> tuple[Plan, PlannedTask] | None:
        """Return the plan and the task whose mark an issue has, or None."""
        for plan_id, task_id, _ in _MARK.findall(issue.body):
            plan = self.flow.home.plans.get(plan_id)
            if plan is None or plan.state != APPLYING or plan.project != project:
                continue
            for task in plan.tasks:
                if task.id == task_id and task.issue is None and mark_of(plan, task_id) in issue.body:
                    return plan, task
        return None
