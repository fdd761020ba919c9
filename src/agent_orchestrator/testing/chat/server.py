"""`ChatServer`: the chat services, at different paths on one loopback port."""

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

SLACK_TOKEN = "xoxb-chat-server-token"
COMPOSIO_KEY = "ak_chat-server"
SIGNING_SECRET = "chat-server-secret"


@dataclass(frozen=True, slots=True)
class ChatFault:
    """The failure of one request."""

    status: int | str
    """An HTTP status; `hang` (no answer), or `cut` (the request is accepted, and the connection ends without an answer)."""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received request."""

    kind: str
    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes
    violations: list[str] = field(default_factory=list)
    status: int = 200


class ChatServer:
    """The server. Start it with `with ChatServer() as chat:`; its attributes are the addresses of the services."""

    def __init__(self) -> None:
        self.received: list[ReceivedMessage] = []
        """The accepted requests in order; those that a fault refused are in `refused`."""
        self.refused: list[ReceivedMessage] = []
        self._faults: list[ChatFault] = []
        self._closing = threading.Event()
        self._received_changed = threading.Condition()
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
        """Stop the server; later connections are refused."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.shutdown()
            self._server.server_close()

    def fail(self, *faults: ChatFault) -> None:
        """Make the next requests fail, in this order."""
        self._faults += faults

    def wait(self, count: int, timeout: float = 20.0) -> list[ReceivedMessage]:
        """Wait until `count` requests were accepted and return them; raise `AssertionError` after `timeout` seconds."""
        with self._received_changed:
            assert self._received_changed.wait_for(lambda: len(self.received) >= count, timeout), (
                f"{len(self.received)} came"
            )
        return self.received

    # -- requests ----------------------------------------------------------------------------------------------------------

    def check_request(
        self, path: str, headers: Mapping[str, str], raw: bytes
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """Check a request and return status, headers and body, or None to send no answer."""
        kind, body = self._kind(path), _json(raw)
        checked_body = (
            {**body, "tool": path.rpartition("/")[2]} if kind == "composio" and isinstance(body, dict) else body
        )
        problems = (
            [*violations(kind, checked_body), *self._authorization_problems(kind, headers, raw)]
            if kind
            else ["unknown path"]
        )
        if self._faults:
            return self._fault_answer(self._faults.pop(0), ReceivedMessage(kind, path, headers, body, raw, problems))
        status, answer = self._response(kind, path, problems)
        received = ReceivedMessage(kind, path, headers, body, raw, problems, status)
        with self._received_changed:
            (self.refused if problems else self.received).append(received)
            self._received_changed.notify_all()
        return status, {"Content-Type": "application/json"}, answer

    def _fault_answer(self, fault: ChatFault, received: ReceivedMessage) -> tuple[int, Mapping[str, str], bytes] | None:
        if isinstance(fault.status, str):
            self.received.append(received)  # it arrived, but gets no answer
            if fault.status == "hang":
                self._closing.wait(60.0)
            return None
        self.refused.append(received)
        headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        return fault.status, headers, b""

    def _kind(self, path: str) -> str:
        bare_path = path.partition("?")[0]
        for kind, prefixes in (
            ("slack", ("/services/", "/api/chat.postMessage")),
            ("discord", ("/api/webhooks/",)),
            ("composio", ("/api/v3/tools/execute/",)),
            ("openclaw", ("/hooks/agent",)),
            ("webhook", ("/hook",)),
            ("other", ("/other",)),
        ):
            if bare_path.startswith(prefixes):
                return kind
        return ""

    def _authorization_problems(self, kind: str, headers: Mapping[str, str], raw: bytes) -> list[str]:
        bearer = headers.get("authorization", "")
        if kind == "openclaw" and bearer != f"Bearer {SLACK_TOKEN}":
            return ["not authorised"]
        if kind == "composio" and headers.get("x-api-key") != COMPOSIO_KEY:
            return ["not authorised"]
        if kind == "webhook" and "x-ao-signature" in headers:
            signed = headers.get("x-ao-timestamp", "").encode() + b"." + raw
            expected = "sha256=" + hmac.new(SIGNING_SECRET.encode(), signed, hashlib.sha256).hexdigest()
            return [] if hmac.compare_digest(expected, headers["x-ao-signature"]) else ["a wrong signature"]
        return []

    def _response(self, kind: str, path: str, problems: list[str]) -> tuple[int, bytes]:
        if not kind:
            return 404, b"{}"
        if "not authorised" in problems:
            return 401, b'{"error": {"message": "invalid key"}}'
        if path.startswith("/api/chat.postMessage"):
            return 200, b'{"ok": false, "error": "invalid_blocks"}' if problems else b'{"ok": true, "ts": "1.1"}'
        if kind == "composio":
            result: dict[str, Any] = {"successful": not problems, "error": "; ".join(problems) or None, "data": {}}
            return 200, json.dumps(result).encode()
        if problems:
            return 400, json.dumps({"message": "; ".join(problems)}).encode()
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
            answer = chat.check_request(self.path, {key.lower(): value for key, value in self.headers.items()}, raw)
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
            """Log nothing."""

    return Handler
