"""Sessions: create, read, message, stop and wait for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.client.api.connection import DaemonConnection, Json, TimedOut
from agent_orchestrator.client.api.records import (
    Diff,
    Evidence,
    Message,
    Progress,
    PullRequest,
    SessionStatus,
    Usage,
    convert_value,
    to_camel_case,
    to_record,
    to_snake_case,
)
from agent_orchestrator.errors import AoError, Conflict, UsageError

if TYPE_CHECKING:
    from agent_orchestrator.client.api.events import Event

FINAL_STATUSES = frozenset({"merged", "stopped", "closed", "exited", "failed"})
"""Statuses that do not change without an action."""

IDLE_STATUSES = frozenset({"review_pending", "pr_open"})
"""Statuses of a finished turn that wait for a person, besides those of the columns Needs you, Ready to merge and Done."""

SETTLE_SECONDS = 1.0
"""Seconds for which a turn must be over: between an agent's last report and its pull request a session is briefly idle."""

ACKNOWLEDGE_TIMEOUT = 60.0
"""Seconds for which a message that the agent has not acknowledged keeps a session from being idle."""

STOP_TIMEOUT = 180.0

spawn_defaults: ContextVar[Mapping[str, Any] | None] = ContextVar("task_in_hand", default=None)
"""The request for the session that an overridden `spawn` of an orchestrator makes: its values are used where the call gives none."""


class SessionData:
    """The data of a session: the JSON of the HTTP API, its names in snake_case."""

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
        """Set the attributes from the daemon's JSON object."""
        self.data = data
        for key, value in data.items():
            name = to_snake_case(key)
            setattr(self, name, convert_value(name, value))

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionData) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def over(self) -> bool:
        """Whether nothing more happens without an action: it is merged, stopped, closed, failed, or its agent has exited."""
        return self.status in FINAL_STATUSES

    @property
    def quiet(self) -> bool:
        """Whether the agent's turn is over and the session waits for a person."""
        return self.over or self.status in IDLE_STATUSES or self.column in ("Needs you", "Ready to merge", "Done")


class Session(SessionData):
    """One agent working on one task in one workspace on one branch, as of the last read (`refresh`)."""

    def __init__(self, link: DaemonConnection, data: Json) -> None:
        super().__init__(data)
        self._link = link
        self._resumed = 0

    async def refresh(self) -> Session:
        """Read the session again."""
        self.load(await self._link.get(self._path()))
        return self

    async def send(self, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to the agent, starting it again if it has exited; `interrupt` stops its turn first."""
        body = {"content": text, "interrupt": interrupt}
        return to_record(Message, await self._link.post(self._path("message"), body))

    async def resume(self, message: str | None = None, *, max_retries: int | None = None) -> bool:
        """Continue the session: restore it if it was stopped or has failed, then send `message`.

        Return False and do nothing if it was resumed `max_retries` times before.
        """
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
        """Answer the agent's question with text, or its permission request with `allow`, `always` or `deny`. `request` is the id of the
        one to answer; no other is answered.
        """
        values = {"text": text, "decision": decision, "request": request}
        body = {key: value for key, value in values.items() if value is not None}
        return to_record(Message, await self._link.post(self._path("answer"), body))

    async def stop(self, *, keep: bool = False) -> Session:
        """Stop the session and save its work; `keep` leaves its workspace."""
        path = with_query(self._path(), {"keep": keep})
        self.load((await self._link.request("DELETE", path, timeout=STOP_TIMEOUT))["session"])
        return self

    async def restore(self) -> Session:
        """Restore the session: same branch, same work, same conversation."""
        self.load(await self._link.post(self._path("restore")))
        return self

    async def merge(self, *, strategy: str | None = None, force: bool = False) -> Session:
        """Add the session's change to the merge queue; it is merged after its checks. To wait for that, use `wait`."""
        body = {"force": force, **({"strategy": strategy} if strategy else {})}
        self.load(await self._link.post(self._path("merge"), body))
        return self

    async def diff(self) -> Diff:
        """Return the session's change against its base branch."""
        return to_record(Diff, await self._link.get(self._path("diff")))

    async def log(self, tail: int | None = None) -> str:
        """Return the session's transcript, or its last `tail` lines."""
        return await self._link.text(with_query(self._path("log"), {"tail": tail}))

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """Yield the session's events after an event number; with `follow`, also new events, without end."""
        from agent_orchestrator.client.api.events import Event

        if follow:
            async with aclosing(self._link.follow_events(after, session=self.id)) as stream:
                async for item in stream:
                    if item is not None:
                        yield Event.from_json(item, self)
            return
        while page := await events_page(self._link, self.id, after):
            for item in page:
                yield Event.from_json(item, self)
            after = page[-1]["seq"]

    async def wait(self, until: str = "over", timeout: float | None = None) -> Session:
        """Return when the session is `over`, or `idle`: its turn is finished and it waits for a person. Raise `TimedOut` after `timeout`
        seconds.
        """
        check_until(until)
        try:
            async with asyncio.timeout(timeout):
                after = await self._link.newest_event_number()
                async with aclosing(self._link.follow_events(after, session=self.id)) as stream:
                    await self._refresh_until(until, stream)
        except TimeoutError as error:
            if isinstance(error, AoError):
                raise
            raise TimedOut(f"{self.id} is {self.status} after {timeout:g} s", "give it longer, or look at it") from None
        return self

    async def _refresh_until(self, until: str, stream: AsyncIterator[Json | None]) -> None:
        """Refresh the session with every event until it is over, or has stayed quiet for `SETTLE_SECONDS` without a waiting message."""
        async for item in stream:
            waited = 0.0
            while item is None or item["type"] != "agent-output":
                await self.refresh()
                if self.over or (until == "idle" and self.quiet):
                    last_update = self.updated_at
                    await asyncio.sleep(0 if self.over else SETTLE_SECONDS)
                    has_message = (
                        not self.over and waited < ACKNOWLEDGE_TIMEOUT and await has_unread_message(self._link, self.id)
                    )
                    waited += SETTLE_SECONDS
                    if (await self.refresh()).updated_at == last_update and not has_message:
                        return
                else:
                    break

    def _path(self, rest: str = "") -> str:
        """Return the path of the session in the HTTP API, or of a part of it."""
        return f"/api/sessions/{quote(self.id)}" + (f"/{rest}" if rest else "")


def check_until(until: str) -> None:
    """Raise UsageError unless `until` is a state that can be waited for."""
    if until not in ("over", "idle"):
        raise UsageError(f"cannot wait until {until!r}", "wait until 'over' or 'idle'")


async def events_page(link: DaemonConnection, session: str, after: int = 0) -> list[Json]:
    """Return a page of a session's events after an event number."""
    path = f"/api/sessions/{quote(session)}/events"
    events: list[Json] = (await link.get(path, {"after": str(after), "limit": 1000}))["events"]
    return events


async def has_unread_message(link: DaemonConnection, session: str) -> bool:
    """Return whether the agent has a message it has not acknowledged; if it never acknowledged any, delivered ones count as read."""
    messages = (await link.get_if_running(f"/api/sessions/{quote(session)}/messages"))["messages"]
    states = [message["state"] for message in messages]
    acknowledged = max((number for number, state in enumerate(states, 1) if state == "acknowledged"), default=0)
    return "queued" in states[acknowledged:] or (acknowledged > 0 and "delivered" in states[acknowledged:])


class SessionManager:
    """All sessions of a user's daemon, which is started if it does not run. It needs no closing."""

    def __init__(self, home: str | os.PathLike[str] | None = None, *, link: DaemonConnection | None = None) -> None:
        self._link = link or DaemonConnection(home)

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
        """Create a session for a task: `prompt`, `title`, or an issue in any of its forms.

        Return when its agent runs, it failed, or it is clear what it waits for; without `wait`, at once. With `defer` the
        agent starts at its first message; return when the workspace exists or it waits for a slot.
        """
        options: dict[str, Any] = {
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
            "after": [earlier.id if isinstance(earlier, Session) else earlier for earlier in after],
            "stack": stack,
            "labels": list(labels),
            "files": list(files),
            "priority": priority,
            "group": group,
            "group_limit": group_limit,
            "defer": defer,
        }
        explicit = {key: value for key, value in options.items() if value not in (None, False, [], "")}
        defaults = {
            key: value for key, value in (spawn_defaults.get() or {}).items() if value not in (None, (), [], "")
        }
        body = {to_camel_case(key): value for key, value in {**defaults, **explicit}.items()}
        session = Session(self._link, await self._link.post("/api/sessions", body))
        if wait and (data := await self._link.wait_until_started(session.id)):
            session.load(data)
        return session

    async def get(self, session: str) -> Session:
        """Return a session by its id, name, or a unique prefix."""
        return Session(self._link, await self._link.get(f"/api/sessions/{quote(session)}"))

    async def list(self, project_id: str | None = None) -> list[Session]:
        """Return the sessions of one project, or of all, including merged and stopped ones."""
        query: dict[str, str | int | None] = {"project": project_id} if project_id else {"all": 1}
        return [Session(self._link, session) for session in (await self._link.get("/api/sessions", query))["sessions"]]

    async def get_status(self, session: str) -> SessionStatus:
        """Return a short status of a session."""
        return to_record(SessionStatus, await self._link.get(f"/api/sessions/{quote(session)}/status"))

    async def send(self, session: str, text: str, *, interrupt: bool = False) -> Message:
        """Send a message to a session's agent."""
        return await (await self.get(session)).send(text, interrupt=interrupt)

    async def stop(self, session: str, *, keep: bool = False) -> Session:
        """Stop a session and save its work."""
        return await (await self.get(session)).stop(keep=keep)

    async def restore(self, session: str) -> Session:
        """Restore a session."""
        return await (await self.get(session)).restore()

    async def merge(self, session: str, *, strategy: str | None = None, force: bool = False) -> Session:
        """Add a session's change to the merge queue."""
        return await (await self.get(session)).merge(strategy=strategy, force=force)

    async def wait(self, session: str, until: str = "over", timeout: float | None = None) -> Session:
        """Return when a session is `over`, or `idle`."""
        return await (await self.get(session)).wait(until, timeout)

    async def at(self, path: str | os.PathLike[str]) -> Session:
        """Return the session whose workspace is this folder; raise Conflict if there is none."""
        folder = os.path.realpath(path)
        for session in await self.list():
            if session.workspace_path and os.path.realpath(session.workspace_path) == folder:
                return session
        raise Conflict(f"{os.fspath(path)} is no session's workspace", "make one by create_worktree()")
