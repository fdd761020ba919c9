"""`ChatServer`: the services, each at an address of its own on one loopback port."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from agent_orchestrator.testing.chat.rules import violations

TOKEN = "xoxb-chat-server-token"
KEY = "ak_chat-server"
SECRET = "chat-server-secret"


@dataclass(frozen=True, slots=True)
class Fault:
    """How one request goes wrong."""

    status: int | str
    """An HTTP status; `hang` (no answer ever), or `cut` (it is taken, and the connection ends without an answer)."""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came."""

    kind: str
    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes
    violations: list[str] = field(default_factory=list)
    status: int = 200


class ChatServer:
    """Start it with `with ChatServer() as chat:`; the addresses are its attributes."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        """All that was taken, in order; what a fault refused is in `refused`."""
        self.refused: list[Received] = []
        self._faults: list[Fault] = []
        self._closing = threading.Event()
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.slack = f"{self.url}/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"
        self.slack_api = f"{self.url}/api"
        self.discord = f"{self.url}/api/webhooks/123456789012345678/discord-webhook-token"
        self.webhook = f"{self.url}/hook"
        self.composio = f"{self.url}/api/v3"
        self.openclaw = f"{self.url}/hooks/agent"
        self.apprise = f"json://127.0.0.1:{self._server.server_address[1]}/other"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it: from now on connections are refused."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.shutdown()
            self._server.server_close()

    def fail(self, *faults: Fault) -> None:
        """The next requests go wrong, in this order."""
        self._faults += faults

    def wait(self, count: int, timeout: float = 20.0) -> list[Received]:
        """As soon as so many came; fails when they do not in time."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.received) >= count, timeout), f"{len(self.received)} came"
        return self.received

    # -- taking ------------------------------------------------------------------------------------------------------------

    def take(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[int, Mapping[str, str], bytes] | None:
        """Judge a request; none: it is not answered."""
        kind, body = self._kind(path), _json(raw)
        told = {**body, "tool": path.rpartition("/")[2]} if kind == "composio" and isinstance(body, dict) else body
        wrong = [*violations(kind, told), *self._unsigned(kind, headers, raw)] if kind else ["nobody is there"]
        if self._faults:
            return self._faulty(self._faults.pop(0), Received(kind, path, headers, body, raw, wrong))
        status, answer = self._judged(kind, path, wrong)
        one = Received(kind, path, headers, body, raw, wrong, status)
        with self._news:
            (self.refused if wrong else self.received).append(one)
            self._news.notify_all()
        return status, {"Content-Type": "application/json"}, answer

    def _faulty(self, fault: Fault, one: Received) -> tuple[int, Mapping[str, str], bytes] | None:
        if isinstance(fault.status, str):
            self.received.append(one)  # it arrived; only nobody says so
            if fault.status == "hang":
                self._closing.wait(60.0)
            return None
        self.refused.append(one)
        headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        return fault.status, headers, b""

    def _kind(self, path: str) -> str:
        plain = path.partition("?")[0]
        for kind, begins in (
            ("slack", ("/services/", "/api/chat.postMessage")),
            ("discord", ("/api/webhooks/",)),
            ("composio", ("/api/v3/tools/execute/",)),
            ("openclaw", ("/hooks/agent",)),
            ("webhook", ("/hook",)),
            ("other", ("/other",)),
        ):
            if plain.startswith(begins):
                return kind
        return ""

    def _unsigned(self, kind: str, headers: Mapping[str, str], raw: bytes) -> list[str]:
        bearer = headers.get("authorization", "")
        if kind == "openclaw" and bearer != f"Bearer {TOKEN}":
            return ["not authorised"]
        if kind == "composio" and headers.get("x-api-key") != KEY:
            return ["not authorised"]
        if kind == "webhook" and "x-ao-signature" in headers:
            signed = headers.get("x-ao-timestamp", "").encode() + b"." + raw
            good = "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
            return [] if hmac.compare_digest(good, headers["x-ao-signature"]) else ["a wrong signature"]
        return []

    def _judged(self, kind: str, path: str, wrong: list[str]) -> tuple[int, bytes]:
        if not kind:
            return 404, b"{}"
        if "not authorised" in wrong:
            return 401, b'{"error": {"message": "invalid key"}}'
        if path.startswith("/api/chat.postMessage"):
            return 200, b'{"ok": false, "error": "invalid_blocks"}' if wrong else b'{"ok": true, "ts": "1.1"}'
        if kind == "composio":
            said: dict[str, Any] = {"successful": not wrong, "error": "; ".join(wrong) or None, "data": {}}
            return 200, json.dumps(said).encode()
        if wrong:
            return 400, json.dumps({"message": "; ".join(wrong)}).encode()
        return 200, b'{"ok": true}' if kind != "slack" else b"ok"


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _handler(chat: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            answer = chat.take(self.path, {key.lower(): value for key, value in self.headers.items()}, raw)
            self.close_connection = True
            if answer is None:
                return
            status, headers, body = answer
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nobody reads it."""

    return Handler
