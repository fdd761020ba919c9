"""The sessions that a program tracks: follows the daemon's events, calls handlers, waits for the end."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_orchestrator.base.http_client import quote
from agent_orchestrator.client.api.connection import DaemonConnection, Json, TimedOut
from agent_orchestrator.client.api.events import CI_FAILED, STATUS_TRIGGERS, Event, FailedCheck, triggers_of
from agent_orchestrator.client.api.records import PullRequest
from agent_orchestrator.client.api.sessions import (
    ACKNOWLEDGE_TIMEOUT,
    SETTLE_SECONDS,
    Session,
    check_until,
    events_page,
    has_unread_message,
)
from agent_orchestrator.errors import AoError, NotFound

Argument = TypeVar("Argument")
Handler = Callable[[Argument], Awaitable[Any] | Any]
"""A function that takes one argument, asynchronous or not."""

MAX_REMEMBERED_EVENTS = 2000
"""How many events of a session are kept for handlers that are registered later."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a session."""

    session: Session
    success: bool
    summary: str
    """What the agent reported as done, else why it ended."""
    pr: PullRequest | None


class HandlerError(AoError):
    """Raised when a handler raised an exception, which is its cause and the first of `errors`."""

    category = "handler"

    def __init__(self, what: str, errors: list[BaseException]) -> None:
        first = errors[0]
        text = f"the handler of {what} failed: {type(first).__name__}: {first}"
        super().__init__(" ".join(text.split()) + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""))
        self.errors = errors
        self.__cause__ = first


@dataclass(eq=False, slots=True)
class _Subscription:
    """A handler with the trigger and the session it was registered for."""

    trigger: str
    session: str | None
    handler: Handler[Any]
    handled: set[int | str] = field(default_factory=set)
    """The events the handler was called with; for failed checks the commits."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the data of an event is fetched, so that the handler is called in the order of events."""

    def matches(self, trigger: str, session: str | None) -> bool:
        """Return whether the handler is to be called for this trigger of this session."""
        return trigger == self.trigger and self.session in (None, session)


@dataclass(slots=True)
class _TrackedSession:
    """A session that is waited for."""

    session: Session
    on_complete: Handler[Result] | None = None
    done: Json | None = None
    """The event that reported the agent as done."""
    is_reported: bool = False
    quiet_since: float | None = None
    message_since: float | None = None
    """The loop time since when the session is quiet although a message is waiting to be acknowledged."""


class SessionTracker:
    """Follows the events of one project until it is closed or its loop ends."""

    def __init__(self, link: DaemonConnection, project: str, after: int) -> None:
        self._link, self._project, self._after = link, project, after
        self._tracked: dict[str, _TrackedSession] = {}
        self._sessions: dict[str, Session] = {}
        self._history: dict[str, dict[int, Json]] = defaultdict(dict)
        self._subscriptions: list[_Subscription] = []
        self._statuses: dict[str, str] = {}
        self._refreshing: set[str] = set()
        self._refresh_again: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handler_errors: list[tuple[str, BaseException]] = []
        self._changed = asyncio.Event()
        self._follower = asyncio.get_running_loop().create_task(self._follow())

    # -- called by the program -----------------------------------------------------------------------------------------

    async def track(self, session: Session, on_complete: Handler[Result] | None = None) -> Session:
        """Wait for this session too; return the object that represents it here."""
        tracked = self._tracked.get(session.id)
        if tracked is None:
            session = self._sessions.setdefault(session.id, session)
            tracked = self._tracked[session.id] = _TrackedSession(session, on_complete)
            for item in await self._fetch_history(session.id):
                self._remember(item)
        elif on_complete is not None and tracked.on_complete is None:
            tracked.on_complete, tracked.is_reported = on_complete, False
        self._schedule_refresh(session.id, None)
        return tracked.session

    def on(self, trigger: str, session: str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler with events of a trigger, for tracked sessions also with earlier ones; return a function that ends this."""
        subscription = _Subscription(trigger, session, handler)
        self._subscriptions.append(subscription)
        for name in self._tracked if session is None else (session,):
            for item in self._remembered(name):
                if trigger in triggers_of(item):
                    self._start_task(self._deliver, subscription, trigger, item)
            if STATUS_TRIGGERS.get(self._statuses.get(name, "")) == trigger:
                self._start_task(self._deliver, subscription, trigger, self._remembered(name)[-1])

        def unsubscribe() -> None:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

        return unsubscribe

    async def wait(self, timeout: float | None, until: str) -> list[Result]:
        """Wait until all tracked sessions are over, or quiet, and every handler has returned; return the results."""
        check_until(until)
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        is_refreshed = False
        while True:
            self._changed.clear()
            self.raise_handler_errors()
            if self._follower.done() and not self._follower.cancelled():
                self._follower.result()
            unfinished = self._unfinished(until, loop.time())
            if not unfinished and not self._tasks:
                if is_refreshed:
                    return [self._result(tracked) for tracked in self._tracked.values()]
                is_refreshed = True
                for tracked in self._tracked.values():
                    if not tracked.session.over:  # a handler may have changed something that no event has reported yet
                        self._schedule_refresh(tracked.session.id, None)
                continue
            is_refreshed = is_refreshed and not unfinished
            if end is not None and loop.time() >= end:
                waiting = ", ".join(tracked.session.id for tracked in unfinished[:3]) + (
                    "…" if len(unfinished) > 3 else ""
                )
                raise TimedOut(
                    f"{waiting or 'a handler'} did not end within {timeout:g} s", "give it longer, or look: ao status"
                )
            settling = SETTLE_SECONDS / 4 if any(tracked.quiet_since is not None for tracked in unfinished) else 5.0
            pause = settling if end is None else max(0.0, min(settling, end - loop.time()))
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
            except TimeoutError:
                continue

    def raise_handler_errors(self) -> None:
        """Raise HandlerError if handlers have raised since the last call."""
        failed, self._handler_errors = self._handler_errors, []
        if failed:
            raise HandlerError(failed[0][0], [error for _, error in failed])

    async def close(self, *, report: bool) -> None:
        """Stop following events."""
        for task in (self._follower, *self._tasks):
            task.cancel()
        await asyncio.gather(self._follower, *self._tasks, return_exceptions=True)
        if report:
            self.raise_handler_errors()

    # -- events --------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Dispatch the project's events, and refresh all tracked sessions whenever the stream starts."""
        try:
            async with aclosing(self._link.follow_events(self._after, project=self._project)) as stream:
                async for item in stream:
                    if item is None:  # the stream starts or restarts: events may have been missed
                        for session in self._tracked:
                            self._schedule_refresh(session, None)
                    else:
                        self._dispatch(item)
        finally:
            self._changed.set()

    def _dispatch(self, item: Json) -> None:
        """Call the handlers of an event and refresh its session."""
        session = item.get("session")
        if session in self._tracked:
            self._remember(item)
        for trigger in triggers_of(item):
            for subscription in self._subscriptions:
                if subscription.matches(trigger, session):
                    self._start_task(self._deliver, subscription, trigger, item)
        if session is not None and item["type"] != "agent-output":
            self._schedule_refresh(session, item)

    def _remember(self, item: Json) -> None:
        """Keep an event of a tracked session. They may come in any order: its history is read while new ones arrive."""
        if item["type"] == "agent-output":
            return
        history = self._history[item["session"]]
        history[item["seq"]] = item
        if len(history) > MAX_REMEMBERED_EVENTS:
            del history[min(history)]
        tracked = self._tracked[item["session"]]
        done = item["type"] == "agent-done" or (item["type"] == "agent-exited" and item["data"].get("code") == 0)
        if done and (tracked.done is None or (item["type"] == "agent-done" and item["seq"] > tracked.done["seq"])):
            tracked.done = item

    def _remembered(self, session: str) -> list[Json]:
        """Return the events kept for a session, in order."""
        return [item for _, item in sorted(self._history.get(session, {}).items())]

    async def _fetch_history(self, session: str) -> list[Json]:
        """Return all past events of a session."""
        events: list[Json] = []
        while page := await events_page(self._link, session, events[-1]["seq"] if events else 0):
            events += page
        return events

    def _schedule_refresh(self, session: str, item: Json | None) -> None:
        """Refresh a session unless nothing depends on it; one refresh at a time, and one more if something happened meanwhile."""
        is_needed = session in self._tracked or any(
            subscription.trigger in STATUS_TRIGGERS.values() and subscription.session in (None, session)
            for subscription in self._subscriptions
        )
        if not is_needed:
            return
        if session in self._refreshing:
            self._refresh_again.add(session)
            return
        self._refreshing.add(session)
        self._start_task(self._refresh, session, item)

    async def _refresh(self, name: str, item: Json | None) -> None:
        """Fetch a session and update its status, again as long as a refresh was requested meanwhile."""
        try:
            while True:
                self._refresh_again.discard(name)
                try:
                    session = await self._fetch(name)
                except NotFound:
                    return
                has_message = name in self._tracked and session.quiet and await has_unread_message(self._link, name)
                self._update_status(session, item, has_message=has_message)
                if name not in self._refresh_again:
                    return
        finally:
            self._refreshing.discard(name)
            self._changed.set()

    async def _fetch(self, name: str) -> Session:
        """Fetch a session and return the one object that represents it here."""
        data = await self._link.get_if_running(f"/api/sessions/{quote(name)}")
        session = self._sessions.setdefault(name, Session(self._link, data))
        session.load(data)
        return session

    def _update_status(self, session: Session, item: Json | None, *, has_message: bool) -> None:
        """Call the handlers of the status that a session entered, and record since when it is quiet, or complete it."""
        previous, self._statuses[session.id] = self._statuses.get(session.id), session.status
        trigger = STATUS_TRIGGERS.get(session.status)
        if trigger and previous != session.status and (item or self._history.get(session.id)):
            last = item or self._remembered(session.id)[-1]
            for subscription in self._subscriptions:
                if subscription.matches(trigger, session.id):
                    self._start_task(self._deliver, subscription, trigger, last)
        tracked = self._tracked.get(session.id)
        if tracked is None:
            return
        now = asyncio.get_running_loop().time()
        tracked.quiet_since = (tracked.quiet_since or now) if session.quiet else None
        tracked.message_since = (tracked.message_since or now) if has_message else None
        if tracked.done is not None or session.over:
            self._complete(tracked)

    # -- handlers ------------------------------------------------------------------------------------------------------

    async def _deliver(self, subscription: _Subscription, trigger: str, item: Json) -> None:
        """Call a handler with an event unless it was called with it already."""
        if item["seq"] in subscription.handled and trigger not in STATUS_TRIGGERS.values():
            return
        subscription.handled.add(item["seq"])
        async with subscription.lock:
            event = await self._event(subscription, trigger, item)
        if event is not None:
            await self._call_handler(
                f"{trigger} of {item.get('session') or item.get('project')}", subscription.handler, event
            )

    async def _event(self, subscription: _Subscription, trigger: str, item: Json) -> Event | None:
        """Return the event that a handler is called with, or None if it was called for these failed checks already."""
        session = await self._fetch(item["session"]) if item.get("session") else None
        checks: tuple[FailedCheck, ...] = ()
        if trigger == CI_FAILED:
            assert session is not None
            checks = await self._failed_checks(session)
            if not checks or f"{session.id}:{session.head}" in subscription.handled:
                return None
            subscription.handled.add(f"{session.id}:{session.head}")
        return Event.from_json(item, session, trigger, checks)

    async def _failed_checks(self, session: Session) -> tuple[FailedCheck, ...]:
        """Return the checks that fail because of the session's own change, with the relevant part of their output."""
        view: Mapping[str, Any] = await self._link.get_if_running(f"/api/sessions/{quote(session.id)}/review")
        return tuple(FailedCheck(check["name"], check["state"], check["summary"]) for check in view["failing"])

    def _complete(self, tracked: _TrackedSession) -> None:
        """Call the `on_complete` handler of a session, once."""
        if not tracked.is_reported:
            tracked.is_reported = True
            if tracked.on_complete is not None:
                self._start_task(
                    self._call_handler, f"the end of {tracked.session.id}", tracked.on_complete, self._result(tracked)
                )

    async def _call_handler(self, what: str, handler: Handler[Any], argument: Any) -> None:
        """Call a handler and record the exception that it raises."""
        try:
            answer = handler(argument)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:
            self._handler_errors.append((what, error))

    def _start_task(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run an asynchronous function in a task that `wait` waits for."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run(function, arguments))
        self._tasks.add(task)

        def remove_task(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            self._changed.set()

        task.add_done_callback(remove_task)

    async def _run(self, function: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
        """Run an asynchronous function and record the daemon's error that it raises."""
        try:
            await function(*arguments)
        except AoError as error:
            self._handler_errors.append(("events", error))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _unfinished(self, until: str, now: float) -> list[_TrackedSession]:
        """Return the sessions that are not over, or not `idle`: quiet for `SETTLE_SECONDS`, without a waiting message."""
        unfinished = []
        for tracked in self._tracked.values():
            settled = tracked.quiet_since is not None and now - tracked.quiet_since >= SETTLE_SECONDS
            settled &= tracked.message_since is None or now - tracked.message_since >= ACKNOWLEDGE_TIMEOUT
            if tracked.session.over or (until == "idle" and settled):
                self._complete(tracked)
            else:
                unfinished.append(tracked)
        return unfinished

    def _result(self, tracked: _TrackedSession) -> Result:
        """Return the result of a session."""
        session, done = tracked.session, tracked.done
        success = session.status == "merged" or (done is not None and session.status not in ("failed", "closed"))
        summary = str(((done or {}).get("data") or {}).get("summary") or "")
        return Result(session, success, summary or session.waiting_for or session.status, session.pr)
