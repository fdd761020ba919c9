"""A TCP client of a real daemon, for requests that are to be refused.

Each test uses a different loopback address, which identifies its lines in the daemon's log.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection, connect

from agent_orchestrator.testing.sandbox import Sandbox

ADDRESSES = itertools.count(10)
"""The last number of the next client's address."""


@dataclass
class TcpAnswer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class TcpClient:
    """A client that sends requests to the daemon over TCP from its own address."""

    box: Sandbox
    address: str

    @property
    def url(self) -> str:
        return str(json.loads(self.box.home.daemon_info.read_text())["url"])

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def ask(self, method: str, path: str, body: Any = None, /, **headers: str) -> TcpAnswer:
        """Send one request and return the answer; underscores in header names stand for dashes, and the path is not normalized."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if body is not None:
            fields.setdefault("Content-Type", "application/json")
        name, _, port = self.host.partition(":")
        connection = http.client.HTTPConnection(name, int(port), timeout=60, source_address=(self.address, 0))
        try:
            connection.putrequest(method, path, skip_host="Host" in fields)
            for key, value in fields.items():
                connection.putheader(key, value)
            if content is not None:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            return TcpAnswer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def send(self, *lines: str, body: bytes = b"", quiet_seconds: float = 0.0) -> bytes:
        """Send exactly these lines and return the response; `HOST` stands for the daemon's own name.

        With `quiet_seconds` the connection stays open, and reading ends after this many seconds of silence.
        """
        closes = () if quiet_seconds else ("Connection: close",)
        head = "\r\n".join((*lines, *closes, "", "")).replace("HOST", self.host)
        name, _, port = self.host.partition(":")
        with socket.create_connection((name, int(port)), 60, (self.address, 0)) as connection:
            connection.sendall(head.encode("latin-1") + body)
            connection.settimeout(quiet_seconds or 60)
            answer = b""
            with contextlib.suppress(ConnectionResetError, *([TimeoutError] if quiet_seconds else [])):
                while chunk := connection.recv(1 << 16):
                    answer += chunk
        return answer

    def sign_in(self, **body: str) -> dict[str, str]:
        """Sign in and return the headers that the dashboard sends afterwards."""
        answer = self.ask("POST", "/api/login", body or {"code": self.sign_in_code()}, Origin=self.url)
        assert answer.status == 200, answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "Origin": self.url, "X-AO-Page": answer.json()["page"]}

    def sign_in_code(self, **body: str) -> str:
        link = self.box.request("POST", "/api/login-links", body)
        return str(link["url"]).partition("#login=")[2]

    def token(self, role: str) -> str:
        return str(self.box.json("token", "new", f"{role}-{self.address}", "--role", role)["token"])

    def terminal(self, session: str, **headers: str) -> ClientConnection:
        name, _, port = self.host.partition(":")
        sock = socket.create_connection((name, int(port)), 60, (self.address, 0))
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        host = fields.pop("Host", self.host)
        try:
            path = f"ws://{host}/api/sessions/{session}/terminal"
            return connect(path, sock=sock, additional_headers=fields, open_timeout=60)
        except BaseException:
            sock.close()
            raise

    def refusal_lines(self) -> list[str]:
        """Return the log lines about refused requests from this address."""
        lines = self.box.home.log.read_text().splitlines()
        return [line for line in lines if "event=refused" in line and f"peer={self.address}" in line]

    def assert_last_refusal(self, *expected_parts: str) -> None:
        """Check that the last refused request is logged with these words."""
        lines = self.refusal_lines()
        assert lines and "level=warning" in lines[-1], lines
        for expected in expected_parts:
            assert expected in lines[-1], lines[-1]
