"""The Python API without `async`: the same names and methods, each returning when it is done. For scripts and notebooks.

    from agent_orchestrator.sync import Orchestrator

    with Orchestrator(project="my-app") as orchestrator:
        orchestrator.spawn("say hello")
        orchestrator.wait(until="idle")

All of it runs on an event loop of its own in a thread of its own, so that a loop which runs already (a notebook's) does not matter.
Handlers are called in threads and may use everything here.
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
from agent_orchestrator.client.api.events import Happened
from agent_orchestrator.client.api.records import Diff, Message, PullRequest, SessionStatus
from agent_orchestrator.client.api.tasks import Piece, Plan, Task, in_order

Value = TypeVar("Value")


_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """One for all, whichever thread asks first."""
    with _starting:
        return _started()


@cache
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ao-loop", daemon=True).start()
    return loop


def _wait(work: Coroutine[Any, Any, Value]) -> Value:
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C ends what was waited for, too
        raise


class Session(sessions.SessionData):
    """One agent working on one task in one workspace on one branch: as it was when it was last looked at (`refresh`)."""

    def __init__(self, own: sessions.Session) -> None:
        super().__init__(own.data)
        self._own = own

    def _do(self, work: Coroutine[Any, Any, Value]) -> Value:
        value = _wait(work)
        self.load(self._own.data)
        return value

    def refresh(self) -> Self:
        """Look at it again."""
        self._do(self._own.refresh())
        return self

    def send(self, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to its agent, which is started again for it where it has ended; `interrupt` stops its turn first."""
        return self._do(self._own.send(text, interrupt=interrupt))

    def resume(self, message: str | None = None, *, max_retries: int | None = None) -> bool:
        """Have it go on, told `message`; false, and nothing is done, if that was so `max_retries` times before."""
        return self._do(self._own.resume(message, max_retries=max_retries))

    def answer(self, text: str | None = None, *, decision: str | None = None, request: str | None = None) -> Message:
        """Answer what its agent asks: with text, or with `allow`, `always` or `deny`; nothing but `request`, if that is given."""
        return self._do(self._own.answer(text, decision=decision, request=request))

    def stop(self, *, keep: bool = False) -> Self:
        """Stop it, its work saved; `keep` leaves its workspace."""
        self._do(self._own.stop(keep=keep))
        return self

    def restore(self) -> Self:
        """Bring it back: same branch, same work, same conversation."""
        self._do(self._own.restore())
        return self

    def merge(self, *, strategy: str | None = None, force: bool = False) -> Self:
        """Say that its change may land: through the merge queue, after its checks."""
        self._do(self._own.merge(strategy=strategy, force=force))
        return self

    def diff(self) -> Diff:
        """Its change against its base."""
        return self._do(self._own.diff())

    def log(self, tail: int | None = None) -> str:
        """Its transcript, or the last lines of it."""
        return self._do(self._own.log(tail))

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """What happened to it after an event's number; with `follow` also what happens, without end."""
        events = aiter(self._own.events(after=after, follow=follow))

        async def following() -> AsyncEvent | None:
            return await anext(events, None)

        try:
            while (event := _wait(following())) is not None:
                yield _event(event)
        finally:
            if isinstance(events, AsyncGenerator):
                _wait(events.aclose())

    def wait(self, until: str = "over", timeout: float | None = None) -> Self:
        """Return when it is `over`, or `idle`: its turn finished and it waits for somebody."""
        self._do(self._own.wait(until, timeout))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Happened):
    """Something that happened, to a session or, without one, to the project."""

    session: Session | None


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a session."""

    session: Session
    success: bool
    summary: str
    pr: PullRequest | None


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workspace with its branch, made for an agent that is still to be started."""

    path: str
    branch: str
    session: Session


def _event(event: AsyncEvent) -> Event:
    given = {field.name: getattr(event, field.name) for field in fields(Happened)}
    return Event(**given, session=None if event.session is None else Session(event.session))


def _result(result: fleet.Result) -> Result:
    return Result(Session(result.session), result.success, result.summary, result.pr)


def _in_thread(handler: Callable[[Any], Any], shown: Callable[[Any], Any]) -> fleet.Handler[Any]:
    async def call(given: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: handler(shown(given)))

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
        """Make a session for a task: `prompt`, `title`, or an issue in any of its forms; as `agent_orchestrator.SessionManager.create`."""
        made = self._own.create(
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
            after=[one.id if isinstance(one, Session) else one for one in after],
            stack=stack,
            labels=labels,
            files=files,
            priority=priority,
            group=group,
            group_limit=group_limit,
            defer=defer,
            wait=wait,
        )
        return Session(_wait(made))

    def get(self, session: str) -> Session:
        """One session: by its id, name, or a unique beginning."""
        return Session(_wait(self._own.get(session)))

    def get_status(self, session: str) -> SessionStatus:
        """A session in short."""
        return _wait(self._own.get_status(session))

    def send(self, session: str, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to a session's agent."""
        return _wait(self._own.send(session, text, interrupt=interrupt))

    def stop(self, session: str, *, keep: bool = False) -> Session:
        """Stop a session, its work saved."""
        return Session(_wait(self._own.stop(session, keep=keep)))

    def restore(self, session: str) -> Session:
        """Bring a session back."""
        return Session(_wait(self._own.restore(session)))

    def merge(self, session: str, *, strategy: str | None = None, force: bool = False) -> Session:
        """Say that a session's change may land."""
        return Session(_wait(self._own.merge(session, strategy=strategy, force=force)))

    def wait(self, session: str, until: str = "over", timeout: float | None = None) -> Session:
        """Return when a session is `over`, or `idle`."""
        return Session(_wait(self._own.wait(session, until, timeout)))

    def at(self, path: str | os.PathLike[str]) -> Session:
        """The session whose workspace is this folder."""
        return Session(_wait(self._own.at(path)))

    def list(self, project_id: str | None = None) -> list[Session]:
        """All sessions, merged and stopped ones included; of one project, or of all."""
        return [Session(one) for one in _wait(self._own.list(project_id))]


class Orchestrator:
    """Plans work for one project, has agents do it, and reacts to what they meet."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        tracker: Mapping[str, str] | None = None,
        max_parallel_agents: int | None = None,
        group: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """As `agent_orchestrator.Orchestrator`."""
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
        """Call no handler any more; the sessions go on."""
        _wait(self._own.close())

    @property
    def project_id(self) -> str:
        """The project's id."""
        return self._own.project_id

    def plan(self, goal: str | None = None) -> Plan:
        """Have the planner break a goal down into tasks; without a goal, plan the tracker's open issues."""
        return _wait(self._own.plan(goal))

    def breakdown_goal(self, goal: str) -> Sequence[Piece]:
        """The goal's parts, by the planner unless overridden."""
        return _wait(self._own.breakdown_goal(goal))

    def generate_id(self) -> str:
        """An id for a new task."""
        return self._own.generate_id()

    def select_agent(self, task: Task) -> str | None:
        """The profile or agent for a task; none: the project's own."""
        return task.profile

    def to_session_name(self, title: str) -> str:
        """A session's name made of a title's first words."""
        return self._own.to_session_name(title)

    def to_branch_name(self, title: str) -> str:
        """A branch's name made of a title's first words."""
        return self._own.to_branch_name(title)

    def spawn(self, task: Task | str, on_complete: Callable[[Result], object] | None = None, **options: Any) -> Session:
        """Have an agent do a task; returns when it runs, or it is clear what it waits for."""
        told = None if on_complete is None else _in_thread(on_complete, _result)
        return Session(_wait(self._own.spawn(task, told, **options)))

    def spawn_all(
        self, tasks: Iterable[Task], on_complete: Callable[[Result], object] | None = None, **options: Any
    ) -> list[Session]:
        """Spawn tasks in the order of their dependencies."""
        return [self.spawn(task, on_complete, **options) for task in in_order(tasks, self._own.made)]

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
        """Call a handler with each event of that trigger, of one session or of all in the project; returns what ends that."""

        async def register() -> Callable[[], None]:
            await self._own.open()
            name = session.id if isinstance(session, Session) else session
            return self._own.on(trigger, name, _in_thread(handler, _event))

        end = _wait(register())

        def over() -> None:
            _loop().call_soon_threadsafe(end)

        return over

    def on_ci_failure(self, session_id: Session | str | None, handler: Callable[[Event], object]) -> Callable[[], None]:
        """Call a handler whenever checks fail by a session's own change; `logs` of what it gets has their output."""
        return self.on("ci-failed", session_id, handler)

    def wait(self, timeout: float | None = None, *, until: str = "over") -> list[Result]:
        """Wait for all sessions that were spawned here, until they are over, or `idle`."""
        return [_result(one) for one in _wait(self._own.wait(timeout, until=until))]

    def create_worktree(
        self, issue_id: str | int | None = None, base_branch: str | None = None, *, name: str | None = None
    ) -> Worktree:
        """Make a workspace on a branch of its own, without an agent yet."""
        made = _wait(self._own.create_worktree(issue_id, base_branch, name=name))
        return Worktree(made.path, made.branch, Session(made.session))

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
        """Start an agent in a workspace that `create_worktree` made; `context` is what it is to do."""
        told = None if on_complete is None else _in_thread(on_complete, _result)
        return Session(_wait(self._own.spawn_agent(worktree_path, runtime, tool, context, told, model=model)))

    def create_pr(
        self, worktree: Worktree | Session | str | os.PathLike[str], title: str | None = None, auto_merge: bool = False
    ) -> PullRequest:
        """Say that what is committed in a workspace is ready: its pull request is no draft any more."""
        where = worktree.path if isinstance(worktree, Worktree) else worktree
        if isinstance(where, Session):
            where = where.workspace_path or where.id
        return _wait(self._own.create_pr(where, title, auto_merge))
