"""Who tries to get in and may not, by a real daemon on real sockets.

Each test comes from a loopback address of its own, so that its lines in the daemon's log are known by that.
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
"""The last number of the next stranger's address."""


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stranger:
    """Somebody at an address of his own, who asks the daemon over TCP."""

    box: Sandbox
    address: str

    @property
    def url(self) -> str:
        return str(json.loads(self.box.home.info.read_text())["url"])

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def ask(self, method: str, path: str, body: Any = None, /, **headers: str) -> Answer:
        """One request; underscores in header names stand for dashes, and no path is made better than it is."""
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
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def send(self, *lines: str, body: bytes = b"", patience: float = 0.0) -> bytes:
        """What comes back when these very lines are sent; `HOST` stands for the daemon's own name.

        With `patience` the connection is to stay, and nothing more is awaited after so many seconds of silence.
        """
        closes = () if patience else ("Connection: close",)
        head = "\r\n".join((*lines, *closes, "", "")).replace("HOST", self.host)
        name, _, port = self.host.partition(":")
        with socket.create_connection((name, int(port)), 60, (self.address, 0)) as connection:
            connection.sendall(head.encode("latin-1") + body)
            connection.settimeout(patience or 60)
            answer = b""
            with contextlib.suppress(ConnectionResetError, *([TimeoutError] if patience else [])):
                while more := connection.recv(1 << 16):
                    answer += more
        return answer

    def sign_in(self, **body: str) -> dict[str, str]:
        """What a page of ours sends once it is signed in."""
        answer = self.ask("POST", "/api/login", body or {"code": self.code()}, Origin=self.url)
        assert answer.status == 200, answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "Origin": self.url, "X-AO-Page": answer.json()["page"]}

    def code(self, **body: str) -> str:
        made = self.box.request("POST", "/api/login-links", body)
        return str(made["url"]).partition("#login=")[2]

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

    def logged(self) -> list[str]:
        """The lines about refusals to this address."""
        lines = self.box.home.log.read_text().splitlines()
        return [line for line in lines if "event=refused" in line and f"peer={self.address}" in line]

    def was_refused(self, *words: str) -> None:
        """The last refusal is written down, with these words in it."""
        lines = self.logged()
        assert lines and "level=warning" in lines[-1], lines
        for word in words:
            assert word in lines[-1], lines[-1]
