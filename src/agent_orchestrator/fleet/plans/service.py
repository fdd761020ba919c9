"""Plans, as people ask for them: made, shown, changed, applied, discarded."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.changes.forge_sync import Repositories
from agent_orchestrator.changes.forge_sync.backoff import of_the_host
from agent_orchestrator.changes.forge_sync.connections import LOCAL
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, patient
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import is_about
from agent_orchestrator.core.outbox import Row
from agent_orchestrator.core.plans import (
    APPLIED,
    APPLYING,
    DISCARDED,
    DRAFT,
    FAILED,
    PLANNING,
    Plan,
    PlannedTask,
    next_plan,
    plan_number,
)
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.fleet.plans.apply import Applying
from agent_orchestrator.fleet.plans.draft import Drafting, known_of, open_issues
from agent_orchestrator.fleet.plans.validation import Checked, check
from agent_orchestrator.fleet.plans.yaml_text import as_yaml, from_yaml
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.session_view import Views

LONGEST_GOAL = 20_000
MOST_BY_HAND = 500
"""Tasks of a plan that a person, or his program, wrote."""


class Planner:
    """The plans of this home."""

    def __init__(
        self,
        flow: Flow,
        views: Views,
        repositories: Repositories,
        drafting: Drafting,
        applying: Applying,
        numbering: asyncio.Lock,
    ) -> None:
        self.flow = flow
        self.views = views
        self.repositories = repositories
        self.drafting = drafting
        self.applying = applying
        self.numbering = numbering
        self._changing = asyncio.Lock()

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {
            "draft-plan": Effect(self.drafting.run, ambiguous=True),
            "apply-plan": Effect(patient(self.applying.run, of_the_host)),
        }

    # -- looking -------------------------------------------------------------------------------------------------------

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """The plans of a project, or of all, that nobody discarded; the newest first."""
        mine = [plan for plan in self.flow.home.plans.values() if project in (None, plan.project)]
        shown = [plan for plan in mine if plan.state != DISCARDED]
        return [self._json(plan) for plan in sorted(shown, key=lambda plan: -plan_number(plan.id))]

    def get(self, plan: str) -> dict[str, Any]:
        """One plan."""
        return self._json(self.find(plan))

    def text(self, plan: str) -> str:
        """One plan as YAML."""
        found = self.find(plan)
        return as_yaml(found, self._project(found.project).profiles)

    def find(self, plan: str, only: str | None = None) -> Plan:
        """The plan with this id, in whatever case it is written; `only`: those of other projects are not there."""
        found = self.flow.home.plans.get(plan.upper())
        if found is None or only not in (None, found.project):
            raise NotFound(f"there is no plan {plan}", "see them: ao plan -A")
        return found

    def _project(self, project: str) -> ProjectConfig:
        return self.repositories.plugins.project(project)

    def _json(self, plan: Plan) -> dict[str, Any]:
        doing = self.drafting.progress.get(plan.id) or self.applying.progress.get(plan.id)
        return {
            "id": plan.id,
            "project": plan.project,
            "goal": plan.goal,
            "state": plan.state,
            "tasks": [self._task(plan, task) for task in plan.tasks],
            "notes": list(plan.notes),
            "error": plan.error or None,
            "progress": doing if plan.state in (PLANNING, APPLYING) else None,
            "agent": plan.agent or None,
            "usage": {"input": plan.spent.input, "output": plan.spent.output, "usd": plan.spent.usd},
            "createdAt": rfc3339(plan.created_at),
            "updatedAt": rfc3339(plan.updated_at),
        }

    def _task(self, plan: Plan, task: PlannedTask) -> dict[str, Any]:
        number = plan.issues.get(task.id, task.issue)
        issue = self.flow.home.issues.get(issue_key(plan.project, number)) if number is not None else None
        sessions = [facts for facts in self.flow.sessions.values() if is_about(issue, facts)] if issue else []
        applied = plan.state == APPLIED
        return {
            **task.data(),
            "issue": number,
            "issueKey": issue.name if issue else None,
            "sessions": [facts.id for facts in sessions] if applied else [],
            "status": self._status(issue, [self.views.status(facts).name for facts in sessions]) if applied else None,
        }

    def _status(self, issue: Issue | None, sessions: Sequence[str]) -> str | None:
        """How far a task is: `done`, its last session's status, `waiting` for others, or `ready`."""
        if issue is None:
            return None
        if issue.state == "closed":
            return "done"
        if sessions:
            return sessions[-1]
        ahead = [self.flow.home.issues.get(issue_key(issue.project, number)) for number in issue.after]
        return "waiting" if any(one is not None and one.state == "open" for one in ahead) else "ready"

    # -- asking --------------------------------------------------------------------------------------------------------

    async def request(
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
        """Have a goal planned, or the open issues where there is none; with tasks it is a draft at once."""
        goal = clean_text(goal).strip()
        if len(goal) > LONGEST_GOAL:
            raise UsageError(f"the goal has {len(goal)} characters", f"{LONGEST_GOAL} at most")
        config = self._project(project)
        unique = f"plan:{project}:{key or uuid.uuid4().hex}"
        given = None if tasks is None else self._usable(config, list(tasks))
        who = "" if given else agent or config.planner.agent or config.agent
        if given is None:
            self.drafting.settings(config, who)
        async with self._changing:
            known = await self.flow.store.event_by_key(unique) if key else None
            if known is not None and isinstance(known.body, e.PlanRequested):
                return self.get(known.body.plan)
            plan, now = next_plan(self.flow.home.plans), self.flow.clock()
            asked = e.PlanRequested(plan, goal, who, model, from_issues or not (goal or given))
            events = [Event(asked, now, by, unique, project)]
            rows = []
            if given:
                drafted = e.PlanDrafted(plan, tuple(task.data() for task in given.tasks), given.notes)
                events.append(Event(drafted, now, by, f"{unique}:drafted", project))
            else:
                rows.append(self._row("draft-plan", plan))
            await self.flow.append(*events, rows=rows)
        return self.get(plan)

    def _row(self, kind: str, plan: str) -> Row:
        """To be done once; recorded with the event that it comes from."""
        seq = self.flow.seq + 1
        return Row(Intent(kind, f"{kind}:{plan}:{seq}", "", args={"plan": plan}), seq, seq * 100, 0.0)

    def _usable(self, project: ProjectConfig, tasks: Any) -> Checked:
        found = check(tasks, known_of(project, open_issues(self.flow, project.id), MOST_BY_HAND))
        if found.faults:
            raise UsageError(f"this plan cannot be used: {'; '.join(found.faults)}", "correct it")
        return found

    # -- changing ------------------------------------------------------------------------------------------------------

    async def change(self, plan: str, tasks: Any, goal: str | None = None, by: str = "person") -> dict[str, Any]:
        """Put other tasks in the place of a plan's; also of one that failed."""
        async with self._changing:
            found = self.find(plan)
            if found.state not in (DRAFT, FAILED):
                raise Conflict(f"{found.id} is {found.state}, and cannot be changed", _INSTEAD[found.state])
            checked = self._usable(self._project(found.project), tasks)
            data = tuple(task.data() for task in checked.tasks)
            new = found.goal if goal is None else clean_text(goal).strip()[:LONGEST_GOAL]
            if (found.state, data, new) != (DRAFT, tuple(task.data() for task in found.tasks), found.goal):
                changed = e.PlanChanged(found.id, data, checked.notes, new)
                await self._tell(found, changed, by)
        return self.get(plan)

    async def change_text(self, plan: str, text: str, by: str = "person") -> dict[str, Any]:
        """The same by the YAML that somebody edited."""
        goal, tasks = from_yaml(text)
        return await self.change(plan, tasks, goal, by)

    async def discard(self, plan: str, by: str = "person") -> dict[str, Any]:
        """Nobody wants it: its agent is ended, if it is still being planned."""
        async with self._changing:
            found = self.find(plan)
            if found.state in (APPLYING, APPLIED):
                raise Conflict(f"{found.id} is {found.state}, and cannot be discarded", _INSTEAD[found.state])
            if found.state != DISCARDED:
                await self._tell(found, e.PlanDiscarded(found.id), by)
                self.drafting.stop(found.id)
        return self.get(plan)

    # -- applying ------------------------------------------------------------------------------------------------------

    async def apply(
        self, plan: str, *, start: bool = True, group_limit: int | None = None, by: str = "person"
    ) -> dict[str, Any]:
        """Make issues of its tasks; a second time changes nothing."""
        async with self._changing:
            found = self.find(plan)
            if found.state in (APPLYING, APPLIED):
                return self._json(found)
            if found.state != DRAFT:
                raise Conflict(f"{found.id} is {found.state}, and cannot be applied", _INSTEAD[found.state])
            project = self._project(found.project)
            self._usable(project, [task.data() for task in found.tasks])
            how = e.PlanApplyRequested(found.id, start, group_limit or 0)
            if await self.repositories.tracker_name(project) == LOCAL:
                async with self.numbering:
                    key = f"apply-plan:{found.id}:{self.flow.seq + 1}"
                    await self.flow.append(*self.applying.at_once(found, how, key, by))
            else:
                row = self._row("apply-plan", found.id)
                event = Event(how, self.flow.clock(), by, f"{row.intent.key}:asked", found.project)
                await self.flow.append(event, rows=[row])
        return self.get(plan)

    async def _tell(self, plan: Plan, body: e.Body, by: str) -> None:
        await self.flow.append(Event(body, self.flow.clock(), by, uuid.uuid4().hex, plan.project))


_INSTEAD = {
    PLANNING: "wait for it, or discard it: ao plan ID --discard",
    FAILED: "ask for another: ao plan GOAL; or write its tasks: ao plan ID --edit",
    APPLYING: "its issues are being made; change those: ao issues",
    APPLIED: "change its issues: ao issues",
    DISCARDED: "ask for another: ao plan GOAL",
}
