"""Keep issues of trackers in the facts: read them by polls or webhook hints, and report to the tracker how far the work on them is.

Once they are in the facts they are like any other issues: the backlog, rules, dependencies and `ao new` do not depend
on where they come from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial

import structlog

from agent_orchestrator.base.attempt_limit import RateLimiter
from agent_orchestrator.changes.forge_sync.backoff import next_pause
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.issue_events import issue_news
from agent_orchestrator.changes.forge_sync.outages import Outages, error_line
from agent_orchestrator.changes.forge_sync.poll_interval import (
    ISSUE_POLL_INTERVAL,
    WEBHOOK_POLL_INTERVAL,
    poll_interval,
    sends_webhooks,
)
from agent_orchestrator.changes.issues.plan_marks import events_for_marked_issue
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting_as, current_actor
from agent_orchestrator.core.dependencies import session_working_on
from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import issue_number
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.protocols import Timer
from agent_orchestrator.protocols.forge import Hint, IssueChange, Tracker, TrackerIssue
from agent_orchestrator.sessions.part import Core, Part

HINT_BATCH_SECONDS = 0.1
"""Seconds in which hints are collected before reading; more while the host's rate limit is short."""
MAX_HINTED_READS_PER_MINUTE = 30
"""Maximum number per minute of a project's issues without a session that hints cause to be read at once; a poll reads the others."""
MAX_FAILURE_PAUSE = 900.0
"""Longest pause in seconds after failures."""

log = structlog.get_logger()


def _is_never_own(_body: e.Body) -> bool:
    """Count no event as caused by a change from here."""
    return False


def _is_requested(change: IssueChange, body: e.Body) -> bool:
    """Return whether an event is what a change requested, and not something that was changed at the tracker meanwhile."""
    match body:
        case e.LabelAdded(label=label):
            return label in change.add_labels
        case e.LabelRemoved(label=label):
            return label in change.remove_labels
        case e.IssueChanged(title=title, body=text, state=state, assignee=assignee):
            requested = (change.title, change.body, change.state, change.assignee)
            reported = (title, text, state, assignee)
            return any(None not in pair for pair in zip(requested, reported, strict=True))
    return False


class IssueSync(Part):
    """Keeps the facts about issues at trackers up to date."""

    def __init__(self, core: Core, repositories: ForgeConnections, outages: Outages) -> None:
        super().__init__(core)
        self.connections = repositories
        self.outages = outages
        self.problems: dict[str, str] = {}
        """Why a project's tracker cannot be read."""
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._wake: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._hinted_issues: defaultdict[str, set[str]] = defaultdict(set)
        self._newest_update: dict[str, float] = {}
        self._last_webhook_at: dict[str, float] = {}
        self._hint_limit = RateLimiter(MAX_HINTED_READS_PER_MINUTE, 60.0, self.clock)
        self._polled_at: dict[str, float] = {}
        self._poll_timers: dict[str, Timer] = {}
        self._overdue: set[str] = set()
        """Projects that need a poll although hints come."""
        self._record_lock = asyncio.Lock()
        self._is_running = False
        self.on_signal(ConfigurationReloaded, self._restart_failed)

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"track": Effect(retry_until_done(self.report_progress))}

    def start(self) -> None:
        """Start reading the issues of every project that has them at a tracker."""
        self._is_running = True
        self._restart_failed()

    def _restart_failed(self, _signal: ConfigurationReloaded | None = None) -> None:
        """Start or restart reading after projects were added, removed or configured: a tracker that failed may be readable now."""
        for project in self.core.config.projects() if self._is_running else ():
            task = self._loops.get(project.id)
            if task is not None and project.id in self.problems:
                task.cancel()
                task = None
            if task is None or task.done():
                self._loops[project.id] = self.spawn(self._run_loop(project.id))

    async def close(self) -> None:
        """Stop reading."""
        self._is_running = False
        for timer in self._poll_timers.values():
            timer.cancel()
        await super().close()

    def unreadable_trackers(self, project: str | None = None) -> list[dict[str, str]]:
        """Return the projects whose trackers could not be read at the last attempt, and why."""
        rows = []
        for config in self.core.config.projects():
            is_unanswered = (
                config.tracker.plugin != "auto"
                and config.id in self._loops
                and config.id not in self._newest_update
                and self._has_service(config)
            )
            reason = self.problems.get(config.id) or ("it has not answered yet" if is_unanswered else "")
            if reason and project in (None, config.id):
                rows.append({"project": config.id, "why": reason})
        return rows

    def _has_service(self, project: ProjectConfig) -> bool:
        """Return whether the tracker that a project configures is a service, or cannot be loaded."""
        try:
            return self.connections.is_hosted("tracker", project, project.tracker.plugin)
        except AoError:
            return True

    def handle_hint(self, name: str, hint: Hint, projects: Collection[str]) -> None:
        """Read the issues that a webhook for these projects names."""
        for project in self.core.config.projects():
            is_affected = (
                project.id in projects and project.tracker.plugin in (name, "auto") and project.id in self._loops
            )
            if is_affected and hint.issues and self._is_about_project(project, hint.repo):
                self._last_webhook_at[project.id] = self.clock()
                for issue in hint.issues:
                    self._request_read(project, issue)

    def _request_read(self, project: ProjectConfig, issue: str) -> None:
        """Read an issue soon.

        It is read singly, or by the next poll if hints name so many issues that they would use up the rate limit.
        """
        issues, now = self._hinted_issues[project.id], self.clock()
        is_expected = issue in issues or self._has_session(project.id, issue)
        if is_expected or not self._hint_limit.seconds_until_allowed(project.id):
            if not is_expected:
                self._hint_limit.add(project.id)
            issues.add(issue)
            self._wake[project.id].set()
        elif project.id not in self._poll_timers and project.id not in self._overdue:
            poll_at = self._polled_at.get(project.id, 0.0) + self._interval(project.id, has_hooks=False)
            timer = self.clock.call_later(max(0.0, poll_at - now), partial(self._poll_now, project.id))
            self._poll_timers[project.id] = timer

    def _poll_now(self, project: str) -> None:
        """Poll a project's tracker now."""
        del self._poll_timers[project]
        self._overdue.add(project)
        self._wake[project].set()

    def _has_session(self, project: str, issue: str) -> bool:
        """Return whether a session works on the issue."""
        number = issue_number(issue)
        known_issue = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
        return known_issue is not None and session_working_on(known_issue, self.flow.sessions.values()) is not None

    def _is_about_project(self, project: ProjectConfig, repo: str) -> bool:
        """Return whether a hint about this repository, team or tracker project is about the project's issues."""
        tracker_repos = (str(getattr(tracker, "repo", "")) for tracker in self.connections.trackers(project.id))
        own_repo = next(filter(None, tracker_repos), project.repo)
        return not repo or not own_repo or repo.casefold() == own_repo.casefold()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_issue(self, project: ProjectConfig, issue: str) -> None:
        """Read one issue now, because a request names it."""
        name = await self.connections.tracker_name(project)
        tracker = await self.connections.trusted_tracker(project.id, name)
        if tracker.hosted:
            await self.record_issue(project.id, name, await tracker.get(issue), with_comments=True)

    async def record_issue(
        self,
        project: str,
        tracker: str,
        issue: TrackerIssue,
        *,
        with_comments: bool,
        done: Callable[[e.Body], bool] = _is_never_own,
    ) -> None:
        """Record what is new about an issue.

        Events that `done` does not accept were caused at the tracker, so they are recorded as the tracker's, no matter
        who caused the read.
        """
        async with self._record_lock:
            number = issue_number(issue.id)
            known_issue = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
            now = self.clock()
            events = [
                Event(body, now, tracker, f"{project}:{issue.id}:{self.flow.seq}:{position}", project)
                for position, body in enumerate(
                    (
                        *issue_news(known_issue, issue, tracker, with_comments=with_comments),
                        *events_for_marked_issue(self.flow.home, project, issue, known_issue),
                    )
                )
            ]
            if own_events := [event for event in events if done(event.body)]:
                await self.flow.append(*own_events)
            if tracker_events := [event for event in events if not done(event.body)]:
                with acting_as(tracker) if current_actor() else contextlib.nullcontext():
                    await self.flow.append(*tracker_events)

    async def _run_loop(self, project: str) -> None:
        """Read a project's tracker until the project is removed or its issues are not at a service."""
        pause, name = 0.0, "tracker"
        while self.core.config.project(project) is not None:
            try:
                config = self.core.settings.project(project)
                previous_name, name = name, await self.connections.tracker_name(config)
                if previous_name != name:
                    await self.outages.forget_former_trackers(project, name)
                if not self.connections.is_hosted("tracker", config, name):
                    return
                tracker = await self.connections.trusted_tracker(project, name)
                await self._read_due(project, name, tracker)
                self.problems.pop(project, None)
                await self.outages.record_success(project, name, "issues")
                pause = 0.0
            except Exception as error:
                self._overdue.add(project)  # hinted issues are not read singly again
                longest_pause = self._next_pause(project, pause, error)
                pause = min(longest_pause, await self.outages.record_failure(project, name, "issues", error))
                if self.problems.get(project) != error_line(error):
                    log.warning("a tracker cannot be read", project=project, error=error_line(error))
                self.problems[project] = error_line(error)
            try:
                async with asyncio.timeout(pause or self._interval(project)):
                    await self._wake[project].wait()
                await asyncio.sleep(
                    pause or min(max(HINT_BATCH_SECONDS, self._rate_limit_pause(project)), ISSUE_POLL_INTERVAL)
                )
                self._wake[project].clear()
            except TimeoutError:
                pass

    def _next_pause(self, project: str, pause: float, error: Exception) -> float:
        """Return the pause after a failure; the first one is no longer than that between two polls."""
        try:
            config = self.core.settings.project(project)
            first = min(
                ISSUE_POLL_INTERVAL, self.connections.poll_interval(config, config.tracker, ISSUE_POLL_INTERVAL)
            )
        except AoError:
            first = ISSUE_POLL_INTERVAL
        return next_pause(pause, first, MAX_FAILURE_PAUSE, error, self.clock())

    def _interval(self, project: str, *, has_hooks: bool | None = None) -> float:
        """Return the seconds between two polls: more while webhooks come (`has_hooks`), or while the host's rate limit is short."""
        if has_hooks is None:
            has_hooks = sends_webhooks(self._last_webhook_at.get(project, 0.0), self.clock())
        try:
            config = self.core.settings.project(project)
            interval = poll_interval(self.connections, config, config.tracker, ISSUE_POLL_INTERVAL, has_hooks=has_hooks)
        except AoError:
            return WEBHOOK_POLL_INTERVAL
        return max(interval, self._rate_limit_pause(project))

    def _rate_limit_pause(self, project: str) -> float:
        """Return the seconds that the host's rate limit requires between two reads."""
        return max((tracker.pause() for tracker in self.connections.trackers(project)), default=0.0)

    async def _read_due(self, project: str, name: str, tracker: Tracker) -> None:
        """Read the issues that hints named, and poll for changed issues if a poll is due."""
        hinted_issues, since, now = (
            self._hinted_issues.pop(project, set()),
            self._newest_update.get(project),
            self.clock(),
        )
        for issue in sorted(hinted_issues):
            with contextlib.suppress(NotFound):  # it was deleted, or moved elsewhere
                await self.record_issue(project, name, await tracker.get(issue), with_comments=True)
        overdue = project in self._overdue or now - self._polled_at.get(project, now) >= self._interval(project)
        if hinted_issues and since is not None and not overdue:
            return
        state = "open" if since is None else "all"
        self._overdue.discard(project)  # a hint from here on may not be covered by this answer
        issues = await tracker.list(state=state, since=since or 0.0)
        for changed_issue in sorted(issues, key=lambda listed_issue: listed_issue.updated_at):
            await self._record_changed(project, name, tracker, changed_issue)
        newest = max((listed_issue.updated_at for listed_issue in issues), default=since or 0.0)
        self._newest_update[project], self._polled_at[project] = newest, now

    async def _record_changed(self, project: str, name: str, tracker: Tracker, issue: TrackerIssue) -> None:
        """Record a changed issue; one that a session works on is read with its comments."""
        number = issue_number(issue.id)
        known_issue = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
        is_newer = known_issue is None or known_issue.updated_at < issue.updated_at
        if is_newer and self._has_session(project, issue.id):
            await self.record_issue(project, name, await tracker.get(issue.id), with_comments=True)
        else:
            await self.record_issue(project, name, issue, with_comments=False)

    # -- changes by people ---------------------------------------------------------------------------------------------

    async def create(self, project: str, title: str, body: str, labels: Sequence[str]) -> int | None:
        """Create an issue at the tracker and return its number, or None if the tracker is no service."""
        name = await self.connections.tracker_name(self.core.settings.project(project))
        tracker = await self.connections.trusted_tracker(project, name)
        if not tracker.hosted:
            return None
        issue = await tracker.create(title, body, labels)
        await self.record_issue(project, name, issue, with_comments=True, done=lambda _: True)
        return issue_number(issue.id)

    async def change(self, project: str, issue: str, change: IssueChange) -> bool:
        """Change an issue at the tracker. Return False if the tracker is no service."""
        name = await self.connections.tracker_name(self.core.settings.project(project))
        tracker = await self.connections.trusted_tracker(project, name)
        if not tracker.hosted:
            return False
        await tracker.change(issue, change)
        await self.record_issue(
            project, name, await tracker.get(issue), with_comments=True, done=partial(_is_requested, change)
        )
        return True

    async def comment(self, project: str, issue: str, text: str, key: str) -> None:
        """Add a comment to an issue at the tracker, if that is a service."""
        name = await self.connections.tracker_name(self.core.settings.project(project))
        tracker = await self.connections.trusted_tracker(project, name)
        if tracker.hosted:
            await tracker.comment(issue, text, key)

    # -- reporting progress --------------------------------------------------------------------------------------------

    async def report_progress(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Report to the tracker how far the work on a session's issue is."""
        facts = self.flow.sessions[intent.session]
        state, issue, name = str(intent.args["state"]), facts.spec.issue or "", facts.spec.tracker
        tracker = await self.connections.trusted_tracker(facts.project, name)
        if state == "in_review" and facts.pr and facts.pr.url:
            await tracker.comment(issue, f"Pull request: {facts.pr.url}", f"{facts.id}:{state}")
        await tracker.change(issue, IssueChange(state=state, assignee="@me" if state == "in_progress" else None))
        now = self.clock()
        tracked = Event(e.IssueTracked(state), now, name, f"{intent.key}:done", facts.project, facts.id)
        return [tracked]
