"""The operations on sessions that people and clients ask for: create, find, wait for, stop, restore.

Look here when a request about a session is refused, or a name resolves to the wrong session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import count_unfinished_children, is_stopped_or_closed
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import CLUSTER_RUNTIME, COORDINATOR_KIND, WORKER_KIND, SessionFacts
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.cluster_service import ClusterService
from agent_orchestrator.sessions.creation import names as naming
from agent_orchestrator.sessions.creation.choices import SessionChoices, standing_rules
from agent_orchestrator.sessions.creation.new_session import Forges, NewSession
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.isolation import sandbox
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.rescue import mark_restored, rescue_ref
from agent_orchestrator.sessions.session_view import SessionViews

STOP_TIMEOUT = 120.0
"""Seconds to wait until a session has stopped."""


class Sessions(Part):
    """The requests that can be made about sessions. Answers are read from facts; every change is recorded as an event."""

    def __init__(
        self,
        core: Core,
        views: SessionViews,
        followers: Followers,
        forges: Forges,
        nodes: ClusterService,
        profile_for: Callable[[ProjectConfig, Issue, Mapping[str, int]], str | None],
    ) -> None:
        """`profile_for` returns the profile that routing chooses for an issue, by how many sessions each profile has."""
        super().__init__(core)
        self.views = views
        self.followers = followers
        self.forges = forges
        self.nodes = nodes
        self._profile_for = profile_for
        self.choices = SessionChoices(core, views, nodes, self.find)
        self._creating = asyncio.Lock()
        self._key_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock per idempotency key, so that requests with the same key run one after the other."""

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

    def list_json(self, project: str | None) -> bytes:
        """Return all sessions, or those of one project, as JSON text."""
        return self.views.list_json(project)

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

    def complete_names(self, kind: str, prefix: str) -> list[str]:
        """Return the names of this kind that begin with `prefix`, for shell completion."""
        projects = self.core.config.projects()
        if kind == "projects":
            names = [project.id for project in projects]
        elif kind == "agents":
            names = [name for project in projects for name in project.profiles]
            names += [name for name in PluginRegistry().names("agent") if name != "command"]
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
        self, request: NewSession, key: str | None, context: CommandContext, by: str = "person"
    ) -> dict[str, Any]:
        """Record a session to be created, with `by` as its source; a repeated key returns the session of the first request."""
        if key is None:
            return await self._create(request, uuid.uuid4().hex, context, by)
        async with self._key_locks.setdefault(key, asyncio.Lock()):
            return await self._session_for_key(key) or await self._create(request, key, context, by)

    async def _create(self, request: NewSession, key: str, context: CommandContext, by: str) -> dict[str, Any]:
        """Check a request and record its task and session."""
        project_id = await self.core.projects.resolve(context, request.project, adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        project = self.core.settings.project(project_id)
        if request.issue:
            await self.forges.read_issue(project, request.issue)
        settings = self._agent_settings(project, request.agent or self._route(project, request))
        await self.core.projects.check_trust(project, settings.profile)
        runtime = await self._choose_runtime(project, settings, request.runtime, request.node)
        workspace = self._choose_workspace(project, settings, request.workspace, runtime)
        forge = await self.forges.choose(project)
        claim = await self.forges.claim(project, forge, request) if request.pr else None
        async with self._creating:
            self.check_capacity(request.parent)
            body, task, session = await self.choices.creation_events(
                claim.request if claim else request, project, settings, runtime, workspace, forge
            )
            now = self.clock()
            events = [
                Event(task, now, by, f"task:{key}", project_id),
                Event(body, now, by, f"create:{key}", project_id, session),
                *(
                    Event(event_body, now, forge.name, f"claim:{key}:{event_body.type}", project_id, session)
                    for event_body in (claim.events if claim else ())
                ),
            ]
            if issue := self.choices.issue(project_id, body.issue):
                assignment = e.IssueChanged(issue.number, assignee=session)
                events.append(Event(assignment, now, by, f"assign:{key}", project_id))
            await self.flow.append(*events)
        return self.view(session)

    async def read_issue(self, project_id: str, name: str) -> Issue | None:
        """Return an issue, read from its tracker if it is kept elsewhere; None if it is not known."""
        issue = naming.normalize_issue(name)
        await self.forges.read_issue(self.core.settings.project(project_id), issue)
        return self.choices.issue(project_id, issue)

    def check_capacity(self, maker: str | None) -> None:
        """Raise `Denied` if the session `maker` is a coordinator that has as many unfinished sessions as it may have."""
        facts = self.flow.sessions.get(maker or "")
        if facts is None or facts.spec.kind != COORDINATOR_KIND:
            return
        count = count_unfinished_children(facts, self.flow.sessions.values())
        if count >= self.core.settings.project(facts.project).coordinator.max_sessions:
            raise Denied(
                f"{maker} has {count} unfinished sessions, the most it may have",
                "wait until some have landed, stop one, or ask a person to raise coordinator.maxSessions",
            )

    async def reassign(
        self, session: str, key: str | None, *, agent: str | None, runtime: str, model: str | None, title: str
    ) -> dict[str, Any]:
        """Assign a session that waits for its first message to another agent, or another runtime; what is empty stays."""
        facts = self.flow.sessions[session]
        event_key = f"reassign:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(event_key) is not None:
            return self.view(session)
        if not facts.spec.defer or facts.launch is not None or facts.next_message is not None or facts.stopped:
            raise Conflict(f"{session} has its agent already", "make another session for another agent: ao new")
        project, spec = self.core.settings.project(facts.project), facts.spec
        settings = self._agent_settings(project, agent or spec.profile or spec.agent)
        await self.core.projects.check_trust(project, settings.profile)
        new_runtime = await self._choose_runtime(
            project, settings, runtime or (spec.runtime if facts.remote else ""), None
        )
        if (new_runtime == CLUSTER_RUNTIME) != facts.remote:
            place = "a node" if facts.remote else "this machine"
            raise UsageError(f"{session} has its place on {place} already", "make another session: ao new")
        body = e.SessionReassigned(
            agent=settings.tool,
            runtime=new_runtime,
            title=naming.title_of(clean_text(title)) or spec.title,
            profile=settings.profile,
            model=model or spec.model,
            rules=standing_rules(project, settings),
            account=settings.account,
        )
        await self.flow.append(self.event(facts, body, event_key, source="person"))
        return self.view(session)

    async def _choose_runtime(
        self, project: ProjectConfig, settings: ResolvedAgent, runtime_wish: str, node: str | None
    ) -> str:
        """Return the wanted runtime (a node's name implies the cluster) or the configured one; raise an error if it cannot be used."""
        requested = runtime_wish or (CLUSTER_RUNTIME if node else settings.runtime)
        if node and requested != CLUSTER_RUNTIME:
            raise UsageError(
                f"--node is for the runtime {CLUSTER_RUNTIME}, not for {requested}", "leave one of them out"
            )
        if requested == CLUSTER_RUNTIME:
            self.nodes.require_node(node)
            return CLUSTER_RUNTIME
        runtime = await self.core.plugins.resolve_runtime(requested)
        await sandbox.require_sandbox(self.host, project, runtime)
        self.core.plugins.runtime(runtime, self.core.plugins.registry(project))
        return runtime

    def _choose_workspace(self, project: ProjectConfig, settings: ResolvedAgent, requested: str, runtime: str) -> str:
        """Return the wanted or configured kind of workspace: always a clone on a node."""
        if runtime != CLUSTER_RUNTIME:
            sandboxed = sandbox.is_sandboxed(project, runtime)
            return self.core.plugins.resolve_workspace(project, settings, requested or None, sandboxed=sandboxed)
        if requested not in ("", "clone"):
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

    def _route(self, project: ProjectConfig, request: NewSession) -> str | None:
        """Return the profile that routing chooses for an issue when the request names no agent, or None."""
        if not request.issue or not project.profiles or request.kind != WORKER_KIND:
            return None
        issue = self.choices.issue(project.id, naming.normalize_issue(request.issue))
        unfinished = (
            session
            for session in self.flow.sessions.values()
            if session.project == project.id and not is_stopped_or_closed(session)
        )
        load = Counter(session.spec.profile or session.spec.agent for session in unfinished)
        return self._profile_for(project, issue, load) if issue else None

    def _agent_settings(self, project: ProjectConfig, name: str | None) -> ResolvedAgent:
        """Return the settings of an agent or profile, after checking that its plugin can be loaded."""
        settings = self.core.config.agent(project.id, name)
        assert settings is not None
        self.core.plugins.agent(project, settings)
        return settings

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def wait(self, session: str, until: str = "running") -> AsyncIterator[dict[str, Any]]:
        """Yield live output and states until the agent runs, its start failed, or it must wait; then yield the session."""
        if until != "running":
            raise UsageError(f"cannot wait until {until}", "wait until running")
        shown_count, last_state = 0, ""
        async with aclosing(self.followers.follow(session)) as changes:
            async for facts in changes:
                new_lines, shown_count = self.followers.output_since(session, shown_count)
                for line in new_lines:
                    yield {"output": line}
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
        facts, now = self.flow.sessions[session], self.clock()
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
        facts = await self.followers.wait_until(session, _is_stop_over, STOP_TIMEOUT)
        if facts.failure and not facts.stopped:
            raise AoError(f"{session} could not be stopped: {facts.failure.error}", facts.failure.remedy)
        return {"session": self.view(session), "saved": list(facts.saved_work), "undo": f"ao restore {session}"}

    async def stop_all(self, project: str | None, keep: bool = False, key: str | None = None) -> dict[str, Any]:
        """Stop every session of a project, or of all projects."""
        session_ids = [
            facts.id
            for facts in self.flow.sessions.values()
            if project in (None, facts.project) and not facts.stopped and not self.flow.owner_home(facts.id)
        ]
        return {"stopped": await asyncio.gather(*(self.stop(session, keep, key) for session in session_ids))}

    async def restore(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Restore a session: same branch, same work, same conversation."""
        facts = self.flow.sessions[session]
        event_key = f"restore:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(event_key) is None:
            if facts.requested_state == "stop" and not facts.stopped:
                facts = await self.followers.wait_until(session, _is_stop_over, STOP_TIMEOUT)
            if facts.requested_state == "stop" and not facts.stopped:
                if failure := facts.failure:
                    suggestion = f"{failure.remedy}; then stop it again: ao stop {session}"
                    raise Conflict(f"{session} could not be stopped: {failure.error}", suggestion)
                raise Conflict(f"{session} is being stopped", "wait a moment, then try again")
            if facts.stopped and facts.spec.reviews:  # its branch was removed with it, and the change has new commits
                suggestion = f"ao review {facts.spec.reviews} --agent {facts.spec.profile or facts.spec.agent}"
                raise Conflict(f"{session} was a review, and is over", f"have the change judged anew: {suggestion}")
            if facts.live or (not facts.stopped and facts.failure is None and facts.launched_run != facts.run):
                raise Conflict(f"{session} runs already", f"see it: ao status {session}")
            self.core.settings.project(facts.project)
            await self._mark_kept_work_restored(facts)
            await self.flow.append(
                Event(e.RestoreRequested(), self.clock(), "person", event_key, facts.project, session)
            )
        return self.view(session)

    async def _mark_kept_work_restored(self, facts: SessionFacts) -> None:
        """Mark the saved work of a session as restored if its workspace was kept.

        The work is still in that workspace. Otherwise a later workspace would get it a second time.
        """
        is_kept = facts.stopped and not facts.remote and facts.workspace and Path(facts.workspace.path).is_dir()
        if is_kept and any(line.endswith(f": {rescue_ref(facts.id)}") for line in facts.saved_work):
            await mark_restored(self.host, Path(facts.spec.repo), facts.id)


def _is_stop_over(facts: SessionFacts) -> bool:
    """Return whether waiting for the stop can end: the session is stopped, or stopping it failed."""
    return facts.stopped or (facts.failure is not None and not facts.live)


def _is_start_over(facts: SessionFacts) -> bool:
    """Return whether waiting for the start can end: the agent was launched, its start failed, or it must wait."""
    if facts.failure or facts.stopped or facts.requested_state == "stop":
        return True
    if facts.launched_run == facts.run:
        return True
    if not facts.admitted:
        return bool(facts.waiting_for)
    return facts.spec.defer and facts.workspace is not None and facts.workspace.present and facts.next_message is None
