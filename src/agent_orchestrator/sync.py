"""The Python API without `async`: the same classes and methods, each returning when it is done. For scripts and notebooks.

    from agent_orchestrator.sync import Orchestrator

    with Orchestrator(project="my-app") as orchestrator:
        orchestrator.spawn("say hello")
        orchestrator.wait(until="idle")

Everything runs on a separate event loop in a separate thread, so it also works where a loop already runs (in a notebook). Handlers
are called in threads and may use everything in this module.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import TracebackType
from typing import Any, Self, TypeVar

from agent_orchestrator.client.api import fleet, orchestrator, sessions
from agent_orchestrator.client.api.events import Event as AsyncEvent
from agent_orchestrator.client.api.events import EventData
from agent_orchestrator.client.api.records import Diff, Message, PullRequest, SessionStatus
from agent_orchestrator.client.api.tasks import Piece, Plan, Task, order_by_dependencies

Value = TypeVar("Value")


_loop_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that all objects of this module share, starting it on the first call; thread-safe."""
    with _loop_lock:
        return _start_loop()


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    """Start the shared event loop in a daemon thread, once."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ao-loop", daemon=True).start()
    return loop


def _wait(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine on the shared event loop and return its result; cancel it if the caller is interrupted."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C cancels the coroutine as well
        raise


class Session(sessions.SessionData):
    """One agent working on one task in one workspace on one branch, as of the last read (`refresh`)."""

    def __init__(self, own: sessions.Session) -> None:
        super().__init__(own.data)
        self._own = own

    def _do(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine of the asynchronous session, then copy its updated data here."""
        value = _wait(coroutine)
        self.load(self._own.data)
        return value

    def refresh(self) -> Self:
        """Read the session again."""
        self._do(self._own.refresh())
        return self

    def send(self, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to the agent, starting it again if it has exited; `interrupt` stops its turn first."""
        return self._do(self._own.send(text, interrupt=interrupt))

    def resume(self, message: str | None = None, *, max_retries: int | None = None) -> bool:
        """Continue the session with `message`; return False and do nothing if it was resumed `max_retries` times before."""
        return self._do(self._own.resume(message, max_retries=max_retries))

    def answer(self, text: str | None = None, *, decision: str | None = None, request: str | None = None) -> Message:
        """Answer the agent's question with text, or its permission request with `allow`, `always` or `deny`. `request` is the id of the
        one to answer; no other is answered.
        """
        return self._do(self._own.answer(text, decision=decision, request=request))

    def stop(self, *, keep: bool = False) -> Self:
        """Stop the session and save its work; `keep` leaves its workspace."""
        self._do(self._own.stop(keep=keep))
        return self

    def restore(self) -> Self:
        """Restore the session: same branch, same work, same conversation."""
        self._do(self._own.restore())
        return self

    def merge(self, *, strategy: str | None = None, force: bool = False) -> Self:
        """Add the session's change to the merge queue; it is merged after its checks."""
        self._do(self._own.merge(strategy=strategy, force=force))
        return self

    def diff(self) -> Diff:
        """Return the session's change against its base branch."""
        return self._do(self._own.diff())

    def log(self, tail: int | None = None) -> str:
        """Return the session's transcript, or its last `tail` lines."""
        return self._do(self._own.log(tail))

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Yield the session's events after an event number; with `follow`, also new events, without end."""
        events = aiter(self._own.events(after=after, follow=follow))

        async def next_event() -> AsyncEvent | None:
            return await anext(events, None)

        try:
            while (event := _wait(next_event())) is not None:
                yield _event(event)
        finally:
            if isinstance(events, AsyncGenerator):
                _wait(events.aclose())

    def wait(self, until: str = "over", timeout: float | None = None) -> Self:
        """Return when the session is `over`, or `idle`: its turn is finished and it waits for a person."""
        self._do(self._own.wait(until, timeout))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(EventData):
    """An event of a session or, if `session` is None, of the project."""

    session: Session | None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a session."""

    session: Session
    success: bool
    summary: str
    pr: PullRequest | None


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workspace with its branch, created before its agent is started."""

    path: str
    branch: str
    session: Session


def _event(event: AsyncEvent) -> Event:
    """Convert an asynchronous event to one of this module."""
    values = {field.name: getattr(event, field.name) for field in fields(EventData)}
    return Event(**values, session=None if event.session is None else Session(event.session))


def _result(result: fleet.Result) -> Result:
    """Convert an asynchronous result to one of this module."""
    return Result(Session(result.session), result.success, result.summary, result.pr)


def _in_thread(handler: Callable[[Any], Any], convert: Callable[[Any], Any]) -> fleet.Handler[Any]:
    """Return an asynchronous handler that converts its argument and calls `handler` with it in a thread."""

    async def call(argument: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: handler(convert(argument)))

    return call


class SessionManager:
    """All sessions of a user's daemon."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._own = sessions.SessionManager(home)

    def create(
        self,
        project_id: str | None = None,
        name: str | None = None,
        issue: str | int | None = None,
        branch: str | None = None,
        agent: str | None = None,
        runtime: str | None = None,
        workspace: str | None = None,
        prompt: str | None = None,
        *,
        title: str | None = None,
        base: str | None = None,
        model: str | None = None,
        after: Iterable[str | Session] = (),
        stack: bool = False,
        labels: Iterable[str] = (),
        files: Iterable[str] = (),
        priority: int | None = None,
        group: str | None = None,
        group_limit: int | None = None,
        defer: bool = False,
        wait: bool = True,
    ) -> Session:
        """Create a session for a task: `prompt`, `title` or an issue, as `agent_orchestrator.SessionManager.create` does."""
        created = self._own.create(
            project_id,
            name,
            issue,
            branch,
            agent,
            runtime,
            workspace,
            prompt,
            title=title,
            base=base,
            model=model,
            after=[session.id if isinstance(session, Session) else session for session in after],
            stack=stack,
            labels=labels,
            files=files,
            priority=priority,
            group=group,
            group_limit=group_limit,
            defer=defer,
            wait=wait,
        )
        return Session(_wait(created))

    def get(self, session: str) -> Session:
        """Return a session by its id, name, or a unique prefix."""
        return Session(_wait(self._own.get(session)))

    def get_status(self, session: str) -> SessionStatus:
        """Return a short status of a session."""
        return _wait(self._own.get_status(session))

    def send(self, session: str, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to a session's agent."""
        return _wait(self._own.send(session, text, interrupt=interrupt))

    def stop(self, session: str, *, keep: bool = False) -> Session:
        """Stop a session and save its work."""
        return Session(_wait(self._own.stop(session, keep=keep)))

    def restore(self, session: str) -> Session:
        """Restore a session."""
        return Session(_wait(self._own.restore(session)))

    def merge(self, session: str, *, strategy: str | None = None, force: bool = False) -> Session:
        """Add a session's change to the merge queue."""
        return Session(_wait(self._own.merge(session, strategy=strategy, force=force)))

    def wait(self, session: str, until: str = "over", timeout: float | None = None) -> Session:
        """Return when a session is `over`, or `idle`."""
        return Session(_wait(self._own.wait(session, until, timeout)))

    def at(self, path: str | os.PathLike[str]) -> Session:
        """Return the session whose workspace is this folder."""
        return Session(_wait(self._own.at(path)))

    def list(self, project_id: str | None = None) -> list[Session]:
        """Return the sessions of one project, or of all, including merged and stopped ones."""
        return [Session(session) for session in _wait(self._own.list(project_id))]


class Orchestrator:
    """Plans work for one project, starts agents for it, and calls handlers for events."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        tracker: Mapping[str, str] | None = None,
        max_parallel_agents: int | None = None,
        group: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """Take the arguments of `agent_orchestrator.Orchestrator`."""
        self._own = orchestrator.Orchestrator(
            project, tracker=tracker, max_parallel_agents=max_parallel_agents, group=group, home=home
        )
        self._own.select_agent = self.select_agent  # type: ignore[method-assign]
        self.sessions = SessionManager(home)

    def __enter__(self) -> Self:
        _wait(self._own.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _wait(self._own.close(report=error is None))

    def close(self) -> None:
        """Stop calling handlers; the sessions continue."""
        _wait(self._own.close())

    @property
    def project_id(self) -> str:
        """The project's id."""
        return self._own.project_id

    def plan(self, goal: str | None = None) -> Plan:
        """Break a goal down into tasks with the planner; without a goal, plan the tracker's open issues."""
        return _wait(self._own.plan(goal))

    def breakdown_goal(self, goal: str) -> Sequence[Piece]:
        """Return the parts of a goal, as the planner finds them; override to use other parts."""
        return _wait(self._own.breakdown_goal(goal))

    def generate_id(self) -> str:
        """Return an id for a new task."""
        return self._own.generate_id()

    def select_agent(self, task: Task) -> str | None:
        """Return the profile or agent for a task, or None for the project's default."""
        return task.profile

    def to_session_name(self, title: str) -> str:
        """Return a session name made of the first words of a title."""
        return self._own.to_session_name(title)

    def to_branch_name(self, title: str) -> str:
        """Return a branch name made of the first words of a title."""
        return self._own.to_branch_name(title)

    def spawn(self, task: Task | str, on_complete: Callable[[Result], object] | None = None, **options: Any) -> Session:
        """Create a session for a task; return when its agent runs, or when it is clear what it waits for."""
        handler = None if on_complete is None else _in_thread(on_complete, _result)
        return Session(_wait(self._own.spawn(task, handler, **options)))

    def spawn_all(
        self, tasks: Iterable[Task], on_complete: Callable[[Result], object] | None = None, **options: Any
    ) -> list[Session]:
        """Spawn tasks in the order of their dependencies."""
        return [
            self.spawn(task, on_complete, **options) for task in order_by_dependencies(tasks, self._own.session_ids)
        ]

    def run(
        self,
        goal: str | None = None,
        *,
        on_complete: Callable[[Result], object] | None = None,
        until: str = "over",
        timeout: float | None = None,
    ) -> list[Result]:
        """Plan, spawn every task in order, and wait for all of them."""
        self.spawn_all(self.plan(goal), on_complete)
        return self.wait(timeout, until=until)

    def on(self, trigger: str, session: Session | str | None, handler: Callable[[Event], object]) -> Callable[[], None]:
        """Call a handler with each event of a trigger, of one session or of all in the project; return a function that ends this."""

        async def register() -> Callable[[], None]:
            await self._own.open()
            name = session.id if isinstance(session, Session) else session
            return self._own.on(trigger, name, _in_thread(handler, _event))

        end = _wait(register())

        def unregister() -> None:
            _loop().call_soon_threadsafe(end)

        return unregister

    def on_ci_failure(self, session_id: Session | str | None, handler: Callable[[Event], object]) -> Callable[[], None]:
        """Call a handler whenever checks fail because of the session's own change; `logs` of the event holds their output."""
        return self.on("ci-failed", session_id, handler)

    def wait(self, timeout: float | None = None, *, until: str = "over") -> list[Result]:
        """Wait for all sessions that were spawned here, until they are over, or `idle`."""
        return [_result(result) for result in _wait(self._own.wait(timeout, until=until))]

    def create_worktree(
        self, issue_id: str | int | None = None, base_branch: str | None = None, *, name: str | None = None
    ) -> Worktree:
        """Create a workspace on a new branch, without an agent."""
        worktree = _wait(self._own.create_worktree(issue_id, base_branch, name=name))
        return Worktree(worktree.path, worktree.branch, Session(worktree.session))

    def spawn_agent(
        self,
        worktree_path: str | os.PathLike[str],
        runtime: str | None = None,
        tool: str | None = None,
        context: str = "",
        on_complete: Callable[[Result], object] | None = None,
        *,
        model: str | None = None,
    ) -> Session:
        """Start an agent in a workspace that `create_worktree` made; `context` is its task."""
        handler = None if on_complete is None else _in_thread(on_complete, _result)
        return Session(_wait(self._own.spawn_agent(worktree_path, runtime, tool, context, handler, model=model)))

    def create_pr(
        self, worktree: Worktree | Session | str | os.PathLike[str], title: str | None = None, auto_merge: bool = False
    ) -> PullRequest:
        """Mark what is committed in a workspace as ready: its pull request is no longer a draft."""
        workspace = worktree.path if isinstance(worktree, Worktree) else worktree
        if isinstance(workspace, Session):
            workspace = workspace.workspace_path or workspace.id
        return _wait(self._own.create_pr(workspace, title, auto_merge))
