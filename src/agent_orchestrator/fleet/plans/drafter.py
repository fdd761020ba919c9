"""Let an agent draft a plan: the effect behind `ao plan`. Look here for how a planning starts and how its answer is read.

If the daemon dies during a planning, the next one starts it again from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.progress import ProgressTexts
from agent_orchestrator.changes.conflicts import ConflictPredictor
from agent_orchestrator.changes.forge_sync import IssueSync
from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.plans import PLANNING, Plan, PlanUsage
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import PlanProgressed
from agent_orchestrator.errors import AoError, Conflict, Temporary, UsageError
from agent_orchestrator.fleet.plans import brief
from agent_orchestrator.fleet.plans.conversation import Conversation, UsageLimitReached, environment_with_plan
from agent_orchestrator.fleet.plans.scratch_copy import ScratchCopies, ScratchCopy
from agent_orchestrator.fleet.plans.validation import CheckedPlan, PlanContext, check_plan, extract_json
from agent_orchestrator.fleet.usage.account_limits import active_hold, next_hold
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.protocols import Agent, AgentContext
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS, agent_environment
from agent_orchestrator.sessions.part import Core, Part

MAX_ATTEMPTS = 3
"""How often one planning is started; after that many daemons ended during it, the plan fails."""
MAX_CONCURRENT = 3
"""Plannings that run at the same time; further ones wait."""
TRACKER_TIMEOUT = 15.0
"""Seconds to wait for a tracker that has not been read yet."""
TRACKER_RECHECK_SECONDS = 0.5
"""Seconds between two checks whether the tracker was read."""
MAX_CONFLICT_EVENTS = 300
"""Events of each kind that past conflicts are counted from."""

log = structlog.get_logger()


class PlanDrafter(Part):
    """The plannings of a home: one conversation with an agent per plan."""

    def __init__(self, core: Core, conflicts: ConflictPredictor, tracking: IssueSync, budgets: Budgets) -> None:
        super().__init__(core)
        self.conflicts = conflicts
        self.issue_sync = tracking
        self.budgets = budgets
        self.scratch_copies = ScratchCopies(core.home.path / "planning", core.host)
        self.prices = Prices(core.home.prices)
        self.progress = ProgressTexts(lambda: self.emit(PlanProgressed()))
        """Plan id → what its agent is doing."""
        self._usage: dict[str, PlanUsage] = {}
        self._draft_tasks: dict[str, asyncio.Task[CheckedPlan]] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    def planning_agent(self, project: ProjectConfig, name: str) -> tuple[ResolvedAgent, Agent]:
        """Return the settings and the plugin of the agent that is to plan.

        Raises `UsageError`, with the names of the agents that can plan, if this one has no headless mode.
        """
        settings = self.core.config.agent(project.id, name)
        assert settings is not None
        agent = self.core.plugins.agent(project, settings)
        if not agent.has_headless_mode:
            raise UsageError(
                f"{name} has no headless mode, so it cannot plan",
                f"name one that has, by --agent or orchestrator.planner.agent: {', '.join(self._headless_agents(project))}",
            )
        return settings, agent

    def _headless_agents(self, project: ProjectConfig) -> list[str]:
        """Return the names of the agents that have a headless mode."""
        registry, names = self.core.plugins.registry(project), []
        for name in registry.names("agent"):
            with contextlib.suppress(AoError):
                if registry.create("agent", name, {}, self.core.host).has_headless_mode:
                    names.append(name)
        return names

    def stop(self, plan: str) -> None:
        """Cancel the planning of a plan, if it is running."""
        if task := self._draft_tasks.get(plan):
            task.cancel()

    async def run(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Draft a plan and return the events that record the result; any failure is recorded as a failed plan."""
        plan = self.flow.home.plans.get(str(intent.args["plan"]))
        if plan is None or plan.state != PLANNING:
            return []
        self._usage[plan.id] = PlanUsage()
        held: list[e.Body] = []
        planning_task = self._draft_tasks[plan.id] = self.spawn(self._draft(plan, attempts))
        try:
            checked = await planning_task
            spent = self._usage[plan.id]
            tasks = tuple(task.to_json() for task in checked.tasks)
            body: e.Body = e.PlanDrafted(plan.id, tasks, checked.notes, spent.input, spent.output, spent.usd)
        except asyncio.CancelledError:
            if not planning_task.cancelled() or self.flow.home.plans[plan.id].state == PLANNING:
                planning_task.cancel()
                await asyncio.gather(planning_task, return_exceptions=True)
                raise
            return []
        except AoError as error:
            body = self._failed_event(plan, str(error))
            held = self._hold_events(plan, error) if isinstance(error, UsageLimitReached) else []
        except Exception as error:
            log.error("a planning failed unexpectedly", plan=plan.id, exc_info=error)
            body = self._failed_event(plan, f"{type(error).__name__}: {error}: see the daemon's log")
        finally:
            del self._draft_tasks[plan.id]
            self.progress.pop(plan.id, None)
            self._usage.pop(plan.id, None)
        now = self.clock()
        return [
            Event(event_body, now, "daemon", f"{intent.key}:{event_body.type if held else 'done'}", plan.project)
            for event_body in (*held, body)
        ]

    def _failed_event(self, plan: Plan, error: str) -> e.PlanFailed:
        """Return the event that records a failed planning and what it used."""
        spent = self._usage[plan.id]
        return e.PlanFailed(plan.id, error, spent.input, spent.output, spent.usd)

    def _hold_events(self, plan: Plan, error: UsageLimitReached) -> list[e.Body]:
        """Return the event that holds the agent's account because of its usage limit; other users of the account wait too."""
        settings = self.core.config.agent(plan.project, plan.agent)
        if settings is None:
            return []
        limit, until = error.limit, error.limit.resets_at
        resets_at = until.timestamp() if until else None
        return [next_hold(self.flow.home.account_holds, settings.account, limit.model, resets_at, self.clock())]

    def _require_free_account(self, settings: ResolvedAgent, model: str | None) -> None:
        """Raise `Conflict` if the account is held because of a usage limit."""
        hold = active_hold(self.flow.home.account_holds, settings.account, model or "", self.clock())
        if hold is not None:
            when = rfc3339(hold.until)[:16].replace("T", " ")
            raise Conflict(
                f"the usage limit of {hold.key} is reached until {when} UTC",
                f"plan again then, name another agent, or lift the hold: ao usage --release {hold.account}",
            )

    # -- one planning --------------------------------------------------------------------------------------------------

    async def _draft(self, plan: Plan, attempts: int) -> CheckedPlan:
        """Draft a plan in a copy of the repository, and return the checked answer.

        Raises `Conflict` if the daemon ended too often meanwhile, the account is held, the budget is used up, or there is no issue to plan.
        """
        if attempts >= MAX_ATTEMPTS:
            raise Conflict(
                f"the daemon ended {attempts} times in the middle of it", "see its log, then ask for the plan again"
            )
        self.progress[plan.id] = "looking at the repository"
        await self.core.sites.local.login_ready.wait()
        project = self.core.settings.project(plan.project)
        settings, agent = self.planning_agent(project, plan.agent)
        await self.core.projects.check_trust(project, settings.profile)
        self._require_free_account(settings, self._model(plan, project, settings))
        if spent := self.budgets.exhausted_reason(project.id, settings.profile):
            raise Conflict(spent, "plan again when there is more, or raise the budget")
        tracker_note = await self._wait_for_tracker(plan)
        issues = open_issues(self.flow, project.id)
        if plan.from_issues and not brief.issues_for_agent(issues, project.trusted_authors):
            raise Conflict("no issue is open that could be planned", 'open one: ao issue new "what is wanted"')
        if self._slots.locked():
            self.progress[plan.id] = "waiting for another planning to end"
        async with self._slots, self.scratch_copies.open(project) as scratch:
            surroundings = await self._collect_overview(project, scratch, issues)
            conversation = self._conversation(plan, project, settings, agent, scratch)
            brief_text = await asyncio.to_thread(brief.render_brief, plan, project, surroundings)
            try:
                checked = await self._converse(plan, project, conversation, brief_text, issues)
            finally:
                conversation.kill_leftovers()  # processes that its agent left behind may be in other process groups
            notes = [*checked.notes, *([tracker_note] if tracker_note else [])]
            if changed := await scratch.find_changes():
                notes.append(
                    f"{plan.agent} wrote to the copy that it was to read only; that was thrown away: {changed[0]}"
                )
        return replace(checked, notes=tuple(notes))

    async def _wait_for_tracker(self, plan: Plan) -> str:
        """Wait for the tracker's issues, and return a note for the plan if they cannot be read, or "" if they were read.

        Raises `Temporary` if the plan is to be made from these issues.
        """
        deadline = asyncio.get_running_loop().time() + TRACKER_TIMEOUT
        while unread_issues := self.issue_sync.unreadable_trackers(plan.project):
            has_failed = plan.project in self.issue_sync.problems
            if has_failed or asyncio.get_running_loop().time() >= deadline:
                why = unread_issues[0]["why"]
                if plan.from_issues:
                    raise Temporary(f"the issues of {plan.project} cannot be read: {why}", "plan again when they can")
                return f"the tracker's issues could not be read, so the plan may repeat some: {why}"
            await asyncio.sleep(TRACKER_RECHECK_SECONDS)
        return ""

    async def _collect_overview(
        self, project: ProjectConfig, scratch: ScratchCopy, issues: Sequence[Issue]
    ) -> brief.ProjectOverview:
        """Return what the agent's brief says about the project: files, README, issues, sessions and past conflicts."""
        git = Git(self.host, project.path)
        listing = (await git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", scratch.commit)).out
        paths = [path for path in listing.decode(errors="replace").split("\0") if path]
        at_work = [
            facts for facts in self.flow.sessions.values() if facts.project == project.id and _is_unfinished(facts)
        ]
        try:
            files: Mapping[str, frozenset[str]] = await self.conflicts.expected_files(at_work)
        except AoError:
            files = {}
        return brief.ProjectOverview(
            paths=paths,
            readme=await asyncio.to_thread(_readme, scratch.tree, paths),
            issues=issues,
            sessions=[(facts.id, facts.spec.title, files.get(facts.id, frozenset())) for facts in at_work],
            conflicts=await self._conflict_counts(project.id),
        )

    async def _conflict_counts(self, project: str) -> Counter[str]:
        """Return how often branches conflicted on each file, by the most recent events."""
        counts: Counter[str] = Counter()
        for kind in ("conflict-predicted", "conflicts-seen"):
            for event in await self.flow.store.events(
                limit=MAX_CONFLICT_EVENTS, project=project, kind=kind, newest=True
            ):
                if isinstance(event.body, e.ConflictPredicted | e.ConflictsSeen):
                    counts.update(event.body.files)
        return counts

    def _model(self, plan: Plan, project: ProjectConfig, settings: ResolvedAgent) -> str | None:
        """Return the model to plan with: the plan's own, else the planner's if it is configured for this agent, else the agent's."""
        planner_model = project.planner.model if project.planner.agent in (None, plan.agent) else None
        return plan.model or planner_model or settings.model

    def _conversation(
        self, plan: Plan, project: ProjectConfig, settings: ResolvedAgent, agent: Agent, scratch: ScratchCopy
    ) -> Conversation:
        """Return a new conversation with the agent in the copy of the repository; end processes that an earlier one left."""
        ao_variables = {"AO_PROJECT": project.id, "AO_HOME": str(self.home.path)}
        variables = agent_environment(
            self.core.sites.local.login, settings.env, ao_variables, AGENT_SECRETS.get(settings.tool, ())
        )
        context = AgentContext(
            session=f"plan-{plan.id.lower()}",
            project=project.id,
            workspace=scratch.tree,
            branch=scratch.branch,
            base=scratch.branch,
            prompt="",
            task_file=scratch.private / "task.md",
            private=scratch.private,
            repo=project.path,
            system=brief.SYSTEM_PROMPT,
            model=self._model(plan, project, settings),
            permissions="plan",
            mode="headless",
            env=environment_with_plan(variables, self.home.path, plan.id),
            schema=brief.ANSWER_SCHEMA,
        )

        def progress(line: str) -> None:
            """Show what the agent is doing as the plan's progress."""
            self.progress[plan.id] = " ".join(line.split())[:200]

        conversation = Conversation(agent, plan.agent, context, self.host, self.prices, progress)
        conversation.kill_leftovers()
        return conversation

    async def _converse(
        self, plan: Plan, project: ProjectConfig, conversation: Conversation, brief_text: str, issues: Sequence[Issue]
    ) -> CheckedPlan:
        """Send the brief, and ask again while the answer has faults; return the usable plan.

        Raises `UsageError` if there is none after the configured number of attempts.
        """
        visible = brief.issues_for_agent(issues, project.trusted_authors)
        context = plan_context(project, visible)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + project.planner.timeout
        prompt, max_attempts = brief_text, project.planner.attempts
        faults: Sequence[str] = ()
        for attempt in range(1, max_attempts + 1):
            self.progress[plan.id] = f"{plan.agent} plans" + (
                f", attempt {attempt} of {max_attempts}" if attempt > 1 else ""
            )
            try:
                answer = await conversation.send(prompt, max(0.0, deadline - loop.time()))
            finally:
                self._usage[plan.id] = conversation.spent
            checked = self._parse_answer(plan, answer, context)
            if not checked.faults:
                return checked
            faults = checked.faults
            log.info("a plan could not be used", plan=plan.id, attempt=attempt, faults=list(faults))
            prompt = brief.correction_request(faults)
            if conversation.id is None:
                prompt = f"{brief_text}\n\nYou answered before:\n\n{answer[:20_000]}\n\n{prompt}"
        tries = "once" if max_attempts == 1 else f"{max_attempts} times"
        raise UsageError(
            f"{plan.agent} was asked {tries}, and its plan cannot be used: {'; '.join(faults)}",
            "say the goal otherwise, or name another agent",
        )

    def _parse_answer(self, plan: Plan, text: str, context: PlanContext) -> CheckedPlan:
        """Parse and check an agent's answer; one that is not JSON, or uses no open issue although it must, has faults."""
        try:
            answer = extract_json(text)
        except ValueError:
            beginning = " ".join(text.split())[:80]
            return CheckedPlan(faults=(f"it is no JSON document: {beginning!r}" if beginning else "it said nothing",))
        checked = check_plan(answer, context)
        if plan.from_issues and not checked.faults and all(task.issue is None for task in checked.tasks):
            return replace(checked, faults=("no task has the number of an open issue as `issue`",))
        return checked


def open_issues(flow: Flow, project: str) -> list[Issue]:
    """Return a project's open issues, sorted by number."""
    issues_of_project = [
        issue for issue in flow.home.issues.values() if issue.project == project and issue.state == "open"
    ]
    return sorted(issues_of_project, key=lambda issue: issue.number)


def plan_context(project: ProjectConfig, issues: Sequence[Issue], most: int = 0) -> PlanContext:
    """Return what a plan of this project is checked against. `most` raises the number of tasks above the one configured for agents."""
    return PlanContext(
        max_tasks=max(most, project.planner.max_tasks),
        profiles=frozenset(project.profiles),
        issues={issue.number: issue.title for issue in issues},
        prerequisites={issue.number: issue.after for issue in issues},
    )


def _is_unfinished(facts: SessionFacts) -> bool:
    """Return whether a session still works on a change that may be merged."""
    return not facts.stopped and facts.requested_state == "run" and (facts.pr is None or facts.pr.state == "open")


def _readme(tree: Path, paths: Sequence[str]) -> str:
    """Return the beginning of the first README at the top of the repository, or "" if there is none."""
    name = next((path for path in sorted(paths) if "/" not in path and path.lower().startswith("readme")), None)
    file = tree / name if name else None
    if file is None or file.is_symlink() or not file.is_file():
        return ""
    with file.open(encoding="utf-8", errors="replace") as stream:
        return stream.read(brief.MAX_README_LENGTH + 1)
