"""Having an agent plan: the effect behind `ao plan`. Carried out again from its beginning when the daemon died in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.progress import Progress
from agent_orchestrator.changes.conflicts import Conflicts
from agent_orchestrator.changes.forge_sync import Tracking
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.plans import PLANNING, Plan, Spent
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Conflict, Temporary, UsageError
from agent_orchestrator.fleet.plans import brief
from agent_orchestrator.fleet.plans.conversation import Conversation, Limited, environment
from agent_orchestrator.fleet.plans.scratch_copy import Scratch, Scratches
from agent_orchestrator.fleet.plans.validation import Checked, Known, check, json_in
from agent_orchestrator.fleet.usage.account_limits import is_held, next_hold
from agent_orchestrator.protocols import AgentContext, Headless
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.environment import AGENT_SECRETS, agent_environment
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.plugins import Plugins

MOST_BEGINNINGS = 3
"""Daemons that may die in the middle of one planning before it is given up."""
MOST_AT_ONCE = 3
"""Plannings that go on together; whoever asks for more waits."""
TRACKER_WITHIN = 15.0
"""Seconds that a tracker which has not been read yet is waited for."""
LOOK_EVERY = 0.5
MOST_HISTORY = 300

log = structlog.get_logger()


class Drafting:
    """Plans, one conversation each."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        projects: Projects,
        lifecycle: Lifecycle,
        conflicts: Conflicts,
        tracking: Tracking,
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.lifecycle = lifecycle
        self.conflicts = conflicts
        self.tracking = tracking
        self.spent_for: Callable[[str, str | None], str] = lambda _project, _profile: ""
        """Project and profile → which budget is spent."""
        self.scratches = Scratches(home.path / "planning", host)
        self.prices = Prices(home.prices)
        self.progress = Progress()
        """Plan → what its agent does just now."""
        self._spent: dict[str, Spent] = {}
        self._running: dict[str, asyncio.Task[Checked]] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def settings(self, project: ProjectConfig, name: str) -> tuple[AgentSettings, Headless]:
        """The agent that is to plan; `UsageError` names those that can, where this one cannot."""
        settings = self.plugins.config.agent(project.id, name)
        assert settings is not None
        agent = self.plugins.agent(project, settings)
        if not isinstance(agent, Headless):
            raise UsageError(
                f"{name} has no headless mode, so it cannot plan",
                f"name one that has, by --agent or orchestrator.planner.agent: {', '.join(self._able(project))}",
            )
        return settings, agent

    def _able(self, project: ProjectConfig) -> list[str]:
        registry, found = self.plugins.registry(project), []
        for name in registry.names("agent"):
            try:
                factory = registry.get("agent", name)
            except AoError:
                continue
            if all(hasattr(factory, member) for member in ("turn", "read_turn")):
                found.append(name)
        return found

    def stop(self, plan: str) -> None:
        """End a planning that nobody wants any more."""
        if task := self._running.get(plan):
            task.cancel()

    async def run(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Plan, and tell what came of it; whatever goes wrong is told as a plan that failed."""
        plan = self.flow.home.plans.get(str(intent.args["plan"]))
        if plan is None or plan.state != PLANNING:
            return []
        self._spent[plan.id] = Spent()
        held: list[e.Body] = []
        asking = self._running[plan.id] = asyncio.create_task(self._checked(plan, attempts))
        try:
            found = await asking
            spent = self._spent[plan.id]
            tasks = tuple(task.data() for task in found.tasks)
            body: e.Body = e.PlanDrafted(plan.id, tasks, found.notes, spent.input, spent.output, spent.usd)
        except asyncio.CancelledError:
            if not asking.cancelled() or self.flow.home.plans[plan.id].state == PLANNING:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                raise
            return []
        except AoError as error:
            body = self._failed(plan, str(error))
            held = self._held(plan, error) if isinstance(error, Limited) else []
        except Exception as error:
            log.error("a planning failed unexpectedly", plan=plan.id, exc_info=error)
            body = self._failed(plan, f"{type(error).__name__}: {error}: see the daemon's log")
        finally:
            del self._running[plan.id]
            self.progress.pop(plan.id, None)
            self._spent.pop(plan.id, None)
        now = self.flow.clock()
        return [
            Event(one, now, "daemon", f"{intent.key}:{one.type if held else 'done'}", plan.project)
            for one in (*held, body)
        ]

    def _failed(self, plan: Plan, error: str) -> e.PlanFailed:
        spent = self._spent[plan.id]
        return e.PlanFailed(plan.id, error, spent.input, spent.output, spent.usd)

    def _held(self, plan: Plan, refused: Limited) -> list[e.Body]:
        """Who else uses the account waits with it."""
        settings = self.plugins.config.agent(plan.project, plan.agent)
        if settings is None:
            return []
        limit, until = refused.limit, refused.limit.resets_at
        resets = until.timestamp() if until else None
        return [next_hold(self.flow.home.accounts, settings.account, limit.model, resets, self.flow.clock())]

    def _refuse_held(self, settings: AgentSettings, model: str | None) -> None:
        """An account that is known to refuse is not asked."""
        hold = is_held(self.flow.home.accounts, settings.account, model or "", self.flow.clock())
        if hold is not None:
            when = rfc3339(hold.until)[:16].replace("T", " ")
            raise Conflict(
                f"the usage limit of {hold.key} is reached until {when} UTC",
                f"plan again then, name another agent, or lift the hold: ao usage --release {hold.account}",
            )

    # -- one planning --------------------------------------------------------------------------------------------------

    async def _checked(self, plan: Plan, attempts: int) -> Checked:
        if attempts >= MOST_BEGINNINGS:
            raise Conflict(
                f"the daemon ended {attempts} times in the middle of it", "see its log, then ask for the plan again"
            )
        self.progress[plan.id] = "looking at the repository"
        await self.plugins.here.login_ready.wait()
        project = self.plugins.project(plan.project)
        settings, agent = self.settings(project, plan.agent)
        await self.projects.check_trust(project, settings.profile)
        self._refuse_held(settings, self._model(plan, project, settings))
        if spent := self.spent_for(project.id, settings.profile):
            raise Conflict(spent, "plan again when there is more, or raise the budget")
        unread = await self._unread(plan)
        issues = open_issues(self.flow, project.id)
        if plan.from_issues and not brief.visible(issues, project.trusted_authors):
            raise Conflict("no issue is open that could be planned", 'open one: ao issue new "what is wanted"')
        if self._places.locked():
            self.progress[plan.id] = "waiting for another planning to end"
        async with self._places, self.scratches.of(project) as scratch:
            seen = await self._surroundings(project, scratch, issues)
            talk = self._conversation(plan, project, settings, agent, scratch)
            whole = await asyncio.to_thread(brief.brief, plan, project, seen)
            try:
                found = await self._agree(plan, project, talk, whole, issues)
            finally:
                talk.end_leftovers()  # what its agent left behind, in whatever process group
            notes = [*found.notes, *([unread] if unread else [])]
            if changed := await scratch.changed():
                notes.append(
                    f"{plan.agent} wrote to the copy that it was to read only; that was thrown away: {changed[0]}"
                )
        return replace(found, notes=tuple(notes))

    async def _unread(self, plan: Plan) -> str:
        """What cannot be known because the tracker does not answer; `Temporary` where the plan would be made of it."""
        end = asyncio.get_running_loop().time() + TRACKER_WITHIN
        while found := self.tracking.unread(plan.project):
            known = plan.project in self.tracking.problems
            if known or asyncio.get_running_loop().time() >= end:
                why = found[0]["why"]
                if plan.from_issues:
                    raise Temporary(f"the issues of {plan.project} cannot be read: {why}", "plan again when they can")
                return f"the tracker's issues could not be read, so the plan may repeat some: {why}"
            await asyncio.sleep(LOOK_EVERY)
        return ""

    async def _surroundings(
        self, project: ProjectConfig, scratch: Scratch, issues: Sequence[Issue]
    ) -> brief.Surroundings:
        git = Git(self.host, project.path)
        listed = (await git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", scratch.commit)).out
        paths = [path for path in listed.decode(errors="replace").split("\0") if path]
        at_work = [facts for facts in self.flow.sessions.values() if facts.project == project.id and _goes_on(facts)]
        try:
            files: Mapping[str, frozenset[str]] = await self.conflicts.expected(at_work)
        except AoError:
            files = {}
        return brief.Surroundings(
            paths=paths,
            readme=await asyncio.to_thread(_readme, scratch.tree, paths),
            issues=issues,
            sessions=[(facts.id, facts.spec.title, files.get(facts.id, frozenset())) for facts in at_work],
            conflicts=await self._history(project.id),
        )

    async def _history(self, project: str) -> Counter[str]:
        """On which files branches collided, as far back as it is worth looking."""
        counted: Counter[str] = Counter()
        for kind in ("conflict-predicted", "conflicts-seen"):
            for event in await self.flow.store.events(limit=MOST_HISTORY, project=project, kind=kind, newest=True):
                if isinstance(event.body, e.ConflictPredicted | e.ConflictsSeen):
                    counted.update(event.body.files)
        return counted

    def _model(self, plan: Plan, project: ProjectConfig, settings: AgentSettings) -> str | None:
        own = project.planner.model if project.planner.agent in (None, plan.agent) else None
        return plan.model or own or settings.model

    def _conversation(
        self, plan: Plan, project: ProjectConfig, settings: AgentSettings, agent: Headless, scratch: Scratch
    ) -> Conversation:
        own = {"AO_PROJECT": project.id, "AO_HOME": str(self.home.path)}
        whole = agent_environment(self.plugins.here.login, settings.env, own, AGENT_SECRETS.get(settings.tool, ()))
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
            system=brief.SYSTEM,
            model=self._model(plan, project, settings),
            permissions="plan",
            mode="headless",
            env=environment(whole, self.home.path, plan.id),
            schema=brief.SCHEMA,
        )

        def progress(line: str) -> None:
            self.progress[plan.id] = " ".join(line.split())[:200]

        talk = Conversation(agent, plan.agent, context, self.host, self.prices, progress)
        talk.end_leftovers()
        return talk

    async def _agree(
        self, plan: Plan, project: ProjectConfig, talk: Conversation, whole: str, issues: Sequence[Issue]
    ) -> Checked:
        """Ask until the answer can be used, a few times at most."""
        visible = brief.visible(issues, project.trusted_authors)
        known = known_of(project, visible)
        loop = asyncio.get_running_loop()
        end = loop.time() + project.planner.timeout
        prompt, most = whole, project.planner.attempts
        faults: Sequence[str] = ()
        for number in range(1, most + 1):
            self.progress[plan.id] = f"{plan.agent} plans" + (f", attempt {number} of {most}" if number > 1 else "")
            try:
                said = await talk.say(prompt, max(0.0, end - loop.time()))
            finally:
                self._spent[plan.id] = talk.spent
            found = self._read(plan, said, known)
            if not found.faults:
                return found
            faults = found.faults
            log.info("a plan could not be used", plan=plan.id, attempt=number, faults=list(faults))
            prompt = brief.again(faults)
            if talk.id is None:
                prompt = f"{whole}\n\nYou answered before:\n\n{said[:20_000]}\n\n{prompt}"
        tries = "once" if most == 1 else f"{most} times"
        raise UsageError(
            f"{plan.agent} was asked {tries}, and its plan cannot be used: {'; '.join(faults)}",
            "say the goal otherwise, or name another agent",
        )

    def _read(self, plan: Plan, said: str, known: Known) -> Checked:
        try:
            answer = json_in(said)
        except ValueError:
            begins = " ".join(said.split())[:80]
            return Checked(faults=(f"it is no JSON document: {begins!r}" if begins else "it said nothing",))
        found = check(answer, known)
        if plan.from_issues and not found.faults and all(task.issue is None for task in found.tasks):
            return replace(found, faults=("no task has the number of an open issue as `issue`",))
        return found


def open_issues(flow: Flow, project: str) -> list[Issue]:
    """A project's open issues, by number."""
    mine = [issue for issue in flow.home.issues.values() if issue.project == project and issue.state == "open"]
    return sorted(mine, key=lambda issue: issue.number)


def known_of(project: ProjectConfig, issues: Sequence[Issue], most: int = 0) -> Known:
    """What a plan of this project is checked against; an agent's may have as many tasks as are configured."""
    return Known(
        most=max(most, project.planner.max_tasks),
        profiles=frozenset(project.profiles),
        issues={issue.number: issue.title for issue in issues},
        after={issue.number: issue.after for issue in issues},
    )


def _goes_on(facts: SessionFacts) -> bool:
    return not facts.stopped and facts.wanted == "run" and (facts.pr is None or facts.pr.state == "open")


def _readme(tree: Path, paths: Sequence[str]) -> str:
    """The first README at the top."""
    name = next((path for path in sorted(paths) if "/" not in path and path.lower().startswith("readme")), None)
    file = tree / name if name else None
    if file is None or file.is_symlink() or not file.is_file():
        return ""
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(brief.LONGEST_README + 1)
