"""Plan a goal, spawn agents for it, react to events and wait for results, from Python.

    async with Orchestrator(project="my-app", max_parallel_agents=3) as orchestrator:
        plan = await orchestrator.plan("make mypy strict pass")
        for task in plan.tasks:
            await orchestrator.spawn(task, on_complete=print)
        await orchestrator.wait()

The sessions belong to the daemon: they continue when the program ends. Handlers are called while it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_orchestrator.base.http_client import quote
from agent_orchestrator.client.api.connection import DaemonConnection, Json
from agent_orchestrator.client.api.fleet import Handler, Result, SessionTracker
from agent_orchestrator.client.api.records import PullRequest, to_record
from agent_orchestrator.client.api.sessions import Session, SessionManager, spawn_defaults
from agent_orchestrator.client.api.tasks import Piece, Plan, Task, order_by_dependencies, pieces_of, plan_of
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError

MAX_NAME_LENGTH = 40
PR_TIMEOUT = 30.0
"""Seconds within which the daemon notices a commit and opens its pull request."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workspace with its branch, created before its agent is started."""

    path: str
    branch: str
    session: Session


class Orchestrator:
    """Plans work for one project, starts agents for it, and calls handlers for events. Subclass it to plan or spawn differently."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        tracker: Mapping[str, str] | None = None,
        max_parallel_agents: int | None = None,
        group: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """`project`: its id or folder; else the project that `tracker` (`{"type": "github", "repo": "myorg/myrepo"}`) names; else that of
        the working directory. At most `max_parallel_agents` of the sessions it creates work at once; programs with the same `group`
        share that limit. `home`: `$AO_HOME`.
        """
        if max_parallel_agents is not None and max_parallel_agents < 1:
            raise UsageError(f"max_parallel_agents is {max_parallel_agents}", "let at least one work")
        self.max_parallel_agents = max_parallel_agents
        self.group = group or f"api-{secrets.token_hex(4)}"
        self.sessions = SessionManager(link=DaemonConnection(home))
        """The sessions of the same daemon."""
        self._link = DaemonConnection(home)
        self._requested_project, self._tracker = project, tracker
        self._project: str | None = None
        self._fleet: SessionTracker | None = None
        self._opening = asyncio.Lock()
        self.session_ids: dict[str, str] = {}
        """The ids of sessions by the id and the title of the task they were made for."""

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(report=error is None)

    async def open(self) -> SessionTracker:
        """Find the project and start following its events; called automatically when first needed."""
        async with self._opening:
            if self._fleet is None:
                self._project = await self._find_project()
                self._fleet = SessionTracker(self._link, self._project, await self._link.newest_event_number())
        return self._fleet

    async def close(self, *, report: bool = True) -> None:
        """Stop calling handlers; the sessions continue. Raise the exceptions of handlers that were not raised yet."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            await fleet.close(report=report)

    @property
    def project_id(self) -> str:
        """The project's id."""
        if self._project is None:
            raise UsageError("the orchestrator is not open", "use it as `async with`, or await its open()")
        return self._project

    async def _find_project(self) -> str:
        """Return the id of the project named by the arguments, registering the working directory's if none is named."""
        if self._requested_project is not None:
            return await self._project_id(self._requested_project)
        repo = (self._tracker or {}).get("repo")
        if repo is None:
            return str((await self._link.post("/api/projects", {"path": str(Path.cwd())}))["id"])
        await self._link.get(
            "/api/sessions"
        )  # registers what is configured in the working directory, as any command does
        projects = (await self._link.get("/api/projects"))["projects"]
        matches = [project["id"] for project in projects if _repository(project.get("repo") or "") == _repository(repo)]
        if len(matches) == 1:
            return str(matches[0])
        if matches:
            raise UsageError(f"{repo} is the repository of {', '.join(matches)}", "name one: project=…")
        host = {"gitlab": "gitlab.com"}.get((self._tracker or {}).get("type", ""), "github.com")
        remedy = (
            f"register it: ao start https://{host}/{repo}, or write `repo: {repo}` into its agent-orchestrator.yaml"
        )
        raise NotFound(f"no project has the repository {repo}", remedy)

    async def _projects(self) -> list[Json]:
        """Return the registered projects."""
        await self._link.get(
            "/api/sessions"
        )  # registers what is configured in the working directory, as any command does
        projects: list[Json] = (await self._link.get("/api/projects"))["projects"]
        return projects

    async def _project_id(self, project: str | os.PathLike[str]) -> str:
        """Return the id of a project given by id or folder; a folder is registered if needed."""
        name = os.fspath(project)
        ids = [registered["id"] for registered in await self._projects()]
        if isinstance(project, str) and name in ids:
            return name
        folder = Path(name).expanduser().absolute()
        if folder.is_dir():
            return str((await self._link.post("/api/projects", {"path": str(folder)}))["id"])
        remedy = f"known: {', '.join(ids)}" if ids else "register one: ao start PATH"
        raise NotFound(f"no project {name}", remedy)

    # -- planning ------------------------------------------------------------------------------------------------------

    async def plan(self, goal: str | None = None) -> Plan:
        """Break a goal down into tasks with the planner; without a goal, plan the tracker's open issues."""
        await self.open()
        body: Json = {"projectId": self.project_id, **({"goal": goal} if goal else {"fromIssues": True})}
        plan = await self._link.post("/api/plans", body)
        pause = 0.1
        while plan["state"] == "planning":
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)
            plan = await self._link.get(f"/api/plans/{quote(plan['id'])}")
        if plan["state"] == "failed":
            raise AoError(
                f"no plan came of it: {plan.get('error') or 'the planner gave up'}", f"see ao plan {plan['id']}"
            )
        return plan_of(plan)

    async def breakdown_goal(self, goal: str) -> Sequence[Piece]:
        """Return the parts of a goal, each with `title`, `description`, `deps` (titles of others) and `effort`; by the planner, unless
        overridden.
        """
        return pieces_of(await Orchestrator.plan(self, goal))

    def generate_id(self) -> str:
        """Return an id for a new task, in the form of an issue key."""
        return f"TASK-{secrets.randbelow(900_000_000) + 100_000_000}"

    # -- spawning ------------------------------------------------------------------------------------------------------

    async def spawn(self, task: Task | str, on_complete: Handler[Result] | None = None, **options: Any) -> Session:
        """Create a session for a task; return when its agent runs, or when it is clear what it waits for.

        It starts when the tasks it depends on are done. `on_complete` is called once, when its agent is done or has ended.
        `options` are those of `SessionManager.create` and take precedence over the task.
        """
        fleet = await self.open()
        task = Task(self.generate_id(), task) if isinstance(task, str) else task
        session = await self.sessions.create(**{**self._request(task), **options})
        self._remember(task, session)
        await fleet.track(session, on_complete)
        return session

    async def spawn_all(
        self, tasks: Iterable[Task], on_complete: Handler[Result] | None = None, **options: Any
    ) -> list[Session]:
        """Spawn tasks in the order of their dependencies."""
        fleet = await self.open()
        sessions = []
        for task in order_by_dependencies(tasks, self.session_ids):
            token = spawn_defaults.set(self._request(task))
            try:
                handler = {"on_complete": on_complete} if on_complete and _accepts(self.spawn, "on_complete") else {}
                spawned: object = await self.spawn(task, **handler, **options)
            finally:
                spawn_defaults.reset(token)
            session = spawned if isinstance(spawned, Session) else await self.sessions.get(str(spawned))
            session = await fleet.track(session, on_complete)
            self._remember(task, session)
            sessions.append(session)
        return sessions

    async def run(
        self,
        goal: str | None = None,
        *,
        on_complete: Handler[Result] | None = None,
        until: str = "over",
        timeout: float | None = None,
    ) -> list[Result]:
        """Plan, spawn every task in order, and wait for all of them."""
        await self.open()
        plan = await (self.plan(goal) if goal is not None else self.plan())
        await self.spawn_all(plan, on_complete)
        return await self.wait(timeout, until=until)

    def _request(self, task: Task) -> dict[str, Any]:
        """Return the arguments of `SessionManager.create` for a task; raise UsageError if a dependency has no session yet."""
        after = []
        for name in task.dependencies:
            if name not in self.session_ids:
                raise UsageError(
                    f"{task.title!r} depends on {name!r}, which has no session yet",
                    "spawn that first, or use spawn_all()",
                )
            after.append(self.session_ids[name])
        return {
            "project_id": self.project_id,
            "title": task.title,
            "prompt": task.prompt,
            "issue": task.issue_id,
            "agent": self.select_agent(task),
            "after": after,
            "labels": task.labels,
            "files": task.files,
            "priority": task.priority,
            **self._group_options(),
        }

    def _group_options(self) -> dict[str, Any]:
        """Return the options that put a session into this orchestrator's group, if the number of parallel agents is limited."""
        return (
            {} if self.max_parallel_agents is None else {"group": self.group, "group_limit": self.max_parallel_agents}
        )

    def _remember(self, task: Task, session: Session) -> None:
        """Remember which session a task has."""
        self.session_ids[task.id] = self.session_ids[task.title] = session.id

    def select_agent(self, task: Task) -> str | None:
        """Return the profile or agent for a task, or None for the project's default. It is what the plan suggests, unless overridden."""
        return task.profile

    def to_session_name(self, title: str) -> str:
        """Return a session name made of the first words of a title."""
        ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        name = ""
        for word in re.findall(r"[a-z0-9]+", ascii_title):
            if name and len(name) + 1 + len(word) > MAX_NAME_LENGTH:
                break
            name = f"{name}-{word}" if name else word[:MAX_NAME_LENGTH]
        return name or "task"

    def to_branch_name(self, title: str) -> str:
        """Return a branch name made of the first words of a title."""
        return f"feature/{self.to_session_name(title)}"

    # -- reacting and waiting ------------------------------------------------------------------------------------------

    def on(self, trigger: str, session: Session | str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler with each `Event` of a trigger, of one session or of all in the project; return a function that ends this.

        A trigger is an event's type or the name of a reaction's trigger. For a session that was spawned here, earlier
        events count too.
        """
        if self._fleet is None:
            raise UsageError("the orchestrator is not open", "use it as `async with`, or await its open()")
        return self._fleet.on(trigger, session.id if isinstance(session, Session) else session, handler)

    def on_ci_failure(self, session_id: Session | str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler whenever checks fail because of the session's own change; `logs` of the event holds their output."""
        return self.on("ci-failed", session_id, handler)

    async def wait(self, timeout: float | None = None, *, until: str = "over") -> list[Result]:
        """Wait for all sessions that were spawned here: until they are over, or `idle` (their turns finished, they wait for a person).

        Return the result of each, in the order they were spawned. Raise `HandlerError` as soon as a handler has raised;
        `TimedOut` after `timeout` seconds. The sessions continue in either case.
        """
        return await (await self.open()).wait(timeout, until)

    # -- step by step --------------------------------------------------------------------------------------------------

    async def create_worktree(
        self, issue_id: str | int | None = None, base_branch: str | None = None, *, name: str | None = None
    ) -> Worktree:
        """Create a workspace on a new branch, for an issue or with a name, without an agent; return when it exists."""
        await self.open()
        name = name or (None if issue_id is not None else f"worktree-{secrets.token_hex(3)}")
        session = await self.sessions.create(
            self.project_id, name, issue_id, base=base_branch, defer=True, **self._group_options()
        )
        while session.workspace_path is None:
            if session.status in ("failed", "stopped"):
                raise AoError(
                    f"{session.id} has no workspace: {session.waiting_for or session.status}", f"ao why {session.id}"
                )
            await asyncio.sleep(0.1)
            await session.refresh()
        return Worktree(session.workspace_path, session.branch, session)

    async def spawn_agent(
        self,
        worktree_path: str | os.PathLike[str],
        runtime: str | None = None,
        tool: str | None = None,
        context: str = "",
        on_complete: Handler[Result] | None = None,
        *,
        model: str | None = None,
    ) -> Session:
        """Start an agent in a workspace that `create_worktree` made; `context` is its task."""
        fleet = await self.open()
        if not context.strip():
            raise UsageError("the agent has no task", "say in `context` what it is to do")
        session = await self.sessions.at(worktree_path)
        title = None if session.issue else context.strip().partition("\n")[0]
        options = {"agent": tool, "runtime": None if runtime is None else str(runtime), "model": model, "title": title}
        change = {key: value for key, value in options.items() if value is not None}
        await self._link.request("PATCH", f"/api/sessions/{quote(session.id)}", change)
        await session.send(context)
        session.load(await self._link.wait_until_started(session.id))
        return await fleet.track(session, on_complete)

    async def create_pr(
        self, worktree: Worktree | Session | str | os.PathLike[str], title: str | None = None, auto_merge: bool = False
    ) -> PullRequest:
        """Mark what is committed in a workspace as ready: its pull request is no longer a draft. With `auto_merge`, add it to the
        merge queue.
        """
        if isinstance(worktree, Worktree | Session):
            session = worktree.session if isinstance(worktree, Worktree) else worktree
        else:
            session = await self.sessions.at(worktree)
        await self._wait_until_pr_opened(session)
        path = f"/api/sessions/{quote(session.id)}"
        await self._link.post(f"{path}/ready", {"title": title} if title else None)
        if auto_merge:
            await session.merge()
        await session.refresh()
        return session.pr or to_record(PullRequest, await self._link.get(f"{path}/review"))

    async def _wait_until_pr_opened(self, session: Session) -> None:
        """Wait until a session has a pull request; raise Conflict if it has no commit, or none is opened within `PR_TIMEOUT`."""
        for attempt in range(int(PR_TIMEOUT / 0.1)):
            if (await session.refresh()).pr is not None:
                return
            if attempt % 10 == 0:
                change = await session.diff()
                if change.head and not change.diff.strip() and not change.files:
                    uncommitted = ", ".join(change.uncommitted[:3])
                    reason = (
                        f"what there is was not committed ({uncommitted})" if uncommitted else "nothing was changed"
                    )
                    raise Conflict(f"{session.id} has no commit yet: {reason}", f"see ao diff {session.id}")
            await asyncio.sleep(0.1)
        raise Conflict(f"{session.id} has no pull request yet", f"see ao why {session.id}")


OrchestratorAgent = Orchestrator


def _accepts(method: Callable[..., Any], name: str) -> bool:
    """Return whether a method, which may be overridden, has this parameter or takes any keyword."""
    parameters = inspect.signature(method).parameters.values()
    return any(parameter.name == name or parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def _repository(name: str) -> str:
    """Return `owner/name` of a repository's URL or name, in lower case."""
    path = re.sub(r"^(?:https?://[^/]+/|ssh://[^/]+/|[^@/]+@[^:]+:)", "", name.strip())
    return path.removesuffix("/").removesuffix(".git").lower()
