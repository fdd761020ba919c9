"""Fixing runs (`ao fix`): create, list and stop them, and carry out their steps. Look here for anything that a fixing run does.

The state of a run follows from events, so a daemon that starts after a crash continues each run where it was. Each step is recorded under
its key, sessions are created under the key of their cause, and measurements are cached by content: nothing is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.progress import ProgressTexts
from agent_orchestrator.changes.checks.assessment import set_up_remedy
from agent_orchestrator.changes.checks.required_checks import fix_folder, verification_command, verification_file
from agent_orchestrator.changes.checks.results import write_json
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec, safe_file_name
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.projects.projects import NO_CONTEXT, CommandContext
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fixes import LATER_OUTCOME, Fix, FixGroup, FixRequest, FixRound
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.signals import FixProgressed
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.fleet.fixes import prompt
from agent_orchestrator.fleet.fixes.causes import FailureGroup, group_failures, merge_groups
from agent_orchestrator.fleet.fixes.comparison import TargetFailure
from agent_orchestrator.fleet.fixes.model import Report, report_from_json, tool_from_json
from agent_orchestrator.fleet.fixes.next_steps import (
    SENDER,
    End,
    MakeReady,
    Measure,
    MergeFix,
    Remind,
    Settle,
    StartAgent,
    Step,
    Verify,
    next_steps,
)
from agent_orchestrator.fleet.fixes.spec import MeasurementSpec, spec_to_json
from agent_orchestrator.fleet.fixes.views import fix_json
from agent_orchestrator.sessions.agents.sign_in import require_sign_in
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.isolation.docker_container import DOCKER_RUNTIME as CONTAINED
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS, agent_environment
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.sessions.sessions import Sessions

MAX_CAUSES_PER_ROUND = 16
"""Causes that get an agent in one round; the others wait for the next round."""
MAX_RECORDED_CAUSES = 200
"""Causes of one measurement that are recorded."""
RECHECK_SECONDS = 1.0
"""Seconds after which a run is checked again without any event, because a decision may depend on time alone."""
RETRY_SECONDS = 30.0
"""Seconds before a step that failed is retried."""
REMINDER = """\
You ended your turn without a commit. If you have changes, commit them. If you found that nothing can be changed, say why, in one line: \
the failures of your task are still there."""

log = structlog.get_logger()


class Fixes(Part):
    """The fixing runs of a home."""

    def __init__(
        self, core: Core, sessions: Sessions, reviews: Reviews, inbox: Inbox, checks: Checks, views: SessionViews
    ) -> None:
        super().__init__(core)
        self.sessions = sessions
        self.reviews = reviews
        self.inbox = inbox
        self.checks = checks
        self.views = views
        self._start_lock = asyncio.Lock()
        self._run_tasks: dict[str, asyncio.Task[None]] = {}
        self._wake_events: dict[str, asyncio.Event] = {}
        self.progress = ProgressTexts(lambda: self.emit(FixProgressed()))
        """Run id → what is being done for it."""

    def start(self) -> None:
        """Continue every run that has not ended."""
        self.on(self._wake_runs)
        for fix in self.flow.home.fixes.values():
            self._start_run_task(fix)

    # -- requests of people --------------------------------------------------------------------------------------------

    async def create(
        self, request: FixRequest, project: str | None, key: str | None, context: CommandContext
    ) -> dict[str, Any]:
        """Start a run and return its view; the same key returns the run that it started before.

        Raises `Conflict` if another run of the project is not finished, unless this one is a dry run.
        """
        event_key = f"fix:{key or uuid.uuid4().hex}"
        if existing := await self._view_by_key(event_key):
            return existing
        project_id = await self.core.projects.resolve(context, project, adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        complete_request = await self._complete_request(self.core.settings.project(project_id), request)
        async with self._start_lock:
            if existing := await self._view_by_key(event_key):
                return existing
            unfinished = [fix for fix in self.flow.home.fixes.values() if fix.project == project_id and not fix.ended]
            running = next((fix for fix in unfinished if not fix.request.dry_run), None)
            if running and not complete_request.dry_run:
                raise Conflict(
                    f"{running.id} fixes {project_id} already",
                    f"follow it: ao fix {running.id}, or stop it: ao fix --stop {running.id}",
                )
            number = max((int(fix_id[1:]) for fix_id in self.flow.home.fixes), default=0) + 1
            body = e.FixStarted(f"F{number}", complete_request.to_json())
            await self.flow.append(Event(body, self.clock(), "person", event_key, project_id))
        self._start_run_task(self.flow.home.fixes[body.fix])
        return self.view(body.fix)

    async def _view_by_key(self, key: str) -> dict[str, Any] | None:
        """Return the view of the run that was started under this event key, or None."""
        event = await self.flow.store.event_by_key(key)
        return self.view(event.body.fix) if event and isinstance(event.body, e.FixStarted) else None

    async def _complete_request(self, project: ProjectConfig, request: FixRequest) -> FixRequest:
        """Return the request with defaults filled in; raise an error if it cannot be carried out."""
        settings = self.core.config.agent(project.id, request.agent)
        assert settings is not None
        self.core.plugins.agent(project, settings)
        await self.core.projects.check_trust(project, settings.profile, ci=True)
        if not request.dry_run and settings.runtime != CONTAINED:
            await self.core.sites.local.login_ready.wait()
            secrets = AGENT_SECRETS.get(settings.tool, ())
            env = agent_environment(self.core.sites.local.login, settings.env, {}, secrets)
            await require_sign_in(self.host, settings.tool, env)
        forge = await self.sessions.forges.choose(project)
        if forge.hosted and not request.dry_run:
            raise UsageError(
                f"fixes are verified and landed by the local merge queue, and the changes of {project.id} land at {forge.name}",
                "see what fails: ao fix --dry-run; then give it to agents: ao new",
            )
        base = request.base or await self._default_base(project)
        if await Git(self.host, project.path).resolve(f"refs/heads/{base}") is None:
            raise UsageError(
                f"{project.path} has no branch {base!r}", "name the branch that is to become green: --base"
            )
        commands = [text for command in request.commands if (text := command.strip())]
        return replace(
            request,
            base=base,
            commands=tuple(commands or project.fix.commands),
            is_one_agent_for_all=project.red_base == "forbid",
        )

    async def _default_base(self, project: ProjectConfig) -> str:
        """Return the branch to fix by default: the configured default branch, else Git's, else the current one, else `main`."""
        git = Git(self.host, project.path)
        return project.default_branch or await git.default_branch() or await git.current_branch() or "main"

    def find(self, name: str) -> Fix:
        """Return a run by its id; raise `NotFound` if there is none."""
        fix = self.flow.home.fixes.get(name.upper())
        if fix is None:
            raise NotFound(f"there is no fixing run {name}", "see them all: ao fix --list -A")
        return fix

    def view(self, name: str) -> dict[str, Any]:
        """Return one run as JSON."""
        fix = self.find(name)
        return fix_json(fix, self.flow.sessions, self.progress.get(fix.id, ""), self.views.status)

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """Return all runs of a project, or of all projects, newest first."""
        fixes = [fix for fix in self.flow.home.fixes.values() if project in (None, fix.project)]
        return [self.view(fix.id) for fix in reversed(fixes)]

    def report(self, name: str, number: int | None = None) -> dict[str, Any]:
        """Return every failure of one measurement by cause; `number` is the round, by default the last one."""
        fix = self.find(name)
        if not fix.rounds:
            return {"id": fix.id, "round": 0, "groups": []}
        fix_round = (
            fix.rounds[-1] if number is None else next((item for item in fix.rounds if item.number == number), None)
        )
        if fix_round is None:
            raise NotFound(f"{fix.id} has no round {number}", f"it has {len(fix.rounds)}")
        report = self._read_report(fix, fix_round.number)
        groups = _cause_groups(report, together=fix.request.is_one_agent_for_all) if report else []
        keys = ("tool", "id", "file", "line", "message", "detail")
        group_rows = [
            {
                "key": item.key,
                "title": item.title,
                "failures": [{key: getattr(failure, key) for key in keys} for failure in item.failures],
            }
            for item in groups
        ]
        return {"id": fix.id, "round": fix_round.number, "groups": group_rows}

    async def stop(self, name: str, key: str | None = None) -> dict[str, Any]:
        """End a run and stop the sessions of its unsettled causes; their work is saved."""
        fix = self.find(name)
        if not fix.ended:
            await self._record(fix, e.FixEnded(fix.id, "stopped", "a person stopped it"), "ended", "person")
        if task := self._run_tasks.get(fix.id):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        settled_sessions = {group.session for item in fix.rounds for group in item.groups if group.settled}
        unsettled = [
            item
            for item in self.flow.sessions.values()
            if item.spec.group == fix.id and item.id not in settled_sessions
        ]
        for facts in unsettled:
            if not facts.stopped and not (facts.pr and facts.pr.state == "merged"):
                with contextlib.suppress(AoError):
                    await self.sessions.stop(facts.id, key=key)
        return self.view(name)

    # -- carrying out steps --------------------------------------------------------------------------------------------

    def _wake_runs(self, changes: Sequence[FactsChange]) -> None:
        """Wake the runs whose sessions changed."""
        for change in changes:
            name = change.after.spec.group if change.after else ""
            if name in self._wake_events:
                self._wake_events[name].set()

    def _start_run_task(self, fix: Fix) -> None:
        """Start the task that carries out a run, unless the run has ended or the task is there already."""
        if not fix.ended and fix.id not in self._run_tasks:
            self._wake_events[fix.id] = asyncio.Event()
            task = self.spawn(self._run(fix.id), name=f"fix {fix.id}")
            self._run_tasks[fix.id] = task
            task.add_done_callback(lambda _: self._forget_task(fix.id))

    def _forget_task(self, fix_id: str) -> None:
        """Remove what is kept for the task of a run that has ended."""
        self._run_tasks.pop(fix_id, None)
        self._wake_events.pop(fix_id, None)
        self.progress.pop(fix_id, None)

    async def _run(self, fix_id: str) -> None:
        """Carry out the steps of a run until it has ended, each time after a session of it changed or a second passed."""
        changed = self._wake_events[fix_id]
        while not (fix := self.flow.home.fixes[fix_id]).ended:
            changed.clear()
            steps = next_steps(fix, self.flow.sessions, self.clock())
            for step in steps:
                try:
                    await self._execute_step(fix, step)
                except AoError as error:
                    await self._handle_error(fix, step, error)
                except Exception:
                    log.exception("a fixing run met a defect", fix=fix_id, step=str(step))
                    await asyncio.sleep(RETRY_SECONDS)
            if not steps or all(isinstance(step, MergeFix | Verify | MakeReady | Remind) for step in steps):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), RECHECK_SECONDS)

    async def _handle_error(self, fix: Fix, step: Step, error: AoError) -> None:
        """Handle a step's error: retry a temporary one, end a run that cannot be measured, settle a cause that gets no agent."""
        log.warning("a step of a fixing run failed", fix=fix.id, step=type(step).__name__, error=str(error))
        if error.retryable:
            self.progress[fix.id] = f"tries again in {RETRY_SECONDS:.0f} s: {error.text}"
            await asyncio.sleep(RETRY_SECONDS)
        elif isinstance(step, Measure):
            await self._record(fix, e.FixEnded(fix.id, "failed", str(error)), "ended")
        elif isinstance(step, StartAgent):
            body = e.FixGroupSettled(fix.id, step.round, step.group.number, "failed", None, str(error))
            await self._record(fix, body, f"{step.round}:{step.group.number}:settled")
        else:
            await asyncio.sleep(RECHECK_SECONDS)  # the session has changed meanwhile: the next steps are decided again

    async def _execute_step(self, fix: Fix, step: Step) -> None:
        """Carry out one step of a run."""
        match step:
            case Measure():
                await self._measure(fix, step.round)
            case StartAgent():
                await self._start_agent(fix, step.round, step.group)
            case MergeFix():
                await self.reviews.request_merge(step.session, None, key=step.key)
            case Verify():
                await self.reviews.request_checks(step.session, key=step.key)
            case MakeReady():
                await self.reviews.mark_ready(step.session, key=step.key)
            case Remind():
                await self.inbox.send(step.session, REMINDER, key=f"fix:{fix.id}:{step.session}", sender=SENDER)
            case Settle():
                body = e.FixGroupSettled(fix.id, step.round, step.group.number, step.outcome, step.commit, step.reason)
                await self._record(fix, body, f"{step.round}:{step.group.number}:settled")
                if step.outcome == "failed" and step.group.session:
                    await self._stop_session(step.group.session)
            case End():
                await self._record(fix, e.FixEnded(fix.id, step.outcome, step.reason), "ended")

    async def _record(self, fix: Fix, body: e.Body, key: str, source: str = "daemon") -> None:
        """Append an event of a run, under a key that allows it once."""
        await self.flow.append(Event(body, self.clock(), source, f"fix:{fix.id}:{key}", fix.project))

    async def _stop_session(self, session_id: str) -> None:
        """Stop a session whose fix failed, and save its work: the next round may give the cause to another session."""
        facts = self.flow.sessions[session_id]
        if not facts.stopped:
            with contextlib.suppress(AoError):
                await self.sessions.stop(session_id)

    # -- measuring -----------------------------------------------------------------------------------------------------

    async def _measure(self, fix: Fix, round_number: int) -> None:
        """Measure the base branch as a check, and record the failures by cause."""
        project = self.core.settings.project(fix.project)
        await self.core.projects.check_trust(project, None, ci=True)
        await self.core.sites.local.login_ready.wait()
        commit = await Git(self.host, project.path).resolve(f"refs/heads/{fix.request.base}")
        if commit is None:
            raise NotFound(f"{project.path} has no branch {fix.request.base} any more", "begin anew: ao fix")
        spec = MeasurementSpec(
            output=self._report_file(fix, round_number),
            cache=self._cache(fix),
            tools=tuple(tool_from_json(tool) for tool in fix.tools) or None,
            commands=fix.request.commands,
            ci=tuple(check.command for check in project.ci.values()),
            timeout=project.fix.timeout,
        )
        spec_file = self._folder(fix) / f"measure-{round_number}.json"
        write_json(spec_file, spec_to_json(spec))
        await self._run_measurement(fix, project, commit, spec_file, again=False)
        report = self._read_report(fix, round_number)
        if report is None:  # it was measured before, and its report was deleted
            await self._run_measurement(fix, project, commit, spec_file, again=True)
            report = self._read_report(fix, round_number)
        if report is None:
            raise AoError("what was measured could not be written down", "see the daemon's log")
        remedy = await asyncio.to_thread(set_up_remedy, project.path, project.post_create)
        await self._record(
            fix, self._measured_event(fix, round_number, commit, report, remedy), f"{round_number}:measured"
        )

    async def _run_measurement(
        self, fix: Fix, project: ProjectConfig, commit: str, spec_file: Path, *, again: bool
    ) -> None:
        """Run the measurement as a check on a commit; raise `AoError` if it does not succeed. `again`: ignore a cached result."""
        env = agent_environment(self.core.sites.local.login, project.env, {})
        check = CheckSpec(
            project=fix.project,
            repo=project.path,
            commit=commit,
            name=f"fix-{fix.id}",
            command=verification_command(spec_file),
            timeout=project.fix.timeout * 10,
            env={key: value for key, value in env.items() if not key.startswith(("AO_", "GIT_"))},
            copy=project.copy,
            symlinks=project.symlinks,
            post_create=project.post_create,
            base=fix.request.base,
            parallel=project.fix.parallel,
        )

        def progress(line: str) -> None:
            """Show a line of the check's output as the run's progress."""
            if text := " ".join(line.split()):
                self.progress[fix.id] = f"running checks on {fix.request.base}: {text[:200]}"

        self.progress[fix.id] = f"running checks on {fix.request.base} at {commit[:12]}"
        result = await self.checks.run(check, progress, again=again)
        self.progress.pop(fix.id, None)
        if result.state != "success":
            summary_lines = result.summary.strip().split("\n")
            raise AoError(
                f"{fix.request.base} could not be measured: {' '.join(summary_lines)[:500]}",
                f"the whole output: {result.log}",
            )

    def _measured_event(self, fix: Fix, round_number: int, commit: str, report: Report, remedy: str) -> e.FixMeasured:
        """Return the event that records a measurement: its causes, those that failed in earlier rounds last."""
        failed_keys = {item.key for fix_round in fix.rounds for item in fix_round.groups if item.outcome == "failed"}
        groups = sorted(
            _cause_groups(report, together=fix.request.is_one_agent_for_all), key=lambda cause: cause.key in failed_keys
        )  # causes that failed before come last
        agent_limit = MAX_CAUSES_PER_ROUND
        group_data = [
            {
                "key": item.key,
                "title": item.title,
                "count": len(item.failures),
                "tools": item.tools,
                "files": list(item.files[:20]),
                **({"outcome": LATER_OUTCOME} if index >= agent_limit and not fix.request.dry_run else {}),
            }
            for index, item in enumerate(groups[:MAX_RECORDED_CAUSES])
        ]
        tools = tuple(asdict(item.tool) for item in report.tools)
        lacks = f"environment not set up: {report.lacks}. {remedy}" if report.lacks else ""
        return e.FixMeasured(
            fix.id, round_number, commit, report.counts, report.problems, tuple(group_data), tools, lacks
        )

    # -- agents --------------------------------------------------------------------------------------------------------

    async def _start_agent(self, fix: Fix, round_number: int, fix_group: FixGroup) -> None:
        """Create the session of a cause. The key names the cause and its round, so there is never a second session."""
        report = self._read_report(fix, round_number)
        groups = _cause_groups(report, together=fix.request.is_one_agent_for_all) if report else []
        cause = next((item for item in groups if item.key == fix_group.key), None)
        if report is None or cause is None:
            raise NotFound(f"what was measured for {fix.id} is not there any more", "begin anew: ao fix")
        fix_round = next(item for item in fix.rounds if item.number == round_number)
        self._write_spec(fix, fix_round, fix_group, cause, report)
        tools = [item.tool for item in report.tools if not item.problem]
        request = NewSession(
            project=fix.project,
            title=prompt.session_title(cause),
            prompt=prompt.task_text(cause, tools, fix_round.commit, fix.request.base),
            agent=fix.request.agent,
            model=fix.request.model,
            base=fix.request.base,
            group=fix.id,
            group_limit=fix.request.max_agents,
            files=fix_group.files,
        )
        session = await self.sessions.create(request, f"fix:{fix.id}:{round_number}:{fix_group.key}", NO_CONTEXT)
        body = e.FixAgentStarted(fix.id, round_number, fix_group.number, session["id"])
        await self._record(fix, body, f"{round_number}:{fix_group.number}:started")

    def _write_spec(
        self, fix: Fix, fix_round: FixRound, fix_group: FixGroup, cause: FailureGroup, report: Report
    ) -> None:
        """Write the file that specifies for the verification of a cause which tools to run and which failures must be gone."""
        targets = tuple(dict.fromkeys(TargetFailure(item.tool, item.id) for item in cause.failures))
        project = self.core.settings.project(fix.project)
        file = verification_file(self.home, fix, fix_round.number, fix_group.number)
        spec = MeasurementSpec(
            output=file.with_suffix(".last.json"),
            cache=self._cache(fix),
            tools=tuple(item.tool for item in report.tools if not item.problem),
            timeout=project.fix.timeout,
            before=self._report_file(fix, fix_round.number),
            targets=targets,
        )
        write_json(file, spec_to_json(spec))

    # -- files ---------------------------------------------------------------------------------------------------------

    def _folder(self, fix: Fix) -> Path:
        """Return the folder of a run's files; create it if necessary."""
        folder = fix_folder(self.home, fix)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _cache(self, fix: Fix) -> Path:
        """Return the folder where tools keep their caches for a project."""
        return self.home.path / "fixes" / "cache" / safe_file_name(fix.project)

    def _report_file(self, fix: Fix, round_number: int) -> Path:
        """Return the path of a round's measurement."""
        return self._folder(fix) / f"round-{round_number}.json"

    def _read_report(self, fix: Fix, round_number: int) -> Report | None:
        """Return the report of a round, or None if it cannot be read."""
        try:
            return report_from_json(json.loads(self._report_file(fix, round_number).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _cause_groups(report: Report, *, together: bool) -> list[FailureGroup]:
    """Return the failures of a report by cause, or as one group if they are to be fixed together."""
    groups = group_failures(report.failures, {result.tool.name: result.tool.kind for result in report.tools})
    return [merge_groups(groups)] if together and len(groups) > 1 else groups
