"""The sessions that one program cares for: followed by the daemon's events, handlers called, the end waited for."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_orchestrator.base.http_client import quote
from agent_orchestrator.client.api.events import CI_FAILED, STATUS_TRIGGERS, Event, FailedCheck, triggers_of
from agent_orchestrator.client.api.link import Json, Link, TimedOut
from agent_orchestrator.client.api.records import PullRequest
from agent_orchestrator.client.api.sessions import SETTLES, TAKEN_UP_WITHIN, Session, check_until, has_mail, past
from agent_orchestrator.errors import AoError, NotFound

Given = TypeVar("Given")
Handler = Callable[[Given], Awaitable[Any] | Any]
"""A function, asynchronous or not."""

REMEMBERED = 2000
"""Events of a session that are kept for handlers which are registered later."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a session."""

    session: Session
    success: bool
    summary: str
    """What its agent said it did, else why it ended."""
    pr: PullRequest | None


class HandlerError(AoError):
    """A handler raised an exception: that is its cause, and the first of `errors`."""

    category = "handler"

    def __init__(self, what: str, errors: list[BaseException]) -> None:
        first = errors[0]
        text = f"the handler of {what} failed: {type(first).__name__}: {first}"
        super().__init__(" ".join(text.split()) + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""))
        self.errors = errors
        self.__cause__ = first


@dataclass(eq=False, slots=True)
class _Subscription:
    trigger: str
    session: str | None
    handler: Handler[Any]
    told: set[int | str] = field(default_factory=set)
    """Events that it was called with; for failing checks the commits."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held until what an event is about has been looked up: it is called in the order of events."""

    def wants(self, trigger: str, session: str | None) -> bool:
        return trigger == self.trigger and self.session in (None, session)


@dataclass(slots=True)
class _Tracked:
    """A session that is waited for."""

    session: Session
    on_complete: Handler[Result] | None = None
    done: Json | None = None
    """The event by which its agent was done."""
    told: bool = False
    quiet_since: float | None = None
    mail_since: float | None = None
    """Since when it is quiet although a message waits to be taken up."""


class Fleet:
    """Follows one project's events for as long as its loop runs, or until it is closed."""

    def __init__(self, link: Link, project: str, after: int) -> None:
        self._link, self._project, self._after = link, project, after
        self._tracked: dict[str, _Tracked] = {}
        self._known: dict[str, Session] = {}
        self._history: dict[str, dict[int, Json]] = defaultdict(dict)
        self._subscriptions: list[_Subscription] = []
        self._statuses: dict[str, str] = {}
        self._looking: set[str] = set()
        self._again: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: list[tuple[str, BaseException]] = []
        self._changed = asyncio.Event()
        self._follower = asyncio.get_running_loop().create_task(self._follow())

    # -- what a program asks for ---------------------------------------------------------------------------------------

    async def track(self, session: Session, on_complete: Handler[Result] | None = None) -> Session:
        """Wait for this session too; returns the object that stands for it here."""
        known = self._tracked.get(session.id)
        if known is None:
            session = self._known.setdefault(session.id, session)
            known = self._tracked[session.id] = _Tracked(session, on_complete)
            for item in await self._past(session.id):
                self._remember(item)
        elif on_complete is not None and known.on_complete is None:
            known.on_complete, known.told = on_complete, False
        self._look(session.id, None)
        return known.session

    def on(self, trigger: str, session: str | None, handler: Handler[Any]) -> Callable[[], None]:
        """Call a handler with events of a trigger; of tracked sessions also with those of before."""
        one = _Subscription(trigger, session, handler)
        self._subscriptions.append(one)
        for name in self._tracked if session is None else (session,):
            for item in self._past_of(name):
                if trigger in triggers_of(item):
                    self._start(self._tell, one, trigger, item)
            if STATUS_TRIGGERS.get(self._statuses.get(name, "")) == trigger:
                self._start(self._tell, one, trigger, self._past_of(name)[-1])

        def end() -> None:
            if one in self._subscriptions:
                self._subscriptions.remove(one)

        return end

    async def wait(self, timeout: float | None, until: str) -> list[Result]:
        """Until all that are tracked are over, or quiet, and every handler has returned."""
        check_until(until)
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        looked = False
        while True:
            self._changed.clear()
            self.report()
            if self._follower.done() and not self._follower.cancelled():
                self._follower.result()
            left = self._left(until, loop.time())
            if not left and not self._tasks:
                if looked:
                    return [self._result(one) for one in self._tracked.values()]
                looked = True
                for one in self._tracked.values():
                    if not one.session.over:  # a handler may have said something that no event has told of yet
                        self._look(one.session.id, None)
                continue
            looked = looked and not left
            if end is not None and loop.time() >= end:
                names = ", ".join(one.session.id for one in left[:3]) + ("…" if len(left) > 3 else "")
                raise TimedOut(
                    f"{names or 'a handler'} did not end within {timeout:g} s", "give it longer, or look: ao status"
                )
            settling = SETTLES / 4 if any(one.quiet_since is not None for one in left) else 5.0
            pause = settling if end is None else max(0.0, min(settling, end - loop.time()))
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
            except TimeoutError:
                continue

    def report(self) -> None:
        """Raise what handlers raised since this was asked last."""
        failed, self._failed = self._failed, []
        if failed:
            raise HandlerError(failed[0][0], [error for _, error in failed])

    async def close(self, *, report: bool) -> None:
        """Follow no more."""
        for task in (self._follower, *self._tasks):
            task.cancel()
        await asyncio.gather(self._follower, *self._tasks, return_exceptions=True)
        if report:
            self.report()

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            async with aclosing(self._link.follow(self._after, project=self._project)) as stream:
                async for item in stream:
                    if item is None:  # the stream begins, maybe anew: something may have been missed
                        for session in self._tracked:
                            self._look(session, None)
                    else:
                        self._take(item)
        finally:
            self._changed.set()

    def _take(self, item: Json) -> None:
        session = item.get("session")
        if session in self._tracked:
            self._remember(item)
        for trigger in triggers_of(item):
            for one in self._subscriptions:
                if one.wants(trigger, session):
                    self._start(self._tell, one, trigger, item)
        if session is not None and item["type"] != "agent-output":
            self._look(session, item)

    def _remember(self, item: Json) -> None:
        """Keep an event of a tracked session; they may come in any order, when its past is read while it goes on."""
        if item["type"] == "agent-output":
            return
        history = self._history[item["session"]]
        history[item["seq"]] = item
        if len(history) > REMEMBERED:
            del history[min(history)]
        tracked = self._tracked[item["session"]]
        done = item["type"] == "agent-done" or (item["type"] == "agent-exited" and item["data"].get("code") == 0)
        if done and (tracked.done is None or (item["type"] == "agent-done" and item["seq"] > tracked.done["seq"])):
            tracked.done = item

    def _past_of(self, session: str) -> list[Json]:
        """What is remembered of a session, in order."""
        return [item for _, item in sorted(self._history.get(session, {}).items())]

    async def _past(self, session: str) -> list[Json]:
        found: list[Json] = []
        while page := await past(self._link, session, found[-1]["seq"] if found else 0):
            found += page
        return found

    def _look(self, session: str, item: Json | None) -> None:
        """Look at a session again, unless nobody cares; one look at a time, and one more if something happened meanwhile."""
        cares = session in self._tracked or any(
            one.trigger in STATUS_TRIGGERS.values() and one.session in (None, session) for one in self._subscriptions
        )
        if not cares:
            return
        if session in self._looking:
            self._again.add(session)
            return
        self._looking.add(session)
        self._start(self._seen, session, item)

    async def _seen(self, name: str, item: Json | None) -> None:
        try:
            while True:
                self._again.discard(name)
                try:
                    session = await self._fresh(name)
                except NotFound:
                    return
                mail = name in self._tracked and session.quiet and await has_mail(self._link, name)
                self._note_status(session, item, mail=mail)
                if name not in self._again:
                    return
        finally:
            self._looking.discard(name)
            self._changed.set()

    async def _fresh(self, name: str) -> Session:
        data = await self._link.look(f"/api/sessions/{quote(name)}")
        session = self._known.setdefault(name, Session(self._link, data))
        session.load(data)
        return session

    def _note_status(self, session: Session, item: Json | None, *, mail: bool) -> None:
        before, self._statuses[session.id] = self._statuses.get(session.id), session.status
        trigger = STATUS_TRIGGERS.get(session.status)
        if trigger and before != session.status and (item or self._history.get(session.id)):
            last = item or self._past_of(session.id)[-1]
            for one in self._subscriptions:
                if one.wants(trigger, session.id):
                    self._start(self._tell, one, trigger, last)
        tracked = self._tracked.get(session.id)
        if tracked is None:
            return
        now = asyncio.get_running_loop().time()
        tracked.quiet_since = (tracked.quiet_since or now) if session.quiet else None
        tracked.mail_since = (tracked.mail_since or now) if mail else None
        if tracked.done is not None or session.over:
            self._complete(tracked)

    # -- handlers ------------------------------------------------------------------------------------------------------

    async def _tell(self, one: _Subscription, trigger: str, item: Json) -> None:
        if item["seq"] in one.told and trigger not in STATUS_TRIGGERS.values():
            return
        one.told.add(item["seq"])
        async with one.turn:
            event = await self._event(one, trigger, item)
        if event is not None:
            await self._call(f"{trigger} of {item.get('session') or item.get('project')}", one.handler, event)

    async def _event(self, one: _Subscription, trigger: str, item: Json) -> Event | None:
        """What a handler is called with; nothing: it knows that already."""
        session = await self._fresh(item["session"]) if item.get("session") else None
        checks: tuple[FailedCheck, ...] = ()
        if trigger == CI_FAILED:
            assert session is not None
            checks = await self._failing(session)
            if not checks or f"{session.id}:{session.head}" in one.told:
                return None
            one.told.add(f"{session.id}:{session.head}")
        return Event.of(item, session, trigger, checks)

    async def _failing(self, session: Session) -> tuple[FailedCheck, ...]:
        """The checks that fail by its own change, with the relevant part of their output."""
        view: Mapping[str, Any] = await self._link.look(f"/api/sessions/{quote(session.id)}/review")
        return tuple(FailedCheck(one["name"], one["state"], one["summary"]) for one in view["failing"])

    def _complete(self, tracked: _Tracked) -> None:
        if not tracked.told:
            tracked.told = True
            if tracked.on_complete is not None:
                self._start(self._call, f"the end of {tracked.session.id}", tracked.on_complete, self._result(tracked))

    async def _call(self, what: str, handler: Handler[Any], given: Any) -> None:
        try:
            answer = handler(given)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:
            self._failed.append((what, error))

    def _start(self, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run(work, given))
        self._tasks.add(task)

        def ended(one: asyncio.Task[None]) -> None:
            self._tasks.discard(one)
            self._changed.set()

        task.add_done_callback(ended)

    async def _run(self, work: Callable[..., Awaitable[None]], given: tuple[Any, ...]) -> None:
        try:
            await work(*given)
        except AoError as error:
            self._failed.append(("events", error))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _left(self, until: str, now: float) -> list[_Tracked]:
        """Those that are not there yet. One that waits for somebody counts once it has done so for a moment, and has no mail."""
        left = []
        for one in self._tracked.values():
            settled = one.quiet_since is not None and now - one.quiet_since >= SETTLES
            settled &= one.mail_since is None or now - one.mail_since >= TAKEN_UP_WITHIN
            if one.session.over or (until == "idle" and settled):
                self._complete(one)
            else:
                left.append(one)
        return left

    def _result(self, tracked: _Tracked) -> Result:
        session, done = tracked.session, tracked.done
        success = session.status == "merged" or (done is not None and session.status not in ("failed", "closed"))
        summary = str(((done or {}).get("data") or {}).get("summary") or "")
        return Result(session, success, summary or session.waiting_for or session.status, session.pr)
