"""Events recorded from OpenCode 1.18.33, and a stand-in for its server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.protocols import RunningLaunch

SESSION = "ses_e20d36b7dffelpfwMgKOuQFukx"
HOME_PAGE = """
                       ┃
                       ┃  Ask anything… "Fix broken tests"
                       ┃
                       ┃  Build · gpt-5 scripted
"""


def recorded(section: str) -> list[dict[str, Any]]:
    """Return the events of one section of the recording, behind the beginning of its conversation."""
    name, events = "", []
    for line in (Path(__file__).parent / "server_events.jsonl").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            name = line[2:]
        elif name in ("begin", section):
            events.append(json.loads(line))
    return events


def record(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as the server lists them after these events."""
    infos: dict[str, dict[str, Any]] = {}
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for event in events:
        data = event["properties"]
        if event["type"] == "message.updated":
            infos[data["info"]["id"]] = data["info"]
        elif event["type"] == "message.part.updated":
            parts.setdefault(data["part"]["messageID"], {})[data["part"]["id"]] = data["part"]
    return [{"info": info, "parts": list(parts.get(key, {}).values())} for key, info in infos.items()]


@dataclass
class SimulatedOpenCode:
    """A server that responds as OpenCode does to the plugin's requests."""

    port: int = 0
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    permissions: list[dict[str, Any]] = field(default_factory=list)
    children: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    events: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    session: dict[str, Any] = field(default_factory=lambda: {"id": SESSION})
    silent: set[str] = field(default_factory=set)
    """Paths whose requests are never answered."""
    forgets: int = 0
    """The number of prompts that are accepted and lost."""
    password: str = "secret"
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(self.serve(reader, writer)))

    def paths(self, method: str = "POST") -> list[str]:
        return [path for verb, path, _ in self.requests if verb == method]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(contextlib.suppress(ConnectionError, asyncio.IncompleteReadError))
            stack.push_async_callback(writer.wait_closed)
            stack.callback(writer.close)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split(" ", 2)
            length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0] or 0)
            body = json.loads(await reader.readexactly(length)) if length else None
            self.requests.append((method, path, body))
            if path in self.silent:
                await asyncio.sleep(60)
            login = base64.b64encode(f"opencode:{self.password}".encode()).decode()
            if f"Basic {login}\r\n" not in head:
                await self._say(writer, 401, None)
            elif path == "/event":
                await self._stream(writer)
            else:
                await self._say(writer, *self._answer(method, path.partition("?")[0], body))

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match [method, *path.strip("/").split("/")]:
            case ["GET", "session", "status"]:
                return 200, self.status
            case ["GET", "permission"]:
                return 200, self.permissions
            case ["GET", "question"]:
                return 200, self.questions
            case ["POST", "session"] | ["POST", "session", _, "fork"]:
                return 200, self.session
            case ["POST", "experimental", "control-plane", "move-session"]:
                return 204, None
            case ["GET", "session", _]:
                return 200, self.session
            case ["GET", "session", parent, "children"]:
                return 200, [child for child in self.children if child["parentID"] == parent]
            case ["GET", "session", session, "message"]:
                return 200, [item for item in self.messages if item["info"]["sessionID"] == session]
            case ["GET", "session", _, "message", key]:
                return (200, {}) if any(item["info"]["id"] == key for item in self.messages) else (404, None)
            case ["POST", "session", session, "prompt_async"]:
                if self.forgets:
                    self.forgets -= 1
                elif not any(item["info"]["id"] == body["messageID"] for item in self.messages):
                    info = {"id": body["messageID"], "sessionID": session, "role": "user", "time": {"created": 1}}
                    self.messages.append({"info": info, "parts": body["parts"]})
                return 204, None
            case ["POST", "question", request, "reply"]:
                self.questions = [item for item in self.questions if item["id"] != request]
                return 200, True
            case ["POST", "permission", request, "reply"]:
                return (200, True) if any(item["id"] == request for item in self.permissions) else (404, None)
            case ["POST", "session", _, "abort"] | ["POST", "tui", "select-session"]:
                return 200, True
            case ["GET", "session", _, "todo"]:
                return 200, []
        return 404, None

    async def _say(self, writer: asyncio.StreamWriter, status: int, data: Any) -> None:
        body = b"" if data is None else json.dumps(data).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        event: dict[str, Any] | None = {"type": "server.connected", "properties": {}}
        while event is not None:
            line = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            for piece in (line[:7], line[7:]):  # an event may come in pieces
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            event = await self.events.get()
        writer.write(b"0\r\n\r\n")


@contextlib.asynccontextmanager
async def run_server() -> AsyncIterator[SimulatedOpenCode]:
    """Run a server on a free port."""
    server = SimulatedOpenCode()
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


class EndOnlyChanges:
    """Changes without events; the agent ends when the test requests it."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def watch(self, path: Path) -> None:
        del path

    async def next(self, within: float | None = None) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), within)
        return not self._ended.is_set()


def make_launch(
    private: Path, server: SimulatedOpenCode, conversation: str | None = SESSION, screen: str = "busy", **more: Any
) -> RunningLaunch:
    """Return a live launch that uses this server."""
    plugin_data = private / "opencode.json"
    if not plugin_data.exists():
        plugin_data.write_text(json.dumps({"launch": "1", "port": server.port, "password": server.password}))
    ended = asyncio.Event()

    async def read_screen() -> str:
        return screen

    memo = {"port": str(server.port), "since": "0", "model": "", "agent": "", "told": "nothing", **more.pop("memo", {})}
    return RunningLaunch(
        session="app-fix",
        generation=1,
        pid=1,
        started="1",
        workspace=private,
        private=private,
        log=private / "terminal.log",
        conversation=conversation,
        plugin_data=memo,
        cursors=more.pop("cursors", {}),
        changes=EndOnlyChanges(ended),
        screen=read_screen,
        ended=ended,
    )
