"""In-memory services for the server, and a small HTTP client on plain streams."""

# ruff: noqa: ARG002 - the shapes are the services'

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.base.home import Home
from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.core.actor import current_actor
from agent_orchestrator.core.events import AgentAsk, Body, Event
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.server.access.logins import Logins
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.views.traffic import Traffic


class FakeSessions:
    """One session, `app-fix`; records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.body = json.dumps({"sessions": [{"id": "app-fix"}]}).encode()
        self.release = asyncio.Event()
        self.flow = SimpleNamespace(sessions={"app-fix": SimpleNamespace(project="app", remote=False)})

    def list_json(self, project: str | None) -> bytes:
        self.calls.append(("list", project))
        return self.body

    def find(self, name: str, project: str | None = None, only: str | None = None) -> Any:
        self.calls.append(("find", name, project))
        if name not in ("app-fix", "fix"):
            raise NotFound(f"there is no session {name}", "`ao status -A` lists them")
        return SimpleNamespace(id="app-fix")

    def view(self, session: str) -> dict[str, Any]:
        if session == "app-fix":
            return {"id": session}
        raise AssertionError(session)

    async def create(
        self,
        request: NewSession,
        key: str | None,
        context: CommandContext,
        by: str,
    ) -> dict[str, Any]:
        self.calls.append(("create", request, key, context))
        if request.title == "boom":
            raise RuntimeError("a secret detail")
        if request.title == "short":
            raise OSError(errno.EMFILE, "Too many open files", "module.py")
        return {"id": "app-new"}

    async def stop_all(self, project: str, keep: bool, key: str | None) -> dict[str, Any]:
        self.calls.append(("stop_all", project, keep, key))
        return {"stopped": []}

    async def stop(self, session: str, keep: bool, key: str | None, by: str) -> dict[str, Any]:
        self.calls.append(("stop", session, keep, key))
        return {"session": {"id": session}, "saved": [], "undo": "ao restore app-fix"}

    async def send(
        self, session: str, content: str, *, key: str | None, interrupt: bool, sender: str
    ) -> dict[str, Any]:
        self.calls.append(("send", session, content, key, interrupt, sender))
        return {"messageId": "m1", "state": "queued"}

    async def answer(self, session: str, *, text: str | None, decision: str | None, key: str | None) -> dict[str, Any]:
        return {"state": "queued"}

    def messages(self, session: str, *, to_agent: bool = False) -> list[dict[str, Any]]:
        return []

    async def wait(self, session: str, until: str = "running") -> AsyncIterator[dict[str, Any]]:
        yield {"output": "installing"}
        await self.release.wait()
        yield {"session": {"id": session}}

    def complete_names(self, kind: str, prefix: str) -> list[str]:
        return [name for name in ("app-fix", "app-new") if name.startswith(prefix)]


class FakeSessionDetails:
    """Log, screen, environment and terminal of the one session."""

    def __init__(self) -> None:
        self.argv = ["cat"]

    async def log(self, session: str, *, raw: bool, tail_lines: int | None, follow: bool) -> AsyncIterator[bytes]:
        if tail_lines == 0:
            raise Conflict("there is no log yet", "wait for it")
        yield "grüße\n".encode()
        if follow:
            await asyncio.Event().wait()

    async def screen(self, session: str) -> str:
        return f"{session}\n> grüße\n"

    async def environment(self, session: str) -> dict[str, Any]:
        return {"cwd": "/", "env": {"SECRET": "x"}}

    async def attach(self, session: str, *, watch: bool = False) -> dict[str, Any]:
        return {"argv": self.argv, "env": {"AO_ATTACHED": session}}


class FakeAudit:
    """Records actors and events."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Body]] = []

    async def record(self, body: Body, session: str | None = None, *, actor: str = "") -> None:
        self.record_in_background(body, actor)

    def record_in_background(self, body: Body, actor: str = "") -> None:
        behalf = current_actor()
        assert behalf is not None, "no actor"
        behalf.recorded_event_count += 1
        self.entries.append((actor or behalf.actor, body))


class FakeFeed:
    """An event log in memory."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.grown = asyncio.Condition()
        self.subscribers = 0

    async def add(self, question: str, session: str = "app-fix") -> None:
        body = AgentAsk(question=question)
        event = Event(
            body=body, time=0.0, source="test", key=question, project="app", session=session, seq=len(self.events) + 1
        )
        async with self.grown:
            self.events.append(event)
            self.grown.notify_all()

    async def page(
        self, after: int | None, limit: int, session: str | None, project: str | None, kind: str | None = None
    ) -> list[dict[str, Any]]:
        return [{"seq": event.seq} for event in self.events[after or 0 :][:limit]]

    async def subscribe(self, after: int | None) -> AsyncIterator[Sequence[Event]]:
        position = len(self.events) if after is None else after
        self.subscribers += 1
        try:
            while True:
                async with self.grown:
                    while len(self.events) <= position:
                        await self.grown.wait()
                for event in self.events[position:]:
                    position = event.seq
                    yield [event]
        finally:
            self.subscribers -= 1


class FakeProjects:
    """The project `app`, which is in the caller's folder."""

    async def resolve(self, context: CommandContext, project: str | None) -> str | None:
        if project not in (None, "app"):
            raise NotFound(f"there is no project {project}", "`ao projects` lists them")
        return "app" if context.cwd else project

    def notices(self, context: CommandContext, *, trust: bool = True) -> list[str]:
        return [f"registered {context.cwd}, as app"] if context.cwd else []

    async def list(self) -> list[dict[str, Any]]:
        return []

    async def trust(self, path: Path | None, context: CommandContext, *, preview: bool) -> dict[str, Any]:
        return {"project": "app", "commands": [], "trusted": not preview}


class FakeConfig:
    """Returns the requested key."""

    async def get(self, key: str, context: CommandContext) -> dict[str, Any]:
        return {"key": key, "value": 1, "file": None}

    def help(self) -> str:
        return "port: 3000\n"


class FakeWebhooks:
    """Accepts every webhook with a name."""

    async def receive(self, name: str, _headers: Mapping[str, str], _body: bytes) -> bool:
        if "/" in name or not name:
            raise NotFound(f"nobody called {name} sends webhooks", "github")
        return True


@dataclass
class FakeServices:
    """All services together."""

    home: Home
    version: str = "9.9.9"
    core: SimpleNamespace = field(default_factory=SimpleNamespace)
    sessions: FakeSessions = field(default_factory=FakeSessions)
    session_details: FakeSessionDetails = field(default_factory=FakeSessionDetails)
    feed: FakeFeed = field(default_factory=FakeFeed)
    audit: FakeAudit = field(default_factory=FakeAudit)
    projects: FakeProjects = field(default_factory=FakeProjects)
    config: FakeConfig = field(default_factory=FakeConfig)
    webhooks: FakeWebhooks = field(default_factory=FakeWebhooks)
    traffic: Traffic = field(default_factory=Traffic)
    ended: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = time.time()
        self.tokens = Tokens(self.home, lambda: self.now)
        self.logins = Logins(self.tokens, lambda: self.now)
        self.inbox = self.sessions

    async def shutdown(self, sessions: bool) -> None:
        self.ended.append(sessions)


@dataclass
class PlainAnswer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class PlainClient:
    """Sends requests to one server; `address` is a socket's path or a local port."""

    address: Path | int
    token: str | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.address, int):
            return await asyncio.open_connection("127.0.0.1", self.address, limit=1 << 22)
        return await asyncio.open_unix_connection(self.address, limit=1 << 22)

    async def begin(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[PlainAnswer, asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request and read the head of its answer."""
        reader, writer = await self.open()
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        all_headers = {
            "Host": f"127.0.0.1:{self.address}" if isinstance(self.address, int) else "localhost",
            "Connection": "close",
        }
        if self.token:
            all_headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            all_headers |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        all_headers |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items() if value)
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
        status, _, header_lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").partition("\r\n")
        lines = [line.partition(": ") for line in header_lines.strip().split("\r\n") if line]
        return (
            PlainAnswer(int(status.split()[1]), {name.lower(): value for name, _, value in lines}, b""),
            reader,
            writer,
        )

    async def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> PlainAnswer:
        """Send one request and return the complete answer."""
        async with asyncio.timeout(60):
            answer, reader, writer = await self.begin(method, path, body, headers)
            try:
                raw = await reader.read()
            finally:
                writer.close()
                await writer.wait_closed()
            answer.body = _unchunked(raw) if answer.headers.get("transfer-encoding") == "chunked" else raw
            return answer

    async def get(self, path: str, **headers: str) -> PlainAnswer:
        """Send a GET request; underscores in header names stand for dashes."""
        return await self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def _unchunked(raw: bytes) -> bytes:
    parts = []
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        parts.append(raw[:length])
        raw = raw[length + 2 :]
    return b"".join(parts)
