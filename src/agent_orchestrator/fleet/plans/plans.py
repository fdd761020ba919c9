"""Requests about plans: create, show, change, apply and discard them. Look here for what `ao plan` and the API can do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.changes.forge_records import NumberAllocator
from agent_orchestrator.changes.forge_sync import ForgeConnections
from agent_orchestrator.changes.forge_sync.backoff import is_host_error
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import is_about
from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.plans import (
    APPLIED,
    APPLYING,
    DISCARDED,
    DRAFT,
    FAILED,
    PLANNING,
    Plan,
    PlannedTask,
    next_plan_id,
    plan_number,
)
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.fleet.plans.applier import PlanApplier
from agent_orchestrator.fleet.plans.drafter import PlanDrafter, open_issues, plan_context
from agent_orchestrator.fleet.plans.validation import CheckedPlan, check_plan
from agent_orchestrator.fleet.plans.yaml_text import plan_to_yaml, tasks_from_yaml
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_view import SessionViews

MAX_GOAL_LENGTH = 20_000
MAX_WRITTEN_TASKS = 500
"""Tasks of a plan that a person or a program wrote."""


class PlanService(Part):
    """The plans of a home."""

    def __init__(
        self,
        core: Core,
        views: SessionViews,
        repositories: ForgeConnections,
        drafting: PlanDrafter,
        applying: PlanApplier,
        numbers: NumberAllocator,
    ) -> None:
        super().__init__(core)
        self.views = views
        self.repositories = repositories
        self.drafter = drafting
        self.applier = applying
        self.numbers = numbers
        self._change_lock = asyncio.Lock()

    def effects(self) -> dict[str, Effect]:
        """Return the effects of plans by kind of intent."""
        return {
            "draft-plan": Effect(self.drafter.run, record_attempt_first=True),
            "apply-plan": Effect(retry_until_done(self.applier.run, is_host_error)),
        }

    # -- showing -------------------------------------------------------------------------------------------------------

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """Return the plans of a project, or of all projects, that are not discarded, newest first."""
        plans = [plan for plan in self.flow.home.plans.values() if project in (None, plan.project)]
        visible_plans = [plan for plan in plans if plan.state != DISCARDED]
        return [self._plan_json(plan) for plan in sorted(visible_plans, key=lambda plan: -plan_number(plan.id))]

    def get(self, plan: str) -> dict[str, Any]:
        """Return one plan as JSON."""
        return self._plan_json(self.find(plan))

    def text(self, plan: str) -> str:
        """Return one plan as YAML."""
        current = self.find(plan)
        return plan_to_yaml(current, self._project(current.project).profiles)

    def find(self, plan: str, only: str | None = None) -> Plan:
        """Return the plan with this id, in upper or lower case; raise `NotFound` if there is none. `only`: search in this project only."""
        match = self.flow.home.plans.get(plan.upper())
        if match is None or only not in (None, match.project):
            raise NotFound(f"there is no plan {plan}", "see them: ao plan -A")
        return match

    def _project(self, project_id: str) -> ProjectConfig:
        """Return the configuration of a project."""
        return self.core.settings.project(project_id)

    def _plan_json(self, plan: Plan) -> dict[str, Any]:
        """Return a plan as JSON."""
        progress = self.drafter.progress.get(plan.id) or self.applier.progress.get(plan.id)
        return {
            "id": plan.id,
            "project": plan.project,
            "goal": plan.goal,
            "state": plan.state,
            "tasks": [self._task_json(plan, task) for task in plan.tasks],
            "notes": list(plan.notes),
            "error": plan.error or None,
            "progress": progress if plan.state in (PLANNING, APPLYING) else None,
            "agent": plan.agent or None,
            "usage": {"input": plan.usage.input, "output": plan.usage.output, "usd": plan.usage.usd},
            "createdAt": rfc3339(plan.created_at),
            "updatedAt": rfc3339(plan.updated_at),
        }

    def _task_json(self, plan: Plan, task: PlannedTask) -> dict[str, Any]:
        """Return a task as JSON, with the issue and the sessions that it has."""
        number = plan.issues.get(task.id, task.issue)
        issue = self.flow.home.issues.get(issue_key(plan.project, number)) if number is not None else None
        sessions = [facts for facts in self.flow.sessions.values() if is_about(issue, facts)] if issue else []
        applied = plan.state == APPLIED
        return {
            **task.to_json(),
            "issue": number,
            "issueKey": issue.name if issue else None,
            "sessions": [facts.id for facts in sessions] if applied else [],
            "status": self._task_status(issue, [self.views.status(facts).name for facts in sessions])
            if applied
            else None,
        }

    def _task_status(self, issue: Issue | None, session_statuses: Sequence[str]) -> str | None:
        """Return how far a task is: `done`, its last session's status, `waiting` for others, or `ready`; None without an issue."""
        if issue is None:
            return None
        if issue.state == "closed":
            return "done"
        if session_statuses:
            return session_statuses[-1]
        predecessors = [self.flow.home.issues.get(issue_key(issue.project, number)) for number in issue.after]
        return (
            "waiting"
            if any(predecessor is not None and predecessor.state == "open" for predecessor in predecessors)
            else "ready"
        )

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        project: str,
        goal: str = "",
        *,
        from_issues: bool = False,
        agent: str | None = None,
        model: str | None = None,
        tasks: Sequence[Mapping[str, Any]] | None = None,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """Create a plan and return it: an agent plans the goal, or the open issues if there is no goal.

        With `tasks` the plan is a draft at once, without an agent. The same key returns the plan that it created before.
        """
        goal = clean_text(goal).strip()
        if len(goal) > MAX_GOAL_LENGTH:
            raise UsageError(f"the goal has {len(goal)} characters", f"{MAX_GOAL_LENGTH} at most")
        config = self._project(project)
        event_key = f"plan:{project}:{key or uuid.uuid4().hex}"
        checked = None if tasks is None else self._check_tasks(config, list(tasks))
        agent_name = "" if checked else agent or config.planner.agent or config.agent
        if checked is None:
            self.drafter.planning_agent(config, agent_name)
        async with self._change_lock:
            earlier_event = await self.flow.store.event_by_key(event_key) if key else None
            if earlier_event is not None and isinstance(earlier_event.body, e.PlanRequested):
                return self.get(earlier_event.body.plan)
            plan, now = next_plan_id(self.flow.home.plans), self.clock()
            request_event = e.PlanRequested(plan, goal, agent_name, model, from_issues or not (goal or checked))
            events = [Event(request_event, now, by, event_key, project)]
            rows = []
            if checked:
                draft_event = e.PlanDrafted(plan, tuple(task.to_json() for task in checked.tasks), checked.notes)
                events.append(Event(draft_event, now, by, f"{event_key}:drafted", project))
            else:
                rows.append(self._outbox_row("draft-plan", plan))
            await self.flow.append(*events, rows=rows)
        return self.get(plan)

    def _outbox_row(self, kind: str, plan: str) -> OutboxRow:
        """Return the outbox row of an intent for a plan; it is recorded together with the event that causes it."""
        seq = self.flow.seq + 1
        return OutboxRow(Intent(kind, f"{kind}:{plan}:{seq}", "", args={"plan": plan}), seq, seq * 100, 0.0)

    def _check_tasks(self, project: ProjectConfig, tasks: Any) -> CheckedPlan:
        """Check the tasks of a plan that a person or program wrote; raise `UsageError` if they have faults."""
        checked = check_plan(tasks, plan_context(project, open_issues(self.flow, project.id), MAX_WRITTEN_TASKS))
        if checked.faults:
            raise UsageError(f"this plan cannot be used: {'; '.join(checked.faults)}", "correct it")
        return checked

    # -- changing ------------------------------------------------------------------------------------------------------

    async def change(self, plan: str, tasks: Any, goal: str | None = None, by: str = "person") -> dict[str, Any]:
        """Replace the tasks of a plan that is a draft or has failed; raise `Conflict` in other states."""
        async with self._change_lock:
            current = self.find(plan)
            if current.state not in (DRAFT, FAILED):
                raise Conflict(f"{current.id} is {current.state}, and cannot be changed", _REMEDIES[current.state])
            checked = self._check_tasks(self._project(current.project), tasks)
            data = tuple(task.to_json() for task in checked.tasks)
            new_goal = current.goal if goal is None else clean_text(goal).strip()[:MAX_GOAL_LENGTH]
            if (current.state, data, new_goal) != (
                DRAFT,
                tuple(task.to_json() for task in current.tasks),
                current.goal,
            ):
                change_event = e.PlanChanged(current.id, data, checked.notes, new_goal)
                await self._record(current, change_event, by)
        return self.get(plan)

    async def change_text(self, plan: str, text: str, by: str = "person") -> dict[str, Any]:
        """Replace the tasks of a plan with those of an edited YAML text."""
        goal, tasks = tasks_from_yaml(text)
        return await self.change(plan, tasks, goal, by)

    async def discard(self, plan: str, by: str = "person") -> dict[str, Any]:
        """Discard a plan, and stop its agent if it is still being planned; raise `Conflict` if it is being applied or was."""
        async with self._change_lock:
            current = self.find(plan)
            if current.state in (APPLYING, APPLIED):
                raise Conflict(f"{current.id} is {current.state}, and cannot be discarded", _REMEDIES[current.state])
            if current.state != DISCARDED:
                await self._record(current, e.PlanDiscarded(current.id), by)
                self.drafter.stop(current.id)
        return self.get(plan)

    # -- applying ------------------------------------------------------------------------------------------------------

    async def apply(
        self, plan: str, *, start: bool = True, group_limit: int | None = None, by: str = "person"
    ) -> dict[str, Any]:
        """Make issues of a plan's tasks; applying it again changes nothing. Raises `Conflict` if it is not a draft."""
        async with self._change_lock:
            current = self.find(plan)
            if current.state in (APPLYING, APPLIED):
                return self._plan_json(current)
            if current.state != DRAFT:
                raise Conflict(f"{current.id} is {current.state}, and cannot be applied", _REMEDIES[current.state])
            project = self._project(current.project)
            self._check_tasks(project, [task.to_json() for task in current.tasks])
            request_event = e.PlanApplyRequested(current.id, start, group_limit or 0)
            tracker = await self.repositories.tracker_name(project)
            if not self.repositories.is_hosted("tracker", project, tracker):
                async with self.numbers.lock:
                    key = f"apply-plan:{current.id}:{self.flow.seq + 1}"
                    await self.flow.append(*self.applier.local_events(current, request_event, key, by))
            else:
                row = self._outbox_row("apply-plan", current.id)
                event = Event(request_event, self.clock(), by, f"{row.intent.key}:asked", current.project)
                await self.flow.append(event, rows=[row])
        return self.get(plan)

    async def _record(self, plan: Plan, body: e.Body, by: str) -> None:
        """Append an event of a plan."""
        await self.flow.append(Event(body, self.clock(), by, uuid.uuid4().hex, plan.project))


_REMEDIES = {
    PLANNING: "wait for it, or discard it: ao plan ID --discard",
    FAILED: "ask for another: ao plan GOAL; or write its tasks: ao plan ID --edit",
    APPLYING: "its issues are being made; change those: ao issues",
    APPLIED: "change its issues: ao issues",
    DISCARDED: "ask for another: ao plan GOAL",
}
