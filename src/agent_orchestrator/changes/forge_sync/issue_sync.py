"""Issues that live at a tracker: read by a poll or a webhook's hint into the facts, told how far the work on them is.

Once they are in the facts they are like any others: the backlog, rules, dependencies and `ao new` do not know where they come from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial

import structlog

from agent_orchestrator.base.rate_limit import Recent
from agent_orchestrator.changes.forge_sync.backoff import longer
from agent_orchestrator.changes.forge_sync.connections import LOCAL, Repositories, problem
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.pull_request_events import issue_news
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import acting, current
from agent_orchestrator.core.effects import Effect, patient
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import works_on
from agent_orchestrator.core.pull_request import Issue as Known
from agent_orchestrator.core.pull_request import issue_number
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.protocols.forge import Hint, Issue, IssueChange, Metered, Tracker

EVERY = 60.0
"""Seconds between two polls of a tracker."""
WITH_HOOKS = 600.0
"""The same while its webhooks arrive."""
HOOKS_LAST = 3600.0
GATHER = 0.1
"""Seconds in which hints are gathered; more while the host's grants are short."""
HINTED = 30
"""Issues of a project that nobody works on which hints have read at once in a minute; a poll reads the others."""
LONGEST_PAUSE = 900.0

log = structlog.get_logger()


def _nothing(_body: e.Body) -> bool:
    return False


def _is_wanted(change: IssueChange, body: e.Body) -> bool:
    """Is it what was changed, and not what was found changed besides?"""
    match body:
        case e.LabelAdded(label=label):
            return label in change.add_labels
        case e.LabelRemoved(label=label):
            return label in change.remove_labels
        case e.IssueChanged(title=title, body=text, state=state, assignee=assignee):
            wanted = (change.title, change.body, change.state, change.assignee)
            told = (title, text, state, assignee)
            return any(None not in pair for pair in zip(wanted, told, strict=True))
    return False


class Tracking:
    """Keeps the facts of issues at trackers true."""

    def __init__(self, flow: Flow, repositories: Repositories, outages: Outages) -> None:
        self.flow = flow
        self.repositories = repositories
        self.outages = outages
        self.problems: dict[str, str] = {}
        """What keeps a project's tracker from being read."""
        self.planned: Callable[[str, Issue, Known | None], Sequence[e.Body]] = lambda _project, _issue, _known: ()
        """What is told beside an issue that was made for a plan."""
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._wake: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)
        self._since: dict[str, float] = {}
        self._hooked: dict[str, float] = {}
        self._hinted = Recent(HINTED, 60.0, flow.clock)
        self._polled: dict[str, float] = {}
        self._soon: dict[str, asyncio.TimerHandle] = {}
        self._due: set[str] = set()
        """Projects of which something is told by a poll alone, although hints come."""
        self._telling = asyncio.Lock()
        self._running = False

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"track": Effect(patient(self.track))}

    def start(self) -> None:
        """Read the issues of every project that has them elsewhere."""
        self._running = True
        self.look()

    def look(self) -> None:
        """Projects came, went or were configured anew: what could not be read may be readable now."""
        for project in self.repositories.plugins.config.projects() if self._running else ():
            running = self._loops.get(project.id)
            if running is not None and project.id in self.problems:
                running.cancel()
                running = None
            if project.tracker.plugin != LOCAL and (running is None or running.done()):
                self._loops[project.id] = asyncio.get_running_loop().create_task(self._loop(project.id))

    async def close(self) -> None:
        """Read no more."""
        self._running = False
        for timer in self._soon.values():
            timer.cancel()
        for task in self._loops.values():
            task.cancel()
        await asyncio.gather(*self._loops.values(), return_exceptions=True)

    def unread(self, project: str | None = None) -> list[dict[str, str]]:
        """The projects whose trackers could not be read when that was last tried, and why."""
        found = []
        for one in self.repositories.plugins.config.projects():
            waits = one.tracker.plugin not in (LOCAL, "auto") and one.id in self._loops and one.id not in self._since
            why = self.problems.get(one.id) or ("it has not answered yet" if waits else "")
            if why and project in (None, one.id):
                found.append({"project": one.id, "why": why})
        return found

    def hint(self, name: str, hint: Hint, projects: Collection[str]) -> None:
        """A webhook of these projects says what is worth reading."""
        for project in self.repositories.plugins.config.projects():
            mine = project.id in projects and project.tracker.plugin in (name, "auto") and project.id in self._loops
            if mine and hint.issues and self._is_of(project, hint.repo):
                self._hooked[project.id] = self.flow.clock()
                for issue in hint.issues:
                    self._want(project, issue)

    def _want(self, project: ProjectConfig, issue: str) -> None:
        """Read an issue soon: by itself, or by a poll where so many are hinted at that they would use up what the host grants."""
        wanted, now = self._wanted[project.id], self.flow.clock()
        known = issue in wanted or self._is_busy(project.id, issue)
        if known or not self._hinted.wait(project.id):
            if not known:
                self._hinted.add(project.id)
            wanted.add(issue)
            self._wake[project.id].set()
        elif project.id not in self._soon and project.id not in self._due:
            due = self._polled.get(project.id, 0.0) + self._interval(project.id, told=False)
            timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._poll_now, project.id)
            self._soon[project.id] = timer

    def _poll_now(self, project: str) -> None:
        del self._soon[project]
        self._due.add(project)
        self._wake[project].set()

    def _is_busy(self, project: str, issue: str) -> bool:
        """Does somebody work on it?"""
        number = issue_number(issue)
        known = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
        return known is not None and works_on(known, self.flow.sessions.values()) is not None

    def _is_of(self, project: ProjectConfig, repo: str) -> bool:
        """Is it about a project's issues: its team or project at the tracker, or its repository?"""
        own = (str(getattr(one, "repo", "")) for one in self.repositories.trackers(project.id))
        place = next(filter(None, own), project.repo)
        return not repo or not place or repo.casefold() == place.casefold()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def learn(self, project: ProjectConfig, issue: str) -> None:
        """Read one issue now, for somebody who names it."""
        name = await self.repositories.tracker_name(project)
        if name != LOCAL:
            tracker = await self.repositories.reach_tracker(project.id, name)
            await self.tell(project.id, name, await tracker.get(issue), whole=True)

    async def tell(
        self, project: str, tracker: str, issue: Issue, *, whole: bool, done: Callable[[e.Body], bool] = _nothing
    ) -> None:
        """What is new about an issue. What was not done here is the tracker's word, whoever had it read."""
        async with self._telling:
            number = issue_number(issue.id)
            known = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
            now = self.flow.clock()
            events = [
                Event(body, now, tracker, f"{project}:{issue.id}:{self.flow.seq}:{place}", project)
                for place, body in enumerate(
                    (*issue_news(known, issue, tracker, whole=whole), *self.planned(project, issue, known))
                )
            ]
            if ours := [event for event in events if done(event.body)]:
                await self.flow.append(*ours)
            if theirs := [event for event in events if not done(event.body)]:
                with acting(tracker) if current() else contextlib.nullcontext():
                    await self.flow.append(*theirs)

    async def _loop(self, project: str) -> None:
        pause, name = 0.0, "tracker"
        while self.repositories.plugins.config.project(project) is not None:
            try:
                config = self.repositories.plugins.project(project)
                before, name = name, await self.repositories.tracker_name(config)
                if before != name:
                    await self.outages.settle(project, name)
                if name == LOCAL:
                    return
                await self._read(project, name, await self.repositories.reach_tracker(project, name))
                self.problems.pop(project, None)
                await self.outages.works(project, name, "issues")
                pause = 0.0
            except Exception as error:
                self._due.add(project)  # what was hinted at is not asked for by itself again
                longest = self._longer(project, pause, error)
                pause = min(longest, await self.outages.failed(project, name, "issues", error))
                if self.problems.get(project) != problem(error):
                    log.warning("a tracker cannot be read", project=project, error=problem(error))
                self.problems[project] = problem(error)
            try:
                async with asyncio.timeout(pause or self._interval(project)):
                    await self._wake[project].wait()
                await asyncio.sleep(pause or min(max(GATHER, self._grants(project)), EVERY))
                self._wake[project].clear()
            except TimeoutError:
                pass

    def _longer(self, project: str, pause: float, error: Exception) -> float:
        """The next pause after a failure; the first one is no longer than that between two polls."""
        try:
            config = self.repositories.plugins.project(project)
            first = min(EVERY, self.repositories.interval(config, config.tracker, EVERY))
        except AoError:
            first = EVERY
        return longer(pause, first, LONGEST_PAUSE, error, self.flow.clock())

    def _interval(self, project: str, *, told: bool | None = None) -> float:
        """Seconds between two polls: more while webhooks come (`told`), or while the host's grants are short."""
        if told is None:
            told = self.flow.clock() - self._hooked.get(project, 0.0) <= HOOKS_LAST
        try:
            config = self.repositories.plugins.project(project)
            wanted = WITH_HOOKS if told else self.repositories.interval(config, config.tracker, EVERY)
        except AoError:
            return WITH_HOOKS
        return max(wanted, self._grants(project))

    def _grants(self, project: str) -> float:
        """Seconds that the host's grants ask for between two readings."""
        trackers = (one for one in self.repositories.trackers(project) if isinstance(one, Metered))
        return max((one.pause() for one in trackers), default=0.0)

    async def _read(self, project: str, name: str, tracker: Tracker) -> None:
        wanted, since, now = self._wanted.pop(project, set()), self._since.get(project), self.flow.clock()
        for issue in sorted(wanted):
            with contextlib.suppress(NotFound):  # it was deleted, or moved elsewhere
                await self.tell(project, name, await tracker.get(issue), whole=True)
        overdue = project in self._due or now - self._polled.get(project, now) >= self._interval(project)
        if wanted and since is not None and not overdue:
            return
        state = "open" if since is None else "all"
        self._due.discard(project)  # what is hinted at from here on may be missing in the answer
        found = await tracker.list(state=state, since=since or 0.0)
        for told in sorted(found, key=lambda one: one.updated_at):
            await self._changed(project, name, tracker, told)
        newest = max((one.updated_at for one in found), default=since or 0.0)
        self._since[project], self._polled[project] = newest, now

    async def _changed(self, project: str, name: str, tracker: Tracker, told: Issue) -> None:
        """What somebody works on is read with its comments."""
        number = issue_number(told.id)
        known = self.flow.home.issues.get(issue_key(project, number)) if number is not None else None
        moved = known is None or known.updated_at < told.updated_at
        if moved and self._is_busy(project, told.id):
            await self.tell(project, name, await tracker.get(told.id), whole=True)
        else:
            await self.tell(project, name, told, whole=False)

    # -- what people change --------------------------------------------------------------------------------------------

    async def create(self, project: str, title: str, body: str, labels: Sequence[str]) -> int | None:
        """Make an issue there; none: the project's issues are here."""
        name = await self.repositories.tracker_name(self.repositories.plugins.project(project))
        if name == LOCAL:
            return None
        made = await (await self.repositories.reach_tracker(project, name)).create(title, body, labels)
        await self.tell(project, name, made, whole=True, done=lambda _: True)
        return issue_number(made.id)

    async def change(self, project: str, issue: str, change: IssueChange) -> bool:
        """Change one there; false: it is here."""
        name = await self.repositories.tracker_name(self.repositories.plugins.project(project))
        if name == LOCAL:
            return False
        tracker = await self.repositories.reach_tracker(project, name)
        await tracker.change(issue, change)
        await self.tell(project, name, await tracker.get(issue), whole=True, done=partial(_is_wanted, change))
        return True

    async def comment(self, project: str, issue: str, text: str, key: str) -> None:
        """Say something there."""
        name = await self.repositories.tracker_name(self.repositories.plugins.project(project))
        if name != LOCAL:
            await (await self.repositories.reach_tracker(project, name)).comment(issue, text, key)

    # -- telling -------------------------------------------------------------------------------------------------------

    async def track(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Tell the tracker how far the work on a session's issue is."""
        facts = self.flow.sessions[intent.session]
        state, issue, name = str(intent.args["state"]), facts.spec.issue or "", facts.spec.tracker
        tracker = await self.repositories.reach_tracker(facts.project, name)
        if state == "in_review" and facts.pr and facts.pr.url:
            await tracker.comment(issue, f"Pull request: {facts.pr.url}", f"{facts.id}:{state}")
        await tracker.change(issue, IssueChange(state=state, assignee="@me" if state == "in_progress" else None))
        now = self.flow.clock()
        told = Event(e.IssueTracked(state), now, name, f"{intent.key}:done", facts.project, facts.id)
        return [told]
