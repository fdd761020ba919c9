"""A goal, a fleet of agents and what comes of it, from Python: plan, spawn, react, wait.

    async with Orchestrator(project="my-app", max_parallel_agents=3) as orchestrator:
        plan = await orchestrator.plan("make mypy strict pass")
        for task in plan.tasks:
            await orchestrator.spawn(task, on_complete=tell)
        await orchestrator.wait()

The sessions are the daemon's: they go on when the program ends. Handlers are called while it runs.
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
from agent_orchestrator.client.api.fleet import Fleet, Handler, Result
from agent_orchestrator.client.api.link import Json, Link
from agent_orchestrator.client.api.records import PullRequest, record
from agent_orchestrator.client.api.sessions import Session, SessionManager, task_in_hand
from agent_orchestrator.client.api.tasks import Piece, Plan, Task, in_order, pieces_of, plan_of
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError

LONGEST_NAME = 40
PR_PATIENCE = 30.0
"""Seconds in which the daemon has seen a commit and opened its pull request."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workspace with its branch, made for an agent that is still to be started."""

    path: str
    branch: str
    session: Session


class Orchestrator:
    """Plans work for one project, has agents do it, and reacts to what they meet. Subclass it to plan or spawn otherwise."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        tracker: Mapping[str, str] | None = None,
        max_parallel_agents: int | None = None,
        group: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """`project`: its id or its folder; else the one that `tracker` (`{"type": "github", "repo": "myorg/myrepo"}`) names; else the
        one of the working directory. At most `max_parallel_agents` of the sessions that it makes work at once; programs that
        give the same `group` share that limit. `home`: `$AO_HOME`."""
        if max_parallel_agents is not None and max_parallel_agents < 1:
            raise UsageError(f"max_parallel_agents is {max_parallel_agents}", "let at least one work")
        self.max_parallel_agents = max_parallel_agents
        self.group = group or f"api-{secrets.token_hex(4)}"
        self.sessions = SessionManager(link=Link(home))
        """The sessions of the same daemon."""
        self._link = Link(home)
        self._wanted, self._tracker = project, tracker
        self._project: str | None = None
        self._fleet: Fleet | None = None
        self._opening = asyncio.Lock()
        self.made: dict[str, str] = {}
        """Sessions by the id and the title of the task they were made for."""

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(report=error is None)

    async def open(self) -> Fleet:
        """Find the project and begin to follow its events; done by itself when it is first needed."""
        async with self._opening:
            if self._fleet is None:
                self._project = await self._find_project()
                self._fleet = Fleet(self._link, self._project, await self._link.sequence())
        return self._fleet

    async def close(self, *, report: bool = True) -> None:
        """Call no handler any more; the sessions go on. Raises what handlers raised and nobody was told of."""
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
        if self._wanted is not None:
            return await self._named(self._wanted)
        repo = (self._tracker or {}).get("repo")
        if repo is None:
            return str((await self._link.post("/api/projects", {"path": str(Path.cwd())}))["id"])
        await self._link.get(
            "/api/sessions"
        )  # registers what is configured in the working directory, as any command does
        known = (await self._link.get("/api/projects"))["projects"]
        found = [one["id"] for one in known if _repository(one.get("repo") or "") == _repository(repo)]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise UsageError(f"{repo} is the repository of {', '.join(found)}", "name one: project=…")
        host = {"gitlab": "gitlab.com"}.get((self._tracker or {}).get("type", ""), "github.com")
        remedy = (
            f"register it: ao start https://{host}/{repo}, or write `repo: {repo}` into its agent-orchestrator.yaml"
        )
        raise NotFound(f"no project has the repository {repo}", remedy)

    async def _projects(self) -> list[Json]:
        await self._link.get(
            "/api/sessions"
        )  # registers what is configured in the working directory, as any command does
        found: list[Json] = (await self._link.get("/api/projects"))["projects"]
        return found

    async def _named(self, wanted: str | os.PathLike[str]) -> str:
        name = os.fspath(wanted)
        known = [one["id"] for one in await self._projects()]
        if isinstance(wanted, str) and name in known:
            return name
        folder = Path(name).expanduser().absolute()
        if folder.is_dir():
            return str((await self._link.post("/api/projects", {"path": str(folder)}))["id"])
        remedy = f"known: {', '.join(known)}" if known else "register one: ao start PATH"
        raise NotFound(f"no project {name}", remedy)

    # -- planning ------------------------------------------------------------------------------------------------------

    async def plan(self, goal: str | None = None) -> Plan:
        """Have the planner break a goal down into tasks; without a goal, plan the tracker's open issues."""
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
        """The goal's parts, each with `title`, `description`, `deps` (titles of others) and `effort`; by the planner, unless overridden."""
        return pieces_of(await Orchestrator.plan(self, goal))

    def generate_id(self) -> str:
        """An id for a new task; has the form of an issue's key."""
        return f"TASK-{secrets.randbelow(900_000_000) + 100_000_000}"

    # -- spawning ------------------------------------------------------------------------------------------------------

    async def spawn(self, task: Task | str, on_complete: Handler[Result] | None = None, **options: Any) -> Session:
        """Have an agent do a task; returns when it runs, or it is clear what it waits for.

        It starts when those that it depends on are done. `on_complete` is called once, when its agent is done or has ended.
        `options` are those of `SessionManager.create` and win over what the task says."""
        fleet = await self.open()
        task = Task(self.generate_id(), task) if isinstance(task, str) else task
        session = await self.sessions.create(**{**self._request(task), **options})
        self._note(task, session)
        await fleet.track(session, on_complete)
        return session

    async def spawn_all(
        self, tasks: Iterable[Task], on_complete: Handler[Result] | None = None, **options: Any
    ) -> list[Session]:
        """Spawn tasks in the order of their dependencies."""
        fleet = await self.open()
        found = []
        for task in in_order(tasks, self.made):
            token = task_in_hand.set(self._request(task))
            try:
                told = {"on_complete": on_complete} if on_complete and _takes(self.spawn, "on_complete") else {}
                made: object = await self.spawn(task, **told, **options)
            finally:
                task_in_hand.reset(token)
            session = made if isinstance(made, Session) else await self.sessions.get(str(made))
            session = await fleet.track(session, on_complete)
            self._note(task, session)
            found.append(session)
        return found

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
        after = []
        for name in task.dependencies:
            if name not in self.made:
                raise UsageError(
                    f"{task.title!r} depends on {name!r}, which has no session yet",
                    "spawn that first, or use spawn_all()",
                )
            after.append(self.made[name])
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
            **self._shared(),
        }

    def _shared(self) -> dict[str, Any]:
        """What holds its sessions together, if anything is to."""
        return (
            {} if self.max_parallel_agents is None else {"group": self.group, "group_limit": self.max_parallel_agents}
        )

    def _note(self, task: Task, session: Session) -> None:
        self.made[task.id] = self.made[task.title] = session.id

    def select_agent(self, task: Task) -> str | None:
        """The profile or agent for a task; none: the project's own. The one that the plan suggests, unless overridden."""
        return task.profile

    def to_session_name(self, title: str) -> str:
        """A session's name made of a title's first words."""
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        short = ""
        for word in re.findall(r"[a-z0-9]+", plain):
            if short and len(short) + 1 + len(word) > LONGEST_NAME:
                break
            short = f"{short}-{word}" if short else word[:LONGEST_NAME]
        return short or "task"

    def to_branch_name(self, title: str) -> str:
        """A branch's name made of a title's first words."""
        return f"feature/{self.to_session_name(title)}"

    # -- reacting and waiting ------------------------------------------------------------------------------------------

    def on(self, trigger: str, session: Session | str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler with each `Event` of that trigger, of one session or of all in the project; returns what ends that.

        A trigger is an event's type or the name of a reaction's trigger. Of a session that was spawned here, what happened before
        counts too."""
        if self._fleet is None:
            raise UsageError("the orchestrator is not open", "use it as `async with`, or await its open()")
        return self._fleet.on(trigger, session.id if isinstance(session, Session) else session, handler)

    def on_ci_failure(self, session_id: Session | str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler whenever checks fail by a session's own change; `logs` of what it gets has their output."""
        return self.on("ci-failed", session_id, handler)

    async def wait(self, timeout: float | None = None, *, until: str = "over") -> list[Result]:
        """Wait for all sessions that were spawned here: until they are over, or `idle` (their turns finished, they wait for somebody).

        Returns what came of each, in the order they were spawned. Raises what a handler raised as `HandlerError`, as soon as it
        did; `TimedOut` after `timeout` seconds. The sessions go on in either case."""
        return await (await self.open()).wait(timeout, until)

    # -- step by step --------------------------------------------------------------------------------------------------

    async def create_worktree(
        self, issue_id: str | int | None = None, base_branch: str | None = None, *, name: str | None = None
    ) -> Worktree:
        """Make a workspace on a branch of its own, for an issue or of a name, without an agent yet; returns when it is there."""
        await self.open()
        name = name or (None if issue_id is not None else f"worktree-{secrets.token_hex(3)}")
        session = await self.sessions.create(
            self.project_id, name, issue_id, base=base_branch, defer=True, **self._shared()
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
        """Start an agent in a workspace that `create_worktree` made; `context` is what it is to do."""
        fleet = await self.open()
        if not context.strip():
            raise UsageError("the agent has no task", "say in `context` what it is to do")
        session = await self.sessions.at(worktree_path)
        title = None if session.issue else context.strip().partition("\n")[0]
        wanted = {"agent": tool, "runtime": None if runtime is None else str(runtime), "model": model, "title": title}
        change = {key: value for key, value in wanted.items() if value is not None}
        await self._link.request("PATCH", f"/api/sessions/{quote(session.id)}", change)
        await session.send(context)
        session.load(await self._link.started(session.id))
        return await fleet.track(session, on_complete)

    async def create_pr(
        self, worktree: Worktree | Session | str | os.PathLike[str], title: str | None = None, auto_merge: bool = False
    ) -> PullRequest:
        """Say that what is committed in a workspace is ready: its pull request is no draft any more. With `auto_merge` it may land."""
        if isinstance(worktree, Worktree | Session):
            session = worktree.session if isinstance(worktree, Worktree) else worktree
        else:
            session = await self.sessions.at(worktree)
        await self._until_opened(session)
        path = f"/api/sessions/{quote(session.id)}"
        await self._link.post(f"{path}/ready", {"title": title} if title else None)
        if auto_merge:
            await session.merge()
        await session.refresh()
        return session.pr or record(PullRequest, await self._link.get(f"{path}/review"))

    async def _until_opened(self, session: Session) -> None:
        for number in range(int(PR_PATIENCE / 0.1)):
            if (await session.refresh()).pr is not None:
                return
            if number % 10 == 0:
                change = await session.diff()
                if change.head and not change.diff.strip() and not change.files:
                    left = ", ".join(change.uncommitted[:3])
                    why = f"what there is was not committed ({left})" if left else "nothing was changed"
                    raise Conflict(f"{session.id} has no commit yet: {why}", f"see ao diff {session.id}")
            await asyncio.sleep(0.1)
        raise Conflict(f"{session.id} has no pull request yet", f"see ao why {session.id}")


OrchestratorAgent = Orchestrator


def _takes(method: Callable[..., Any], name: str) -> bool:
    """Has a method, which may be somebody's own, this parameter?"""
    parameters = inspect.signature(method).parameters.values()
    return any(one.name == name or one.kind == one.VAR_KEYWORD for one in parameters)


def _repository(name: str) -> str:
    """`owner/name` of a repository, however it is written."""
    path = re.sub(r"^(?:https?://[^/]+/|ssh://[^/]+/|[^@/]+@[^:]+:)", "", name.strip())
    return path.removesuffix("/").removesuffix(".git").lower()
