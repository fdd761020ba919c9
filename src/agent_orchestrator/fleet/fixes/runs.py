"""Fixing runs, carried out. Everything that a run is follows from events: whoever starts after a crash goes on where it was.

Each step is recorded under a key of its own, sessions are made under the key of their cause, and measurements are remembered by content:
nothing is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.progress import Progress
from agent_orchestrator.changes.checks import Checks, CheckSpec
from agent_orchestrator.changes.checks.events import set_up_remedy
from agent_orchestrator.changes.checks.results import write_atomically
from agent_orchestrator.changes.checks.spec import file_name
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Check
from agent_orchestrator.config.projects.projects import NOWHERE, Context, Projects
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import LATER, Fix, FixGroup, FixRound
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.fleet.fixes import prompt
from agent_orchestrator.fleet.fixes.causes import Group, as_one, group
from agent_orchestrator.fleet.fixes.comparison import Target
from agent_orchestrator.fleet.fixes.model import Report, report_from, tool_from
from agent_orchestrator.fleet.fixes.next_steps import (
    SENDER,
    End,
    Land,
    MakeReady,
    Measure,
    Remind,
    Settle,
    StartAgent,
    Step,
    Verify,
    check_name,
    next_steps,
)
from agent_orchestrator.fleet.fixes.spec import Spec, spec_json
from agent_orchestrator.fleet.fixes.views import fix_json
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.agents.sign_in import require_sign_in
from agent_orchestrator.sessions.environment import AGENT_SECRETS, agent_environment
from agent_orchestrator.sessions.isolation.containers import RUNTIME as CONTAINED
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.session_view import Views
from agent_orchestrator.sessions.sessions import Sessions

MOST_GROUPS = 16
"""Causes that get an agent in one round; the others wait for the next."""
MOST_KEPT = 200
"""Causes of one measurement that are written down."""
RUNS = 4
"""How often a verification may run a tool: with a report and without, and both once more for what fails by chance."""
LOOK_AGAIN = 1.0
"""Seconds after which a run is looked at though nothing happened: time alone may decide."""
PATIENCE = 30.0
"""Seconds before what could not be done is tried again."""
REMINDER = """\
You ended your turn without a commit. If you have changes, commit them. If you found that nothing can be changed, say why, in one line: \
the failures of your task are still there."""

log = structlog.get_logger()


class Fixes:
    """All fixing runs of a home."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        projects: Projects,
        sessions: Sessions,
        reviews: Reviews,
        inbox: Inbox,
        lifecycle: Lifecycle,
        checks: Checks,
        views: Views,
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.sessions = sessions
        self.reviews = reviews
        self.inbox = inbox
        self.lifecycle = lifecycle
        self.checks = checks
        self.views = views
        self._starting = asyncio.Lock()
        self._driving: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self.progress = Progress()
        """Run → what is done for it just now."""

    def start(self) -> None:
        """Go on with every run that is not over."""
        self.flow.on_change.append(self._on_change)
        for fix in self.flow.home.fixes.values():
            self._drive(fix)

    def close(self) -> None:
        """The next daemon goes on."""
        for task in self._driving.values():
            task.cancel()

    # -- what people ask -----------------------------------------------------------------------------------------------

    async def create(self, request: Mapping[str, Any], key: str | None, context: Context) -> dict[str, Any]:
        """Begin a run; the same key gives the same run."""
        unique = f"fix:{key or uuid.uuid4().hex}"
        if known := await self._made_by(unique):
            return known
        project_id = await self.projects.resolve(context, request.get("projectId"), adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        project = self.plugins.project(project_id)
        wanted = await self._checked(project, request)
        async with self._starting:
            if known := await self._made_by(unique):
                return known
            others = [fix for fix in self.flow.home.fixes.values() if fix.project == project_id and not fix.ended]
            running = next((fix for fix in others if not fix.dry), None)
            if running and not wanted["dryRun"]:
                raise Conflict(
                    f"{running.id} fixes {project_id} already",
                    f"follow it: ao fix {running.id}, or stop it: ao fix --stop {running.id}",
                )
            number = max((int(one[1:]) for one in self.flow.home.fixes), default=0) + 1
            body = e.FixStarted(f"F{number}", wanted)
            await self.flow.append(Event(body, self.flow.clock(), "person", unique, project_id))
        self._drive(self.flow.home.fixes[body.fix])
        return self.view(body.fix)

    async def _made_by(self, unique: str) -> dict[str, Any] | None:
        event = await self.flow.store.event_by_key(unique)
        return self.view(event.body.fix) if event and isinstance(event.body, e.FixStarted) else None

    async def _checked(self, project: ProjectConfig, request: Mapping[str, Any]) -> dict[str, Any]:
        """What is asked, completed; refuses what cannot be."""
        settings = self.plugins.config.agent(project.id, request.get("agent"))
        assert settings is not None
        self.plugins.agent(project, settings)
        await self.projects.check_trust(project, settings.profile, ci=True)
        dry = bool(request.get("dryRun"))
        if not dry and settings.runtime != CONTAINED:
            await self.plugins.here.login_ready.wait()
            secrets = AGENT_SECRETS.get(settings.tool, ())
            env = agent_environment(self.plugins.here.login, settings.env, {}, secrets)
            await require_sign_in(self.host, settings.tool, env)
        scm = await self.sessions.forge_of(project)
        if scm != "local" and not dry:
            raise UsageError(
                f"fixes are verified and landed by the local merge queue, and the changes of {project.id} land at {scm}",
                "see what fails: ao fix --dry-run; then give it to agents: ao new",
            )
        base = str(request.get("base") or "") or await self._default_base(project)
        if await Git(self.host, project.path).resolve(f"refs/heads/{base}") is None:
            raise UsageError(
                f"{project.path} has no branch {base!r}", "name the branch that is to become green: --base"
            )
        commands = [text for one in request.get("commands") or () if (text := str(one).strip())]
        return {
            "base": base,
            "commands": commands or list(project.fix.commands),
            "maxRounds": int(request.get("maxRounds") or 3),
            "maxAgents": int(request.get("maxAgents") or 0),
            "agent": request.get("agent"),
            "model": request.get("model"),
            "merge": bool(request.get("merge", True)),
            "together": project.red_base == "forbid",
            "dryRun": dry,
        }

    async def _default_base(self, project: ProjectConfig) -> str:
        git = Git(self.host, project.path)
        return project.default_branch or await git.default_branch() or await git.current_branch() or "main"

    def find(self, name: str) -> Fix:
        """A run by its id."""
        fix = self.flow.home.fixes.get(name.upper())
        if fix is None:
            raise NotFound(f"there is no fixing run {name}", "see them all: ao fix --list -A")
        return fix

    def view(self, name: str) -> dict[str, Any]:
        """One run as JSON."""
        fix = self.find(name)
        return fix_json(fix, self.flow.sessions, self.progress.get(fix.id, ""), self.views.status)

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """All runs, the newest first."""
        chosen = [fix for fix in self.flow.home.fixes.values() if project in (None, fix.project)]
        return [self.view(fix.id) for fix in reversed(chosen)]

    def report(self, name: str, number: int | None = None) -> dict[str, Any]:
        """Every failure of one measurement, by cause."""
        fix = self.find(name)
        if not fix.rounds:
            return {"id": fix.id, "round": 0, "groups": []}
        measured = fix.rounds[-1] if number is None else next((one for one in fix.rounds if one.number == number), None)
        if measured is None:
            raise NotFound(f"{fix.id} has no round {number}", f"it has {len(fix.rounds)}")
        report = self._read(fix, measured.number)
        groups = _groups(report, together=fix.together) if report else []
        keys = ("tool", "id", "file", "line", "message", "detail")
        shown = [
            {
                "key": one.key,
                "title": one.title,
                "failures": [{key: getattr(each, key) for key in keys} for each in one.failures],
            }
            for one in groups
        ]
        return {"id": fix.id, "round": measured.number, "groups": shown}

    async def stop(self, name: str, key: str | None = None) -> dict[str, Any]:
        """End a run; its agents are stopped, their work is saved."""
        fix = self.find(name)
        if not fix.ended:
            await self._tell(fix, e.FixEnded(fix.id, "stopped", "a person stopped it"), "ended", "person")
        if task := self._driving.get(fix.id):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        kept = {group.session for one in fix.rounds for group in one.groups if group.settled}
        mine = [one for one in self.flow.sessions.values() if one.spec.group == fix.id and one.id not in kept]
        for facts in mine:
            if not facts.stopped and not (facts.pr and facts.pr.state == "merged"):
                with contextlib.suppress(AoError):
                    await self.sessions.stop(facts.id, key=key)
        return self.view(name)

    # -- verification --------------------------------------------------------------------------------------------------

    def checks_of(self, facts: SessionFacts) -> Mapping[str, Check]:
        """The check that verifies a session's fix."""
        fix = self.flow.home.fixes.get(facts.spec.group) if facts.spec.group else None
        found = fix.group_of(facts.id) if fix else None
        if fix is None or found is None:
            return {}
        measured, mine = found
        project = self.plugins.config.project(facts.project)
        settings = project.fix if project else None
        timeout = (settings.timeout if settings else 1800.0) * max(1, len(fix.tools)) * RUNS + 60.0
        command = _command(self._spec_file(fix, measured.number, mine.number))
        return {
            check_name(fix, measured, mine): Check(
                command=command, timeout=timeout, parallel=settings.parallel if settings else 1, on="done"
            )
        }

    def commands_of(self, facts: SessionFacts) -> tuple[str, ...]:
        """What finds the failures that a session is to fix."""
        fix = self.flow.home.fixes.get(facts.spec.group) if facts.spec.group else None
        return tuple(tool_from(tool).command for tool in fix.tools) if fix else ()

    # -- driving -------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name = change.after.spec.group if change.after else ""
            if name in self._changed:
                self._changed[name].set()

    def _drive(self, fix: Fix) -> None:
        if not fix.ended and fix.id not in self._driving:
            self._changed[fix.id] = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._run(fix.id), name=f"fix {fix.id}")
            self._driving[fix.id] = task
            task.add_done_callback(lambda _: self._driven(fix.id))

    def _driven(self, fix: str) -> None:
        self._driving.pop(fix, None)
        self._changed.pop(fix, None)
        self.progress.pop(fix, None)

    async def _run(self, name: str) -> None:
        changed = self._changed[name]
        while not (fix := self.flow.home.fixes[name]).ended:
            changed.clear()
            steps = next_steps(fix, self.flow.sessions, self.flow.clock())
            for step in steps:
                try:
                    await self._step(fix, step)
                except AoError as error:
                    await self._failed(fix, step, error)
                except Exception:
                    log.exception("a fixing run met a defect", fix=name, step=str(step))
                    await asyncio.sleep(PATIENCE)
            if not steps or all(isinstance(step, Land | Verify | MakeReady | Remind) for step in steps):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_AGAIN)

    async def _failed(self, fix: Fix, step: Step, error: AoError) -> None:
        """What cannot be measured ends the run; what cannot be started or landed ends one cause."""
        log.warning("a step of a fixing run failed", fix=fix.id, step=type(step).__name__, error=str(error))
        if error.retryable:
            self.progress[fix.id] = f"tries again in {PATIENCE:.0f} s: {error.text}"
            await asyncio.sleep(PATIENCE)
        elif isinstance(step, Measure):
            await self._tell(fix, e.FixEnded(fix.id, "failed", str(error)), "ended")
        elif isinstance(step, StartAgent):
            body = e.FixGroupSettled(fix.id, step.round, step.group.number, "failed", None, str(error))
            await self._tell(fix, body, f"{step.round}:{step.group.number}:settled")
        else:
            await asyncio.sleep(LOOK_AGAIN)  # the session has moved on: look at it anew

    async def _step(self, fix: Fix, step: Step) -> None:
        match step:
            case Measure():
                await self._measure(fix, step.round)
            case StartAgent():
                await self._start_agent(fix, step.round, step.group)
            case Land():
                await self.reviews.merge(step.session, None, key=step.key)
            case Verify():
                await self.reviews.check(step.session, key=step.key)
            case MakeReady():
                await self.reviews.ready(step.session, key=step.key)
            case Remind():
                await self.inbox.send(step.session, REMINDER, key=f"fix:{fix.id}:{step.session}", sender=SENDER)
            case Settle():
                body = e.FixGroupSettled(fix.id, step.round, step.group.number, step.outcome, step.commit, step.reason)
                await self._tell(fix, body, f"{step.round}:{step.group.number}:settled")
                if step.outcome == "failed" and step.group.session:
                    await self._give_up(step.group.session)
            case End():
                await self._tell(fix, e.FixEnded(fix.id, step.outcome, step.reason), "ended")

    async def _tell(self, fix: Fix, body: e.Body, key: str, source: str = "daemon") -> None:
        await self.flow.append(Event(body, self.flow.clock(), source, f"fix:{fix.id}:{key}", fix.project))

    async def _give_up(self, session: str) -> None:
        """A session whose fix does not hold is stopped, its work saved: the next round may give the cause to another."""
        facts = self.flow.sessions[session]
        if not facts.stopped:
            with contextlib.suppress(AoError):
                await self.sessions.stop(session)

    # -- measuring -----------------------------------------------------------------------------------------------------

    async def _measure(self, fix: Fix, number: int) -> None:
        project = self.plugins.project(fix.project)
        await self.projects.check_trust(project, None, ci=True)
        await self.plugins.here.login_ready.wait()
        commit = await Git(self.host, project.path).resolve(f"refs/heads/{fix.base}")
        if commit is None:
            raise NotFound(f"{project.path} has no branch {fix.base} any more", "begin anew: ao fix")
        spec = Spec(
            output=self._report_file(fix, number),
            cache=self._cache(fix),
            tools=tuple(tool_from(tool) for tool in fix.tools) or None,
            commands=tuple(fix.request.get("commands") or ()),
            ci=tuple(check.command for check in project.ci.values()),
            timeout=project.fix.timeout,
        )
        spec_file = self._folder(fix) / f"measure-{number}.json"
        write_atomically(spec_file, spec_json(spec))
        await self._measured_at(fix, project, commit, spec_file, again=False)
        report = self._read(fix, number)
        if report is None:  # it was measured before, and what came of it is gone
            await self._measured_at(fix, project, commit, spec_file, again=True)
            report = self._read(fix, number)
        if report is None:
            raise AoError("what was measured could not be written down", "see the daemon's log")
        remedy = await asyncio.to_thread(set_up_remedy, project.path, project.post_create)
        await self._tell(fix, self._measured(fix, number, commit, report, remedy), f"{number}:measured")

    async def _measured_at(
        self, fix: Fix, project: ProjectConfig, commit: str, spec_file: Path, *, again: bool
    ) -> None:
        env = agent_environment(self.plugins.here.login, project.env, {})
        check = CheckSpec(
            project=fix.project,
            repo=project.path,
            commit=commit,
            name=f"fix-{fix.id}",
            command=_command(spec_file),
            timeout=project.fix.timeout * 10,
            env={key: value for key, value in env.items() if not key.startswith(("AO_", "GIT_"))},
            copy=project.copy,
            symlinks=project.symlinks,
            post_create=project.post_create,
            base=fix.base,
            parallel=project.fix.parallel,
        )

        def progress(line: str) -> None:
            if text := " ".join(line.split()):
                self.progress[fix.id] = f"running checks on {fix.base}: {text[:200]}"

        self.progress[fix.id] = f"running checks on {fix.base} at {commit[:12]}"
        result = await self.checks.run(check, progress, again=again)
        self.progress.pop(fix.id, None)
        if result.state != "success":
            why = result.summary.strip().split("\n")
            raise AoError(f"{fix.base} could not be measured: {' '.join(why)[:500]}", f"the whole output: {result.log}")

    def _measured(self, fix: Fix, number: int, commit: str, report: Report, remedy: str) -> e.FixMeasured:
        failed = {one.key for past in fix.rounds for one in past.groups if one.outcome == "failed"}
        groups = sorted(
            _groups(report, together=fix.together), key=lambda one: one.key in failed
        )  # what failed before comes last
        most = MOST_GROUPS
        described = [
            {
                "key": one.key,
                "title": one.title,
                "count": len(one.failures),
                "tools": one.tools,
                "files": list(one.files[:20]),
                **({"outcome": LATER} if place >= most and not fix.dry else {}),
            }
            for place, one in enumerate(groups[:MOST_KEPT])
        ]
        tools = tuple(asdict(one.tool) for one in report.tools)
        lacks = f"environment not set up: {report.lacks}. {remedy}" if report.lacks else ""
        return e.FixMeasured(fix.id, number, commit, report.counts, report.problems, tuple(described), tools, lacks)

    # -- agents --------------------------------------------------------------------------------------------------------

    async def _start_agent(self, fix: Fix, number: int, mine: FixGroup) -> None:
        """One session a cause: the key names the cause in its round, so there is never a second."""
        report = self._read(fix, number)
        groups = _groups(report, together=fix.together) if report else []
        found = next((one for one in groups if one.key == mine.key), None)
        if report is None or found is None:
            raise NotFound(f"what was measured for {fix.id} is not there any more", "begin anew: ao fix")
        measured = next(one for one in fix.rounds if one.number == number)
        self._write_spec(fix, measured, mine, found, report)
        tools = [one.tool for one in report.tools if not one.problem]
        request = {
            "projectId": fix.project,
            "title": prompt.title(found),
            "prompt": prompt.prompt(found, tools, measured.commit, fix.base),
            "agent": fix.request.get("agent"),
            "model": fix.request.get("model"),
            "base": fix.base,
            "group": fix.id,
            "groupLimit": fix.request.get("maxAgents") or None,
            "files": list(mine.files),
        }
        made = await self.sessions.create(request, f"fix:{fix.id}:{number}:{mine.key}", NOWHERE)
        body = e.FixAgentStarted(fix.id, number, mine.number, made["id"])
        await self._tell(fix, body, f"{number}:{mine.number}:started")

    def _write_spec(self, fix: Fix, measured: FixRound, mine: FixGroup, found: Group, report: Report) -> None:
        targets = tuple(dict.fromkeys(Target(one.tool, one.id) for one in found.failures))
        project = self.plugins.project(fix.project)
        file = self._spec_file(fix, measured.number, mine.number)
        spec = Spec(
            output=file.with_suffix(".last.json"),
            cache=self._cache(fix),
            tools=tuple(one.tool for one in report.tools if not one.problem),
            timeout=project.fix.timeout,
            before=self._report_file(fix, measured.number),
            targets=targets,
        )
        write_atomically(file, spec_json(spec))

    # -- files ---------------------------------------------------------------------------------------------------------

    def _folder(self, fix: Fix) -> Path:
        folder = self.home.path / "fixes" / fix.id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _cache(self, fix: Fix) -> Path:
        return self.home.path / "fixes" / "cache" / file_name(fix.project)

    def _report_file(self, fix: Fix, number: int) -> Path:
        return self._folder(fix) / f"round-{number}.json"

    def _spec_file(self, fix: Fix, number: int, mine: int) -> Path:
        return self._folder(fix) / f"round-{number}-cause-{mine}.json"

    def _read(self, fix: Fix, number: int) -> Report | None:
        try:
            return report_from(json.loads(self._report_file(fix, number).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _groups(report: Report, *, together: bool) -> list[Group]:
    groups = group(report.failures, {one.tool.name: one.tool.kind for one in report.tools})
    return [as_one(groups)] if together and len(groups) > 1 else groups


def _command(spec: Path) -> str:
    """Runs our own program, with nothing of the checkout on its path."""
    return shlex.join([sys.executable, "-P", "-m", "agent_orchestrator.fleet.fixes.measure", str(spec)])
