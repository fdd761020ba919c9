"""A scripted daemon: a real HTTP server on a Unix socket with the responses of a test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class DaemonRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class DaemonReply:
    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] | None = None
    drop: str = ""
    """`before`: hang up instead of answering; `within`: in the middle of the body."""


Handler = Callable[[DaemonRequest], DaemonReply] | DaemonReply | list[Any] | dict[str, Any] | None


class ScriptedDaemon:
    """A scripted daemon. The route added last is tried first; of a list of replies each is used once, the last one repeatedly."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.requests: list[DaemonRequest] = []
        self._routes: list[tuple[str, re.Pattern[str], Any]] = []
        self._folder = tempfile.mkdtemp(prefix="ao-test-")
        self.socket = os.path.join(self._folder, "s")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.socket)
        self._server.listen()
        self._open: list[socket.socket] = []
        home.mkdir(parents=True, exist_ok=True)
        self.info = {"pid": os.getpid(), "socket": self.socket, "url": "http://127.0.0.1:3999", "version": "0"}
        (home / "daemon.json").write_text(json.dumps(self.info))
        self.route("GET", "/healthz", {"status": "ok"})
        self.route("GET", "/api/backlog.*", {"entries": [], "unread": []})
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def route(self, method: str, path: str, reply: Handler) -> None:
        self._routes.insert(0, (method, re.compile(path), reply))

    def requests_for(self, method: str, path: str) -> list[DaemonRequest]:
        return [each for each in self.requests if each.method == method and re.fullmatch(path, each.path)]

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # the descriptor of a closed socket may be reused while a thread still waits on it
        for each in [self._server, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            for number in range(10_000):
                connection, _ = self._server.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as reader:
            while head := reader.readline():
                method, path, _ = head.decode().split()
                fields = iter(lambda: reader.readline().decode().rstrip(), "")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in fields)}
                request = DaemonRequest(
                    method, path, headers, reader.read(int(headers.get("content-length", 0))), number
                )
                self.requests.append(request)
                if not self._answer(connection, self._reply(request)):
                    return

    def _reply(self, request: DaemonRequest) -> DaemonReply:
        for method, path, handler in self._routes:
            if method == request.method and path.fullmatch(request.path):
                reply = (handler.pop(0) if len(handler) > 1 else handler[0]) if isinstance(handler, list) else handler
                reply = reply(request) if callable(reply) else reply
                return reply if isinstance(reply, DaemonReply) else DaemonReply(reply)
        return problem("not-found", f"no route {request.method} {request.path}", status=404, exit_code=3)

    def _answer(self, connection: socket.socket, reply: DaemonReply) -> bool:
        if reply.drop == "before":
            return False
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        size = "Transfer-Encoding: chunked" if reply.chunks is not None else f"Content-Length: {len(body)}"
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = f"HTTP/1.1 {reply.status} X\r\n{size}\r\n{extra}\r\n".encode()
        if reply.drop == "within":
            connection.sendall(head + body[: len(body) // 2])
            return False
        connection.sendall(head if reply.chunks is not None else head + body)
        for chunk in reply.chunks or ():
            connection.sendall(f"{len(chunk):x};note=1\r\n".encode() + chunk + b"\r\n")
        if reply.chunks is not None:
            connection.sendall(b"0\r\nTrailer: x\r\n\r\n")
        return True


def problem(category: str, detail: str, remedy: str = "", *, status: int = 400, exit_code: int = 1) -> DaemonReply:
    body = {
        "type": "about:blank",
        "title": "x",
        "status": status,
        "detail": detail,
        "remedy": remedy,
        "category": category,
        "exitCode": exit_code,
    }
    return DaemonReply(body, status)


@contextlib.contextmanager
def daemon_at(home: Path) -> Iterator[ScriptedDaemon]:
    daemon = ScriptedDaemon(home)
    try:
        yield daemon
    finally:
        daemon.stop()


def session(name: str = "fix-login", **changes: Any) -> dict[str, Any]:
    """Return a complete session document."""
    keys = ["task", "kind", "head", "node", "exitCode", "issue", "pr", "waitingFor", "profile"]
    return (
        dict.fromkeys(keys)
        | {
            "id": f"app-{name}",
            "name": name,
            "project": "app",
            "title": "Fix the login",
            "status": "working",
            "activity": "active",
            "evidence": {"source": "hook", "at": "2026-01-02T03:04:05Z"},
            "column": "Working",
            "branch": f"feature/{name}",
            "base": "main",
            "workspacePath": f"/w/{name}",
            "agent": "demo",
            "runtime": "process",
            "pid": 4711,
            "progress": {"done": 3, "total": 5, "step": "tests", "testsPassed": 41},
            "usage": {"input": 1, "output": 2, "usd": 0.42},
            "attempts": {},
            "createdAt": "2026-01-02T03:00:00Z",
            "updatedAt": "2026-01-02T03:04:05Z",
        }
        | changes
    )
