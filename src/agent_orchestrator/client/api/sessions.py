"""Sessions: made, looked at, talked to, stopped, waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.client.api.link import Json, Link, TimedOut
from agent_orchestrator.client.api.records import (
    Diff,
    Evidence,
    Message,
    Progress,
    PullRequest,
    SessionStatus,
    Usage,
    camel,
    record,
    snake,
    value_of,
)
from agent_orchestrator.errors import AoError, Conflict, UsageError

if TYPE_CHECKING:
    from agent_orchestrator.client.api.events import Event

OVER = frozenset({"merged", "stopped", "closed", "exited", "failed"})
"""Statuses from which nothing comes by itself."""

QUIET = frozenset({"review_pending", "pr_open"})
"""Statuses of a finished turn that wait for somebody, beside those of the columns Needs you, Ready to merge and Done."""

SETTLES = 1.0
"""Seconds that a turn must be over: between an agent's last word and its pull request a session is idle for a moment."""

TAKEN_UP_WITHIN = 60.0
"""Seconds for which a message that its agent has not taken up yet keeps a session from being idle."""

STOP_PATIENCE = 180.0

task_in_hand: ContextVar[Mapping[str, Any] | None] = ContextVar("task_in_hand", default=None)
"""What a session is about that an orchestrator's own `spawn` makes: held where the request itself does not say."""


class SessionData:
    """What is known of a session: the JSON of the HTTP API, its names in snake_case."""

    id: str
    name: str
    project: str
    task: str
    kind: str
    title: str
    status: str
    activity: str
    evidence: Evidence
    column: str
    branch: str
    base: str
    head: str | None
    workspace_path: str | None
    agent: str
    profile: str | None
    runtime: str
    node: str | None
    pid: int | None
    exit_code: int | None
    issue: str | None
    pr: PullRequest | None
    progress: Progress
    usage: Usage
    attempts: Mapping[str, int]
    waiting_for: str | None
    created_at: datetime
    updated_at: datetime

    def __init__(self, data: Json) -> None:
        self.load(data)

    def load(self, data: Json) -> None:
        """Take what the daemon says of it."""
        self.data = data
        for key, value in data.items():
            name = snake(key)
            setattr(self, name, value_of(name, value))

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionData) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def over(self) -> bool:
        """Nothing more comes by itself: it landed, was stopped, given up, failed, or ended with nothing to show."""
        return self.status in OVER

    @property
    def quiet(self) -> bool:
        """Its agent's turn is over, and it waits for somebody."""
        return self.over or self.status in QUIET or self.column in ("Needs you", "Ready to merge", "Done")


class Session(SessionData):
    """One agent working on one task in one workspace on one branch: as it was when it was last looked at (`refresh`)."""

    def __init__(self, link: Link, data: Json) -> None:
        super().__init__(data)
        self._link = link
        self._resumed = 0

    async def refresh(self) -> Session:
        """Look at it again."""
        self.load(await self._link.get(self._path()))
        return self

    async def send(self, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to its agent, which is started again for it where it has ended; `interrupt` stops its turn first."""
        body = {"content": text, "interrupt": interrupt}
        return record(Message, await self._link.post(self._path("message"), body))

    async def resume(self, message: str | None = None, *, max_retries: int | None = None) -> bool:
        """Have it go on: brought back where it was stopped or has failed, and told `message`.

        False, and nothing is done, if that was so `max_retries` times before."""
        if max_retries is not None and self._resumed >= max_retries:
            return False
        self._resumed += 1
        await self.refresh()
        if self.status in ("stopped", "failed") or (message is None and self.status in ("exited", "interrupted")):
            await self.restore()
        if message is not None:
            await self.send(message)
        return True

    async def answer(
        self, text: str | None = None, *, decision: str | None = None, request: str | None = None
    ) -> Message:
        """Answer what its agent asks: with text, or with `allow`, `always` or `deny`; nothing but `request`, if that is given."""
        given = {"text": text, "decision": decision, "request": request}
        body = {key: value for key, value in given.items() if value is not None}
        return record(Message, await self._link.post(self._path("answer"), body))

    async def stop(self, *, keep: bool = False) -> Session:
        """Stop it, its work saved; `keep` leaves its workspace."""
        path = with_query(self._path(), {"keep": keep})
        self.load((await self._link.request("DELETE", path, timeout=STOP_PATIENCE))["session"])
        return self

    async def restore(self) -> Session:
        """Bring it back: same branch, same work, same conversation."""
        self.load(await self._link.post(self._path("restore")))
        return self

    async def merge(self, *, strategy: str | None = None, force: bool = False) -> Session:
        """Say that its change may land: through the merge queue, after its checks. Waiting for it is `wait`'s matter."""
        body = {"force": force, **({"strategy": strategy} if strategy else {})}
        self.load(await self._link.post(self._path("merge"), body))
        return self

    async def diff(self) -> Diff:
        """Its change against its base."""
        return record(Diff, await self._link.get(self._path("diff")))

    async def log(self, tail: int | None = None) -> str:
        """Its transcript, or the last lines of it."""
        return await self._link.text(with_query(self._path("log"), {"tail": tail}))

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """What happened to it after an event's number; with `follow` also what happens, without end."""
        from agent_orchestrator.client.api.events import Event

        if follow:
            async with aclosing(self._link.follow(after, session=self.id)) as stream:
                async for item in stream:
                    if item is not None:
                        yield Event.of(item, self)
            return
        while page := await past(self._link, self.id, after):
            for item in page:
                yield Event.of(item, self)
            after = page[-1]["seq"]

    async def wait(self, until: str = "over", timeout: float | None = None) -> Session:
        """Return when it is `over`, or `idle`: its turn finished and it waits for somebody; `TimedOut` if not within `timeout` seconds."""
        check_until(until)
        try:
            async with asyncio.timeout(timeout):
                after = await self._link.sequence()
                async with aclosing(self._link.follow(after, session=self.id)) as stream:
                    await self._until(until, stream)
        except TimeoutError as error:
            if isinstance(error, AoError):
                raise
            raise TimedOut(f"{self.id} is {self.status} after {timeout:g} s", "give it longer, or look at it") from None
        return self

    async def _until(self, until: str, stream: AsyncIterator[Json | None]) -> None:
        async for item in stream:
            waited = 0.0
            while item is None or item["type"] != "agent-output":
                await self.refresh()
                if self.over or (until == "idle" and self.quiet):
                    seen = self.updated_at
                    await asyncio.sleep(0 if self.over else SETTLES)
                    mail = not self.over and waited < TAKEN_UP_WITHIN and await has_mail(self._link, self.id)
                    waited += SETTLES
                    if (await self.refresh()).updated_at == seen and not mail:
                        return
                else:
                    break

    def _path(self, rest: str = "") -> str:
        return f"/api/sessions/{quote(self.id)}" + (f"/{rest}" if rest else "")


def check_until(until: str) -> None:
    """Refuse what cannot be waited for."""
    if until not in ("over", "idle"):
        raise UsageError(f"cannot wait until {until!r}", "wait until 'over' or 'idle'")


async def past(link: Link, session: str, after: int = 0) -> list[Json]:
    """A page of a session's events after a number."""
    path = f"/api/sessions/{quote(session)}/events"
    found: list[Json] = (await link.get(path, {"after": str(after), "limit": 1000}))["events"]
    return found


async def has_mail(link: Link, session: str) -> bool:
    """Is there a message that its agent is yet to take up? One that never acknowledged any has taken up what was delivered."""
    found = (await link.look(f"/api/sessions/{quote(session)}/messages"))["messages"]
    states = [one["state"] for one in found]
    taken = max((place for place, state in enumerate(states, 1) if state == "acknowledged"), default=0)
    return "queued" in states[taken:] or (taken > 0 and "delivered" in states[taken:])


class SessionManager:
    """All sessions of a user's daemon. Needs no closing; the daemon is started when it does not run."""

    def __init__(self, home: str | os.PathLike[str] | None = None, *, link: Link | None = None) -> None:
        self._link = link or Link(home)

    async def create(
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
        """Make a session for a task: `prompt`, `title`, or an issue in any of its forms.

        Returns when its agent runs, it failed, or it is clear what it waits for; without `wait`, at once. With `defer` its agent
        starts at its first message, and it returns when its workspace is there or it waits for a place."""
        asked: dict[str, Any] = {
            "project_id": project_id,
            "name": name,
            "issue": issue,
            "branch": branch,
            "agent": agent,
            "runtime": None if runtime is None else str(runtime),
            "workspace": workspace,
            "prompt": prompt,
            "title": title,
            "base": base,
            "model": model,
            "after": [one.id if isinstance(one, Session) else one for one in after],
            "stack": stack,
            "labels": list(labels),
            "files": list(files),
            "priority": priority,
            "group": group,
            "group_limit": group_limit,
            "defer": defer,
        }
        said = {key: value for key, value in asked.items() if value not in (None, False, [], "")}
        words = {key: value for key, value in (task_in_hand.get() or {}).items() if value not in (None, (), [], "")}
        body = {camel(key): value for key, value in {**words, **said}.items()}
        session = Session(self._link, await self._link.post("/api/sessions", body))
        if wait and (data := await self._link.started(session.id)):
            session.load(data)
        return session

    async def get(self, session: str) -> Session:
        """One session: by its id, name, or a unique beginning."""
        return Session(self._link, await self._link.get(f"/api/sessions/{quote(session)}"))

    async def list(self, project_id: str | None = None) -> list[Session]:
        """All sessions, merged and stopped ones included; of one project, or of all."""
        query: dict[str, str | int | None] = {"project": project_id} if project_id else {"all": 1}
        return [Session(self._link, one) for one in (await self._link.get("/api/sessions", query))["sessions"]]

    async def get_status(self, session: str) -> SessionStatus:
        """A session in short."""
        return record(SessionStatus, await self._link.get(f"/api/sessions/{quote(session)}/status"))

    async def send(self, session: str, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to a session's agent."""
        return await (await self.get(session)).send(text, interrupt=interrupt)

    async def stop(self, session: str, *, keep: bool = False) -> Session:
        """Stop a session, its work saved."""
        return await (await self.get(session)).stop(keep=keep)

    async def restore(self, session: str) -> Session:
        """Bring a session back."""
        return await (await self.get(session)).restore()

    async def merge(self, session: str, *, strategy: str | None = None, force: bool = False) -> Session:
        """Say that a session's change may land."""
        return await (await self.get(session)).merge(strategy=strategy, force=force)

    async def wait(self, session: str, until: str = "over", timeout: float | None = None) -> Session:
        """Return when a session is `over`, or `idle`."""
        return await (await self.get(session)).wait(until, timeout)

    async def at(self, path: str | os.PathLike[str]) -> Session:
        """The session whose workspace is this folder."""
        folder = os.path.realpath(path)
        for session in await self.list():
            if session.workspace_path and os.path.realpath(session.workspace_path) == folder:
                return session
        raise Conflict(f"{os.fspath(path)} is no session's workspace", "make one by create_worktree()")
