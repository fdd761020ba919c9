"""Sessions, as people ask for them: create, find, wait for, stop, restore."""

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
"""A request for a session, and what is known of its change from the start."""

OUTPUT_LINES = 500
STOP_PATIENCE = 120.0


class Sessions:
    """What may be asked of sessions. Answers come from facts; whatever changes something is an event."""

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
        self.forge_of: Callable[[ProjectConfig], Awaitable[str]] = _local
        """Where a project's pull requests are."""
        self.claim: Callable[[ProjectConfig, str, Mapping[str, Any]], Awaitable[Claim]] | None = None
        """Takes over a pull request at a forge."""
        self.learn_issue: Callable[[ProjectConfig, str], Awaitable[None]] = _nothing
        """Reads an issue that somebody names, where it is not ours."""
        self.check_node: Callable[[str | None], None] = _no_cluster
        """Refuses a node that nobody knows."""
        self.creation = Creation(flow, home, host, views, self.find)
        self._creating = asyncio.Lock()
        self._asked: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One request with a key at a time."""
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._output: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=OUTPUT_LINES))
        self._printed: dict[str, int] = defaultdict(int)
        flow.on_change.append(self._on_change)

    # -- finding -------------------------------------------------------------------------------------------------------

    def find(self, name: str, project: str | None = None, only: str | None = None) -> SessionFacts:
        """The session of that id, name, `<project>-<name>`, or a unique beginning of one of them; an exact match wins.

        `only`: the sessions of other projects are not there."""
        named = self.flow.sessions.get(name)  # most ask by id, which must not take longer the more sessions there are
        if named is not None and only in (None, named.project):
            return named
        exact: dict[str, SessionFacts] = {}
        starts: dict[str, SessionFacts] = {}
        for facts in self.flow.sessions.values():
            if only not in (None, facts.project):
                continue
            names = (facts.id, facts.name, f"{facts.project}-{facts.name}")
            if name in names and project in (None, facts.project):
                exact[facts.id] = facts
            elif any(one.startswith(name) for one in names):
                starts[facts.id] = facts
        for found in (exact, starts):
            here = {key: facts for key, facts in found.items() if facts.project == project} or found
            unfinished = {key: facts for key, facts in here.items() if not facts.stopped} or here
            if len(unfinished) == 1:
                return next(iter(unfinished.values()))
            if unfinished:
                raise UsageError(f"{name} may be {', '.join(sorted(unfinished))}", "write more of its name")
        raise NotFound(f"no session {name}", "see them all: ao status -A")

    def view(self, session: str) -> dict[str, Any]:
        """One session as JSON."""
        return self.views.session(self.flow.sessions[session])

    def list_body(self, project: str | None) -> bytes:
        """All sessions as JSON text."""
        return self.views.body(project)

    def status_view(self, session: str) -> dict[str, Any]:
        """A session's state in a few words."""
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
        """What is wanted, and who works on it."""
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
        """Names that begin so, for the shell."""
        projects = self.plugins.config.projects()
        if kind == "projects":
            names = [project.id for project in projects]
        elif kind == "agents":
            names = [name for project in projects for name in project.profiles]
            names += [name for name in Registry().names("agent") if name != "command"]
        elif kind == "plans":
            names = [one.id for one in self.flow.home.plans.values() if one.state != "discarded"]
        elif kind == "fixes":
            names = [*self.flow.home.fixes]
        elif kind == "nodes":
            names = [*self.flow.home.nodes]
        else:
            meant = [facts for facts in self.flow.sessions.values() if kind == "any" or not facts.stopped]
            names = [name for facts in meant for name in (facts.id, facts.name)]
        return sorted({name for name in names if name.startswith(prefix)})

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create(
        self, request: Mapping[str, Any], key: str | None, context: Context, by: str = "person"
    ) -> dict[str, Any]:
        """Record a session to be made, `by` whom; the same key gives the same session."""
        if key is None:
            return await self._create(request, uuid.uuid4().hex, context, by)
        async with self._asked.setdefault(key, asyncio.Lock()):
            return await self._made_by(key) or await self._create(request, key, context, by)

    async def _create(self, request: Mapping[str, Any], key: str, context: Context, by: str) -> dict[str, Any]:
        project_id = await self.projects.resolve(context, request.get("projectId"), adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        project = self.plugins.project(project_id)
        if request.get("issue"):
            await self.learn_issue(project, str(request["issue"]))
        settings = self._agent(project, request.get("agent") or self._routed(project, request))
        await self.projects.check_trust(project, settings.profile)
        runtime = await self._runtime(project, settings, request)
        workspace = self._workspace(project, settings, request, runtime)
        scm = await self.forge_of(project)
        known_there: tuple[e.Body, ...] = ()
        if request.get("pr") and self.claim and scm != "local":
            request, known_there = await self.claim(project, scm, request)
        async with self._creating:
            self.check_room(str(request.get("parent")))
            body, task, session = await self.creation.spec(
                {**request, "scm": scm}, project, settings, runtime, workspace
            )
            now = self.flow.clock()
            events = [
                Event(task, now, by, f"task:{key}", project_id),
                Event(body, now, by, f"create:{key}", project_id, session),
                *(Event(one, now, scm, f"claim:{key}:{one.type}", project_id, session) for one in known_there),
            ]
            if issue := self.creation.issue(project_id, body.issue):
                taken = e.IssueChanged(issue.number, assignee=session)
                events.append(Event(taken, now, by, f"assign:{key}", project_id))
            await self.flow.append(*events)
        return self.view(session)

    def check_room(self, maker: str) -> None:
        """Refuse one more session of a coordinating one that has as many unfinished ones as it may have."""
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
        """Give a session that waits for its first message to another agent, or another runtime."""
        facts = self.flow.sessions[session]
        unique = f"reassign:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(unique) is not None:
            return self.view(session)
        if not facts.spec.defer or facts.launch is not None or facts.next_message is not None or facts.stopped:
            raise Conflict(f"{session} has its agent already", "make another session for another agent: ao new")
        project, spec = self.plugins.project(facts.project), facts.spec
        settings = self._agent(project, request.get("agent") or spec.profile or spec.agent)
        await self.projects.check_trust(project, settings.profile)
        runtime = await self._runtime(project, settings, {"runtime": spec.runtime if facts.remote else None, **request})
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
        await self.flow.append(Event(body, self.flow.clock(), "person", unique, facts.project, session))
        return self.view(session)

    async def _runtime(self, project: ProjectConfig, settings: AgentSettings, request: Mapping[str, Any]) -> str:
        """The runtime that is asked for, by a node's name too; refuses one that there is not."""
        node = request.get("node")
        wanted = request.get("runtime") or (CLUSTER if node else settings.runtime)
        if node and wanted != CLUSTER:
            raise UsageError(f"--node is for the runtime {CLUSTER}, not for {wanted}", "leave one of them out")
        if wanted == CLUSTER:
            self.check_node(node)
            return CLUSTER
        runtime = await self.plugins.runtime_name(wanted)
        await sandbox.check(self.plugins.host, project, runtime)
        self.plugins.runtime(runtime, self.plugins.registry(project))
        return runtime

    def _workspace(
        self, project: ProjectConfig, settings: AgentSettings, request: Mapping[str, Any], runtime: str
    ) -> str:
        wanted = request.get("workspace")
        if runtime != CLUSTER:
            sandboxed = sandbox.applies(project, runtime)
            return self.plugins.workspace_name(project, settings, wanted, sandboxed=sandboxed)
        if wanted not in (None, "clone"):
            raise UsageError(f"a session on a node works in a clone, not in a {wanted}", "leave --workspace out")
        return "clone"

    async def _made_by(self, key: str) -> dict[str, Any] | None:
        """The session that a request with this key made before."""
        event = await self.flow.store.event_by_key(f"create:{key}")
        if event is None or event.session is None:
            return None
        if event.session not in self.flow.sessions:
            await self.flow.append()  # committed just now, and not in memory yet: the next commit comes after it
        return self.view(event.session)

    def _routed(self, project: ProjectConfig, request: Mapping[str, Any]) -> str | None:
        """The profile that an issue is for, where nobody says who is to take it."""
        if not request.get("issue") or not project.profiles or request.get("kind") not in (None, "worker"):
            return None
        issue = self.creation.issue(project.id, naming.checked_issue(str(request["issue"])))
        ours = (one for one in self.flow.sessions.values() if one.project == project.id and not is_past(one))
        load = Counter(one.spec.profile or one.spec.agent for one in ours)
        return self._profile_for(project, issue, load) if issue else None

    def _agent(self, project: ProjectConfig, name: str | None) -> AgentSettings:
        settings = self.plugins.config.agent(project.id, name)
        assert settings is not None
        self.plugins.agent(project, settings)
        return settings

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        for session in {change.event.session for change in changes}:
            self._wake(session or "")

    def _wake(self, session: str) -> None:
        for waiter in self._waiters.get(session, ()):
            waiter.set()

    def print(self, session: str, line: str) -> None:
        """A line of live output of a session's set-up."""
        self._output[session].append(clean_text(line))
        self._printed[session] += 1
        self._wake(session)

    async def until(
        self, session: str, done: Callable[[SessionFacts], bool], timeout: float | None = None
    ) -> SessionFacts:
        """Wait for a session's facts to be so; returns them as they are when time is up."""
        async with aclosing(self._follow(session, timeout)) as changes:
            async for facts in changes:
                if done(facts):
                    return facts
        return self.flow.sessions[session]

    async def _follow(self, session: str, timeout: float | None) -> AsyncGenerator[SessionFacts, None]:
        """A session's facts, now and at each change, until time is up."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        self._waiters[session].add(changed)
        try:
            while True:
                changed.clear()
                yield self.flow.sessions[session]
                await asyncio.wait_for(changed.wait(), None if end is None else max(0.0, end - loop.time()))
        except TimeoutError:
            return
        finally:
            self._waiters[session].discard(changed)

    async def wait(self, session: str, until: str = "running") -> AsyncIterator[dict[str, Any]]:
        """Live output until the agent runs, it failed, or it is clear that it must wait."""
        if until != "running":
            raise UsageError(f"cannot wait until {until}", "wait until running")
        shown, told = 0, ""
        async with aclosing(self._follow(session, None)) as changes:
            async for facts in changes:
                fresh = self._printed[session] - shown
                if fresh > 0:
                    for line in list(self._output[session])[-min(fresh, OUTPUT_LINES) :]:
                        yield {"output": line}
                    shown += fresh
                status = self.views.status(facts)
                if status.why != told and status.name != "failed":  # that is told by the session itself
                    told = status.why
                    yield {"state": told}
                if _settled(facts):
                    break
        yield {"session": self.view(session)}

    # -- the end, and back ---------------------------------------------------------------------------------------------

    async def stop(
        self, session: str, keep: bool = False, key: str | None = None, by: str = "person"
    ) -> dict[str, Any]:
        """Stop a session, save its work, remove its workspace once that is safe; says where everything went."""
        facts, now = self.flow.sessions[session], self.flow.clock()
        # One that is paused for its budget stays so: it does not go on when another day begins.
        events = [
            Event(e.OfferAnswered(offer.id, "deny"), now, by, f"stopped:{offer.id}", facts.project, session)
            for offer in facts.offers
            if offer.action == RAISE_BUDGET
        ]
        if not facts.stopped:
            unique = f"stop:{session}:{key or uuid.uuid4().hex}"
            events.append(Event(e.StopRequested(keep), now, by, unique, facts.project, session))
        if events:
            await self.flow.append(*events)
        facts = await self.until(session, _stopped, STOP_PATIENCE)
        if facts.failure and not facts.stopped:
            raise AoError(f"{session} could not be stopped: {facts.failure.error}", facts.failure.remedy)
        return {"session": self.view(session), "saved": list(facts.saved), "undo": f"ao restore {session}"}

    async def stop_all(self, project: str | None, keep: bool = False, key: str | None = None) -> dict[str, Any]:
        """Stop every session of a project."""
        chosen = [
            facts.id
            for facts in self.flow.sessions.values()
            if project in (None, facts.project) and not facts.stopped and not self.flow.elsewhere(facts.id)
        ]
        return {"stopped": await asyncio.gather(*(self.stop(session, keep, key) for session in chosen))}

    async def restore(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Bring a session back: same branch, same work, same conversation."""
        facts = self.flow.sessions[session]
        unique = f"restore:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(unique) is None:
            if facts.wanted == "stop" and not facts.stopped:
                facts = await self.until(session, _stopped, STOP_PATIENCE)
            if facts.wanted == "stop" and not facts.stopped:
                if failure := facts.failure:
                    again = f"{failure.remedy}; then stop it again: ao stop {session}"
                    raise Conflict(f"{session} could not be stopped: {failure.error}", again)
                raise Conflict(f"{session} is being stopped", "wait a moment, then try again")
            if facts.stopped and facts.spec.reviews:  # its branch went with it, and the change has moved on
                again = f"ao review {facts.spec.reviews} --agent {facts.spec.profile or facts.spec.agent}"
                raise Conflict(f"{session} was a review, and is over", f"have the change judged anew: {again}")
            if facts.live or (not facts.stopped and facts.failure is None and facts.launched_run != facts.run):
                raise Conflict(f"{session} runs already", f"see it: ao status {session}")
            self.plugins.project(facts.project)
            await self._goes_on_where_it_stayed(facts)
            await self.flow.append(
                Event(e.RestoreRequested(), self.flow.clock(), "person", unique, facts.project, session)
            )
        return self.view(session)

    async def _goes_on_where_it_stayed(self, facts: SessionFacts) -> None:
        """What was saved of a workspace that stayed is in it: the next one is not to get it, whatever becomes of it there."""
        stayed = facts.stopped and not facts.remote and facts.place and Path(facts.place.path).is_dir()
        if stayed and any(line.endswith(f": {rescue_ref(facts.id)}") for line in facts.saved):
            await settle(self.host, Path(facts.spec.repo), facts.id)


def _stopped(facts: SessionFacts) -> bool:
    """Whoever waits for the stop has nothing more to wait for."""
    return facts.stopped or (facts.failure is not None and not facts.live)


def _settled(facts: SessionFacts) -> bool:
    """Whoever waits for the start has nothing more to wait for."""
    if facts.failure or facts.stopped or facts.wanted == "stop":
        return True
    if facts.launched_run == facts.run:
        return True
    if not facts.admitted:
        return bool(facts.waiting_for)
    return facts.spec.defer and facts.place is not None and facts.place.present and facts.next_message is None


def _no_cluster(node: str | None) -> None:
    raise NotFound(f"no node {node}" if node else "there is no cluster", "see the nodes: ao nodes")


async def _local(_project: ProjectConfig) -> str:
    return "local"


async def _nothing(_project: ProjectConfig, _issue: str) -> None:
    """There is no other tracker."""
