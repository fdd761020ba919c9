"""The tasks of a plan become issues: all of them, each once, whenever the daemon dies.

Here that is one transaction. At a tracker each issue is made by itself, with a mark in its text that no other has; what bears a mark is
never made again, and whoever reads such an issue first, the planner or the tracker's poll, tells with it what the plan says of it. The
issues are free to be taken when all of them are there.
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
"""Seconds that a tracker's clock and ours may differ by."""
_MARK = re.compile(r"ao plan (P\d+) task (\S+) ([0-9a-f]{12})", re.ASCII)
_HIDDEN = ("github", "gitlab")
"""Trackers whose texts have comments that nobody is shown."""


def issue_text(task: PlannedTask, mark: str = "") -> str:
    """What stands in a task's issue."""
    parts = [task.description]
    if task.acceptance:
        parts.append("## Acceptance criteria\n\n" + "\n".join(f"- {one}" for one in task.acceptance))
    if task.files:
        parts.append("## Expected files\n\n" + "\n".join(f"- `{one}`" for one in task.files))
    return "\n\n".join(part for part in (*parts, mark) if part)


def mark_of(plan: Plan, task: str) -> str:
    """By which a task's issue is known at a tracker; nobody can tell it from that of another task."""
    digest = hashlib.sha256(f"{plan.token} {task}".encode()).hexdigest()[:12]
    return f"ao plan {plan.id} task {task} {digest}"


class Applying:
    """Makes issues."""

    def __init__(self, flow: Flow, repositories: Repositories, tracking: Tracking) -> None:
        self.flow = flow
        self.repositories = repositories
        self.tracking = tracking
        self.progress = Progress()
        """Plan → how far it is."""
        tracking.planned = self.planned

    # -- here ----------------------------------------------------------------------------------------------------------

    def at_once(self, plan: Plan, how: e.PlanApplyRequested, key: str, by: str) -> list[Event]:
        """Everything that happens to a plan of the local tracker, as one transaction; numbers must not be given meanwhile."""
        number, numbers = next_number(self.flow, plan.project), dict[str, int]()
        bodies: list[tuple[str, e.Body]] = [("apply", how)]
        for task in in_order(plan.tasks):
            before = tuple(numbers[name] for name in task.dependencies)
            if task.issue is None:
                numbers[task.id] = number
                opened = e.IssueOpened(number, task.title, issue_text(task), task.labels, "plan", before)
                bodies.append((f"issue:{task.id}", opened))
                number += 1
            else:
                numbers[task.id] = task.issue
            bodies.append((f"planned:{task.id}", self._planned(plan, task, numbers, start=how.start)))
        bodies.append(("applied", e.PlanApplied(plan.id, numbers)))
        now = self.flow.clock()
        return [Event(body, now, by, f"{key}:{name}", plan.project) for name, body in bodies]

    def _planned(self, plan: Plan, task: PlannedTask, numbers: Mapping[str, int], *, start: bool) -> e.IssuePlanned:
        """What the plan says of a task's issue; what the issue waits for already, it goes on waiting for."""
        number = numbers[task.id]
        known = self.flow.home.issues.get(issue_key(plan.project, number))
        before = (*(known.after if known else ()), *(numbers[name] for name in task.dependencies if name in numbers))
        after = tuple(dict.fromkeys(before))
        return e.IssuePlanned(number, plan.id, task.id, task.profile, task.priority, task.files, after, start)

    # -- at a tracker --------------------------------------------------------------------------------------------------

    async def run(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Make the issues that are not there yet, then let all of them be taken."""
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
        return [Event(body, now, "daemon", f"{key}:{place}", plan.project) for place, body in enumerate(bodies)]

    async def _bodies(self, plan: Plan) -> list[e.Body]:
        name = await self.repositories.tracker_name(self.repositories.plugins.project(plan.project))
        tracker = await self.repositories.reach_tracker(plan.project, name)
        wanted = [task for task in in_order(plan.tasks) if task.issue is None]
        if any(task.id not in self.made(plan) for task in wanted):
            await self._find(plan, name, tracker)
        for place, task in enumerate(wanted, 1):
            if task.id in self.made(plan):
                continue
            self.progress[plan.id] = f"making issue {place} of {len(wanted)}"
            mark = mark_of(plan, task.id)
            hidden = f"<!-- {mark} -->" if name in _HIDDEN else f"({mark})"
            made = await tracker.create(task.title, issue_text(task, hidden), task.labels)
            await self.tracking.tell(plan.project, name, made, whole=True)
        numbers = {**self.made(plan), **{task.id: task.issue for task in plan.tasks if task.issue is not None}}
        planned = [self._planned(plan, task, numbers, start=plan.start) for task in plan.tasks]
        return [*planned, e.PlanApplied(plan.id, numbers)]

    async def _find(self, plan: Plan, name: str, tracker: Tracker) -> None:
        """Learn of issues of this plan that were made by somebody who did not live to tell."""
        for issue in await tracker.list(state="all", since=plan.created_at - CLOCKS_APART):
            if self._task(plan.project, issue) is not None:
                await self.tracking.tell(plan.project, name, issue, whole=False)

    def made(self, plan: Plan) -> dict[str, int]:
        """Task → number of the issue that was made for it."""
        return {
            issue.planned.task: issue.number
            for issue in self.flow.home.issues.values()
            if issue.project == plan.project and issue.planned and issue.planned.plan == plan.id
        }

    def planned(self, project: str, told: Told, known: Issue | None) -> list[e.Body]:
        """What is to be told of an issue that bears the mark of a plan which is being applied, together with the issue itself."""
        found, number = self._task(project, told), issue_number(told.id)
        if found is None or number is None or (known is not None and known.planned is not None):
            return []
        plan, task = found
        if task.id in self.made(plan):
            return []
        return [self._planned(plan, task, {**self.made(plan), task.id: number}, start=False)]

    def _task(self, project: str, told: Told) -> tuple[Plan, PlannedTask] | None:
        for name, task_id, _ in _MARK.findall(told.body):
            plan = self.flow.home.plans.get(name)
            if plan is None or plan.state != APPLYING or plan.project != project:
                continue
            for task in plan.tasks:
                if task.id == task_id and task.issue is None and mark_of(plan, task_id) in told.body:
                    return plan, task
        return None
