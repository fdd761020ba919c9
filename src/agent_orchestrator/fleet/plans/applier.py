"""Make issues of a plan's tasks: all of them, each exactly once, even if the daemon dies meanwhile.

Where the daemon keeps the issues itself, that is one transaction. At a service each issue is created separately, with a
unique mark in its text; no second issue is created for a mark. Whichever reads such an issue first, this module or the
tracker's poll, records with it what the plan says about it. Work on the issues may start when all of them exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_orchestrator.base.progress import ProgressTexts
from agent_orchestrator.changes.forge_records import NumberAllocator
from agent_orchestrator.changes.forge_sync import ForgeConnections, IssueSync
from agent_orchestrator.changes.forge_sync.backoff import is_host_error
from agent_orchestrator.changes.issues.plan_marks import created_issues, issue_planned_event, mark_of, task_of_mark
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.plans import APPLYING, Plan, PlannedTask
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import PlanProgressed
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.plans.validation import sort_by_dependencies
from agent_orchestrator.protocols.forge import Tracker
from agent_orchestrator.sessions.part import Core, Part

MAX_CLOCK_DIFFERENCE = 3600.0
"""Seconds that the tracker's clock and ours may differ by."""
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


class PlanApplier(Part):
    """Makes issues of plans."""

    def __init__(
        self, core: Core, repositories: ForgeConnections, tracking: IssueSync, numbers: NumberAllocator
    ) -> None:
        super().__init__(core)
        self.repositories = repositories
        self.issue_sync = tracking
        self.numbers = numbers
        self.progress = ProgressTexts(lambda: self.emit(PlanProgressed()))
        """Plan id → how far its application is."""

    # -- issues kept here ----------------------------------------------------------------------------------------------

    def local_events(self, plan: Plan, how: e.PlanApplyRequested, key: str, by: str) -> list[Event]:
        """Return all events that apply a plan whose issues are kept here; `numbers.lock` is to be held until they are recorded."""
        number, numbers = self.numbers.next_number(plan.project), dict[str, int]()
        bodies: list[tuple[str, e.Body]] = [("apply", how)]
        for task in sort_by_dependencies(plan.tasks):
            dependencies = tuple(numbers[name] for name in task.dependencies)
            if task.issue is None:
                numbers[task.id] = number
                opened = e.IssueOpened(
                    number, task.title, issue_text(task), task.labels, "plan", dependencies, hosted=False
                )
                bodies.append((f"issue:{task.id}", opened))
                number += 1
            else:
                numbers[task.id] = task.issue
            bodies.append(
                (f"planned:{task.id}", issue_planned_event(self.flow.home, plan, task, numbers, start=how.start))
            )
        bodies.append(("applied", e.PlanApplied(plan.id, numbers)))
        created_at = self.clock()
        return [Event(body, created_at, by, f"{key}:{name}", plan.project) for name, body in bodies]

    # -- at a service --------------------------------------------------------------------------------------------------

    async def run(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Create the issues that do not exist yet, and return the events that let work on all of them start.

        A temporary error of the tracker is raised, so that the effect is retried; any other error is recorded as a refused plan.
        """
        plan = self.flow.home.plans.get(str(intent.args["plan"]))
        if plan is None or plan.state != APPLYING:
            return []
        try:
            bodies = await self._create_issues(plan)
        except AoError as error:
            if is_host_error(error):
                self.progress[plan.id] = f"it is tried again by itself: {error}"
                raise
            bodies = [e.PlanRefused(plan.id, str(error))]
        self.progress.pop(plan.id, None)
        now, key = self.clock(), f"{intent.key}:done"
        return [Event(body, now, "daemon", f"{key}:{index}", plan.project) for index, body in enumerate(bodies)]

    async def _create_issues(self, plan: Plan) -> list[e.Body]:
        """Create the missing issues at the tracker, and return the events for all tasks of the plan."""
        name = await self.repositories.tracker_name(self.core.settings.project(plan.project))
        tracker = await self.repositories.trusted_tracker(plan.project, name)
        tasks_without_issue = [task for task in sort_by_dependencies(plan.tasks) if task.issue is None]
        if any(task.id not in created_issues(self.flow.home, plan) for task in tasks_without_issue):
            await self._find_created_issues(plan, name, tracker)
        for position, task in enumerate(tasks_without_issue, 1):
            if task.id in created_issues(self.flow.home, plan):
                continue
            self.progress[plan.id] = f"making issue {position} of {len(tasks_without_issue)}"
            mark = mark_of(plan, task.id)
            hidden = f"<!-- {mark} -->" if name in _TRACKERS_WITH_COMMENTS else f"({mark})"
            created = await tracker.create(task.title, issue_text(task, hidden), task.labels)
            await self.issue_sync.record_issue(plan.project, name, created, with_comments=True)
        numbers = {
            **created_issues(self.flow.home, plan),
            **{task.id: task.issue for task in plan.tasks if task.issue is not None},
        }
        planned = [issue_planned_event(self.flow.home, plan, task, numbers, start=plan.start) for task in plan.tasks]
        return [*planned, e.PlanApplied(plan.id, numbers)]

    async def _find_created_issues(self, plan: Plan, name: str, tracker: Tracker) -> None:
        """Record the issues of this plan that an earlier daemon created but did not record before it died."""
        for issue in await tracker.list(state="all", since=plan.created_at - MAX_CLOCK_DIFFERENCE):
            if task_of_mark(self.flow.home, plan.project, issue) is not None:
                await self.issue_sync.record_issue(plan.project, name, issue, with_comments=False)
