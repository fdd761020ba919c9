"""The operations on sessions that people and clients ask for: create, find, wait for, stop, restore.

Look here when a request about a session is refused, or a name resolves to the wrong session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from agent_orchestrator.base.home import Home
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.config.projects.projects import Context, Projects
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import CLUSTER, SessionFacts
from agent_orchestrator.core.issue_work import is_past, made_by
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import names as naming
from agent_orchestrator.sessions.creation import Creation, standing_rules
from agent_orchestrator.sessions.isolation import sandbox
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.rescue import rescue_ref, settle
from agent_orchestrator.sessions.session_view import Views

Claim = tuple[Mapping[str, Any], tuple[e.Body, ...]]
"""A request for a session, extended by a claimed pull request, and the events that describe that pull request."""

OUTPUT_LINES = 500
"""Lines of a session's set-up output that are kept."""
STOP_PATIENCE = 120.0
"""Seconds to wait until a session has stopped."""


class Sessions:
    """The requests that can be made about sessions. Answers are read from facts; every change is recorded as an event."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        projects: Projects,
        views: Views,
        profile_for: Callable[[ProjectConfig, Issue, Mapping[str, int]], str | None],
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.views = views
        self._profile_for = profile_for
        self.forge_of: Callable[[ProjectConfig], Awaitable[str]] = _local_forge
        """Returns the name of the forge that has a project's pull requests."""
        self.claim: Callable[[ProjectConfig, str, Mapping[str, Any]], Awaitable[Claim]] | None = None
        """Takes over a pull request at a forge for a new session."""
        self.learn_issue: Callable[[ProjectConfig, str], Awaitable[None]] = _skip_issue
        """Reads an issue from an external tracker, if the project has one."""
        self.check_node: Callable[[str | None], None] = _refuse_node
        """Raises `NotFound` for an unknown node."""
        self.creation = Creation(flow, home, host, views, self.find)
        self._creating = asyncio.Lock()
        self._key_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock per idempotency key, so that requests with the same key run one after the other."""
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._output: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=OUTPUT_LINES))
        self._printed: dict[str, int] = defaultdict(int)
        flow.on_change.append(self._on_change)

    # -- finding -------------------------------------------------------------------------------------------------------

    def find(self, name: str, project: str | None = None, only: str | None = None) -> SessionFacts:
        """Return the session with this id, name, `<project>-<name>`, or unique prefix of one of them; an exact match wins.

        `only` limits the search to one project. Raises `NotFound`, or `UsageError` if several sessions match.
        """
        by_id = self.flow.sessions.get(name)  # a request by id must stay fast with many sessions
        if by_id is not None and only in (None, by_id.project):
            return by_id
        exact_matches: dict[str, SessionFacts] = {}
        prefix_matches: dict[str, SessionFacts] = {}
        for facts in self.flow.sessions.values():
            if only not in (None, facts.project):
                continue
            names = (facts.id, facts.name, f"{facts.project}-{facts.name}")
            if name in names and project in (None, facts.project):
                exact_matches[facts.id] = facts
            elif any(candidate.startswith(name) for candidate in names):
                prefix_matches[facts.id] = facts
        for matches in (exact_matches, prefix_matches):
            in_project = {key: facts for key, facts in matches.items() if facts.project == project} or matches
            unfinished = {key: facts for key, facts in in_project.items() if not facts.stopped} or in_project
            if len(unfinished) == 1:
                return next(iter(unfinished.values()))
            if unfinished:
                raise UsageError(f"{name} may be {', '.join(sorted(unfinished))}", "write more of its name")
        raise NotFound(f"no session {name}", "see them all: ao status -A")

    def view(self, session: str) -> dict[str, Any]:
        """Return one session as JSON."""
        return self.views.session(self.flow.sessions[session])

    def list_body(self, project: str | None) -> bytes:
        """Return all sessions, or those of one project, as JSON text."""
        return self.views.body(project)

    def status_view(self, session: str) -> dict[str, Any]:
        """Return a short summary of a session's state."""
        facts = self.flow.sessions[session]
        status, full = self.views.status(facts), self.view(session)
        keys = ("status", "activity", "branch", "workspacePath", "agent", "progress")
        return {
            "state": status.state,
            "currentTask": facts.progress.step or facts.spec.title,
            "lastActivity": rfc3339(facts.activity.at or facts.updated_at),
            **{key: full[key] for key in keys},
        }

    def tasks(self) -> list[dict[str, Any]]:
        """Return all tasks, each with the sessions that work on it."""
        return [
            {
                "id": task.id,
                "project": task.project,
                "title": task.title,
                "description": task.description,
                "issue": task.issue,
                "labels": list(task.labels),
                "priority": task.priority,
                "after": list(task.after),
                "sessions": list(task.sessions),
                "createdAt": rfc3339(task.created_at),
            }
            for task in self.flow.home.tasks.values()
        ]

    def complete(self, kind: str, prefix: str) -> list[str]:
        """Return the names of this kind that begin with `prefix`, for shell completion."""
        projects = self.plugins.config.projects()
        if kind == "projects":
            names = [project.id for project in projects]
        elif kind == "agents":
            names = [name for project in projects for name in project.profiles]
            names += [name for name in Registry().names("agent") if name != "command"]
        elif kind == "plans":
            names = [plan.id for plan in self.flow.home.plans.values() if plan.state != "discarded"]
        elif kind == "fixes":
            names = [*self.flow.home.fixes]
        elif kind == "nodes":
            names = [*self.flow.home.nodes]
        else:
            sessions = [facts for facts in self.flow.sessions.values() if kind == "any" or not facts.stopped]
            names = [name for facts in sessions for name in (facts.id, facts.name)]
        return sorted({name for name in names if name.startswith(prefix)})

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create(
        self, request: Mapping[str, Any], key: str | None, context: Context, by: str = "person"
    ) -> dict[str, Any]:
        """Record a session to be created, with `by` as its source; a repeated key returns the session of the first request."""
        if key is None:
            return await self._create(request, uuid.uuid4().hex, context, by)
        async with self._key_locks.setdefault(key, asyncio.Lock()):
            return await self._session_for_key(key) or await self._create(request, key, context, by)

    async def _create(self, request: Mapping[str, Any], key: str, context: Context, by: str) -> dict[str, Any]:
        """Check a request and record its task and session."""
        project_id = await self.projects.resolve(context, request.get("projectId"), adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        project = self.plugins.project(project_id)
        if request.get("issue"):
            await self.learn_issue(project, str(request["issue"]))
        settings = self._agent_settings(project, request.get("agent") or self._route(project, request))
        await self.projects.check_trust(project, settings.profile)
        runtime = await self._choose_runtime(project, settings, request)
        workspace = self._choose_workspace(project, settings, request, runtime)
        scm = await self.forge_of(project)
        pull_request_events: tuple[e.Body, ...] = ()
        if request.get("pr") and self.claim and scm != "local":
            request, pull_request_events = await self.claim(project, scm, request)
        async with self._creating:
            self.check_room(str(request.get("parent")))
            body, task, session = await self.creation.spec(
                {**request, "scm": scm}, project, settings, runtime, workspace
            )
            now = self.flow.clock()
            events = [
                Event(task, now, by, f"task:{key}", project_id),
                Event(body, now, by, f"create:{key}", project_id, session),
                *(
                    Event(change_body, now, scm, f"claim:{key}:{change_body.type}", project_id, session)
                    for change_body in pull_request_events
                ),
            ]
            if issue := self.creation.issue(project_id, body.issue):
                assignment = e.IssueChanged(issue.number, assignee=session)
                events.append(Event(assignment, now, by, f"assign:{key}", project_id))
            await self.flow.append(*events)
        return self.view(session)

    def check_room(self, maker: str) -> None:
        """Raise `Denied` if the session `maker` is a coordinator that has as many unfinished sessions as it may have."""
        facts = self.flow.sessions.get(maker)
        if facts is None or facts.spec.kind != COORDINATOR:
            return
        count = made_by(facts, self.flow.sessions.values())
        if count >= self.plugins.project(facts.project).coordinator.max_sessions:
            raise Denied(
                f"{maker} has {count} unfinished sessions, the most it may have",
                "wait until some have landed, stop one, or ask a person to raise coordinator.maxSessions",
            )

    async def reassign(self, session: str, request: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        """Assign a session that waits for its first message to another agent, or another runtime."""
        facts = self.flow.sessions[session]
        event_key = f"reassign:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(event_key) is not None:
            return self.view(session)
        if not facts.spec.defer or facts.launch is not None or facts.next_message is not None or facts.stopped:
            raise Conflict(f"{session} has its agent already", "make another session for another agent: ao new")
        project, spec = self.plugins.project(facts.project), facts.spec
        settings = self._agent_settings(project, request.get("agent") or spec.profile or spec.agent)
        await self.projects.check_trust(project, settings.profile)
        runtime = await self._choose_runtime(
            project, settings, {"runtime": spec.runtime if facts.remote else None, **request}
        )
        if (runtime == CLUSTER) != facts.remote:
            place = "a node" if facts.remote else "this machine"
            raise UsageError(f"{session} has its place on {place} already", "make another session: ao new")
        body = e.SessionReassigned(
            agent=settings.tool,
            runtime=runtime,
            title=naming.title_of(clean_text(str(request.get("title") or ""))) or spec.title,
            profile=settings.profile,
            model=request.get("model") or spec.model,
            rules=standing_rules(project, settings),
            account=settings.account,
        )
        await self.flow.append(Event(body, self.flow.clock(), "person", event_key, facts.project, session))
        return self.view(session)

    async def _choose_runtime(self, project: ProjectConfig, settings: AgentSettings, request: Mapping[str, Any]) -> str:
        """Return the requested runtime (a node's name implies the cluster); raise an error if it cannot be used."""
        node = request.get("node")
        requested = request.get("runtime") or (CLUSTER if node else settings.runtime)
        if node and requested != CLUSTER:
            raise UsageError(f"--node is for the runtime {CLUSTER}, not for {requested}", "leave one of them out")
        if requested == CLUSTER:
            self.check_node(node)
            return CLUSTER
        runtime = await self.plugins.runtime_name(requested)
        await sandbox.check(self.plugins.host, project, runtime)
        self.plugins.runtime(runtime, self.plugins.registry(project))
        return runtime

    def _choose_workspace(
        self, project: ProjectConfig, settings: AgentSettings, request: Mapping[str, Any], runtime: str
    ) -> str:
        """Return the kind of workspace for a request: always a clone on a node."""
        requested = request.get("workspace")
        if runtime != CLUSTER:
            sandboxed = sandbox.applies(project, runtime)
            return self.plugins.workspace_name(project, settings, requested, sandboxed=sandboxed)
        if requested not in (None, "clone"):
            raise UsageError(f"a session on a node works in a clone, not in a {requested}", "leave --workspace out")
        return "clone"

    async def _session_for_key(self, key: str) -> dict[str, Any] | None:
        """Return the session that an earlier request with this key created, or None."""
        event = await self.flow.store.event_by_key(f"create:{key}")
        if event is None or event.session is None:
            return None
        if event.session not in self.flow.sessions:
            await self.flow.append()  # committed, but not in memory yet; it is after the next commit
        return self.view(event.session)

    def _route(self, project: ProjectConfig, request: Mapping[str, Any]) -> str | None:
        """Return the profile that routing chooses for an issue when the request names no agent, or None."""
        if not request.get("issue") or not project.profiles or request.get("kind") not in (None, "worker"):
            return None
        issue = self.creation.issue(project.id, naming.checked_issue(str(request["issue"])))
        unfinished = (
            session for session in self.flow.sessions.values() if session.project == project.id and not is_past(session)
        )
        load = Counter(session.spec.profile or session.spec.agent for session in unfinished)
        return self._profile_for(project, issue, load) if issue else None

    def _agent_settings(self, project: ProjectConfig, name: str | None) -> AgentSettings:
        """Return the settings of an agent or profile, after checking that its plugin can be loaded."""
        settings = self.plugins.config.agent(project.id, name)
        assert settings is not None
        self.plugins.agent(project, settings)
        return settings

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Wake the waiters of the sessions that changed."""
        for session in {change.event.session for change in changes}:
            self._wake(session or "")

    def _wake(self, session: str) -> None:
        """Wake everything that waits for a change of the session."""
        for waiter in self._waiters.get(session, ()):
            waiter.set()

    def print(self, session: str, line: str) -> None:
        """Add a line of live output of a session's set-up."""
        self._output[session].append(clean_text(line))
        self._printed[session] += 1
        self._wake(session)

    async def until(
        self, session: str, done: Callable[[SessionFacts], bool], timeout: float | None = None
    ) -> SessionFacts:
        """Wait until `done` accepts a session's facts; return the current facts when that happens or time is up."""
        async with aclosing(self._follow_facts(session, timeout)) as changes:
            async for facts in changes:
                if done(facts):
                    return facts
        return self.flow.sessions[session]

    async def _follow_facts(self, session: str, timeout: float | None) -> AsyncGenerator[SessionFacts, None]:
        """Yield a session's facts now and at each change, until time is up."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._waiters[session].add(changed)
        try:
            while True:
                changed.clear()
                yield self.flow.sessions[session]
                await asyncio.wait_for(changed.wait(), None if deadline is None else max(0.0, deadline - loop.time()))
        except TimeoutError:
            return
        finally:
            self._waiters[session].discard(changed)

    async def wait(self, session: str, until: str = "running") -> AsyncIterator[dict[str, Any]]:
        """Yield live output and states until the agent runs, its start failed, or it must wait; then yield the session."""
        if until != "running":
            raise UsageError(f"cannot wait until {until}", "wait until running")
        shown_count, last_state = 0, ""
        async with aclosing(self._follow_facts(session, None)) as changes:
            async for facts in changes:
                new_lines = self._printed[session] - shown_count
                if new_lines > 0:
                    for line in list(self._output[session])[-min(new_lines, OUTPUT_LINES) :]:
                        yield {"output": line}
                    shown_count += new_lines
                status = self.views.status(facts)
                if status.why != last_state and status.name != "failed":  # a failure is reported by the session itself
                    last_state = status.why
                    yield {"state": last_state}
                if _is_start_over(facts):
                    break
        yield {"session": self.view(session)}

    # -- the end, and back ---------------------------------------------------------------------------------------------

    async def stop(
        self, session: str, keep: bool = False, key: str | None = None, by: str = "person"
    ) -> dict[str, Any]:
        """Stop a session, save its work, and remove its workspace when that is safe; return where everything was saved."""
        facts, now = self.flow.sessions[session], self.flow.clock()
        # A session that is paused by its budget stays paused when the next day begins.
        events = [
            Event(e.OfferAnswered(offer.id, "deny"), now, by, f"stopped:{offer.id}", facts.project, session)
            for offer in facts.offers
            if offer.action == RAISE_BUDGET
        ]
        if not facts.stopped:
            event_key = f"stop:{session}:{key or uuid.uuid4().hex}"
            events.append(Event(e.StopRequested(keep), now, by, event_key, facts.project, session))
        if events:
            await self.flow.append(*events)
        facts = await self.until(session, _is_stop_over, STOP_PATIENCE)
        if facts.failure and not facts.stopped:
            raise AoError(f"{session} could not be stopped: {facts.failure.error}", facts.failure.remedy)
        return {"session": self.view(session), "saved": list(facts.saved), "undo": f"ao restore {session}"}

    async def stop_all(self, project: str | None, keep: bool = False, key: str | None = None) -> dict[str, Any]:
        """Stop every session of a project, or of all projects."""
        session_ids = [
            facts.id
            for facts in self.flow.sessions.values()
            if project in (None, facts.project) and not facts.stopped and not self.flow.elsewhere(facts.id)
        ]
        return {"stopped": await asyncio.gather(*(self.stop(session, keep, key) for session in session_ids))}

    async def restore(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Restore a session: same branch, same work, same conversation."""
        facts = self.flow.sessions[session]
        event_key = f"restore:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(event_key) is None:
            if facts.wanted == "stop" and not facts.stopped:
                facts = await self.until(session, _is_stop_over, STOP_PATIENCE)
            if facts.wanted == "stop" and not facts.stopped:
                if failure := facts.failure:
                    suggestion = f"{failure.remedy}; then stop it again: ao stop {session}"
                    raise Conflict(f"{session} could not be stopped: {failure.error}", suggestion)
                raise Conflict(f"{session} is being stopped", "wait a moment, then try again")
            if facts.stopped and facts.spec.reviews:  # its branch was removed with it, and the change has new commits
                suggestion = f"ao review {facts.spec.reviews} --agent {facts.spec.profile or facts.spec.agent}"
                raise Conflict(f"{session} was a review, and is over", f"have the change judged anew: {suggestion}")
            if facts.live or (not facts.stopped and facts.failure is None and facts.launched_run != facts.run):
                raise Conflict(f"{session} runs already", f"see it: ao status {session}")
            self.plugins.project(facts.project)
            await self._settle_kept_workspace(facts)
            await self.flow.append(
                Event(e.RestoreRequested(), self.flow.clock(), "person", event_key, facts.project, session)
            )
        return self.view(session)

    async def _settle_kept_workspace(self, facts: SessionFacts) -> None:
        """Mark the saved work of a session as restored if its workspace was kept.

        The work is still in that workspace. Otherwise a later workspace would get it a second time.
        """
        is_kept = facts.stopped and not facts.remote and facts.place and Path(facts.place.path).is_dir()
        if is_kept and any(line.endswith(f": {rescue_ref(facts.id)}") for line in facts.saved):
            await settle(self.host, Path(facts.spec.repo), facts.id)


def _is_stop_over(facts: SessionFacts) -> bool:
    """Return whether waiting for the stop can end: the session is stopped, or stopping it failed."""
    return facts.stopped or (facts.failure is not None and not facts.live)


def _is_start_over(facts: SessionFacts) -> bool:
    """Return whether waiting for the start can end: the agent was launched, its start failed, or it must wait."""
    if facts.failure or facts.stopped or facts.wanted == "stop":
        return True
    if facts.launched_run == facts.run:
        return True
    if not facts.admitted:
        return bool(facts.waiting_for)
    return facts.spec.defer and facts.place is not None and facts.place.present and facts.next_message is None


def _refuse_node(node: str | None) -> None:
    """Raise `NotFound`: there are no nodes without a cluster."""
    raise NotFound(f"no node {node}" if node else "there is no cluster", "see the nodes: ao nodes")


async def _local_forge(_project: ProjectConfig) -> str:
    """Return the local forge, the only one until others are connected."""
    return "local"


async def _skip_issue(_project: ProjectConfig, _issue: str) -> None:
    """Do nothing: there is no external tracker."""
