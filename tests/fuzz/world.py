"""A daemon for fuzz tests, with projects of every kind, sessions in several states, issues, a plan, and tokens of every role."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox

SECRET = "fuzz-s3cret"
CONFIG = """
defaults: {{agent: demo, runtime: process}}
projects:
  {name}: {{path: ., {more}}}
"""
_HOOK = f"token: t, webhook: {{secret: {SECRET}}}"
_NOWHERE = "http://127.0.0.1:9"
UNREACHABLE_PROJECTS = {
    "hub": f'repo: o/n, scm: {{plugin: github, apiUrl: "{_NOWHERE}", {_HOOK}}}, tracker: local',
    "lab": f'repo: "gitlab.invalid/o/n", scm: {{plugin: gitlab, apiUrl: "{_NOWHERE}", {_HOOK}}}, tracker: local',
    "line": f'tracker: {{plugin: linear, team: LIN, apiUrl: "{_NOWHERE}/graphql", {_HOOK}}}',
    "jir": f'tracker: {{plugin: jira, project: LIN, url: "{_NOWHERE}", api: 3, {_HOOK}}}',
}
"""Projects of forges and trackers that do not answer; their webhooks are accepted nevertheless."""


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over the Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


@dataclass
class FuzzAnswer:
    """An answer of the daemon."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class FuzzWorld:
    """The daemon and its addresses."""

    box: Sandbox
    tokens: dict[str, str] = field(default_factory=dict)
    _log_offset: int = 0

    @property
    def url(self) -> str:
        """Its URL."""
        return str(json.loads(self.box.home.daemon_info.read_text())["url"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rpartition(":")[2])

    @property
    def socket(self) -> Path:
        """Its Unix socket."""
        return Path(json.loads(self.box.home.daemon_info.read_text())["socket"])

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        role: str | None = "admin",
    ) -> FuzzAnswer:
        """Send a request; `role` selects the token, `unix` the Unix socket, None no token."""
        connection = (
            UnixConnection(self.socket)
            if role == "unix"
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        )
        auth_headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role in self.tokens else {}
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in {**auth_headers, **(headers or {})}.items():
                connection.putheader(name, value.encode("utf-8"))
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return FuzzAnswer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def make(self, path: str, /, **body: Any) -> Any:
        """Create something over the Unix socket and return the parsed answer."""
        answer = self.ask("POST", path, _json(body), _JSON, "unix")
        assert answer.status < 300, (path, answer.body)
        return json.loads(answer.body)

    def events(self) -> int:
        """Return the number of the newest event."""
        events = json.loads(self.ask("GET", "/api/events?limit=1", role="unix").body)["events"]
        return int(events[-1]["seq"]) if events else 0

    def forge_events(self, after: int) -> list[str]:
        """Return the types of later events whose source is a forge or tracker."""
        events = json.loads(self.ask("GET", f"/api/events?limit=1000&after={after}", role="unix").body)["events"]
        return [event["type"] for event in events if event["source"] in ("github", "gitlab", "linear", "jira")]

    def assert_healthy(self) -> None:
        """Assert that the daemon runs and has logged no traceback since the last call."""
        log = self.box.home.log.read_bytes()
        new, self._log_offset = log[self._log_offset :].decode(errors="replace"), len(log)
        at = new.find("Traceback")
        assert at < 0, new[max(0, at - 300) : at + 6000]
        assert self.box.daemon_pid() is not None, "the daemon is gone"


def is_problem(answer: FuzzAnswer) -> bool:
    """Return whether an answer is a problem document."""
    if answer.headers.get("content-type") != "application/problem+json":
        return False
    document = json.loads(answer.body)
    return document["status"] == answer.status and bool(document["detail"]) and bool(document["title"])


@contextmanager
def world(*, small: bool = False) -> Iterator[FuzzWorld]:
    """Yield a running daemon, with minimal content if `small`."""
    with tempfile.TemporaryDirectory(prefix="ao-fz-") as name, Sandbox(Path(name)) as box:
        others = [project for project in UNREACHABLE_PROJECTS if not small or project == "hub"]
        for project in others:
            box.repository(project, config=CONFIG.format(name=project, more=UNREACHABLE_PROJECTS[project]))
        box.repository("app", config=CONFIG.format(name="app", more='ci: {command: "true"}'))
        box.start()
        created = FuzzWorld(box)
        for project in ("app", *others):
            created.make("/api/projects", path=str(box.folder / project))
        for role in ("admin", "operator", "viewer"):
            created.tokens[role] = created.make("/api/tokens", name=role, role=role)["token"]
        created.make("/api/issues", title="Odd é ☃ title", body="body", labels=["bug"], projectId="app")
        created.make("/api/sessions", prompt="[[ask: Which?]]", name="ask", projectId="app")
        if not small:
            work = "[[write: a é.txt|hello]] [[commit: one]] [[done: it is]]"
            created.make("/api/sessions", prompt=work, name="work", projectId="app")
            created.make("/api/sessions", name="later", defer=True, projectId="app")
            created.make("/api/plans", goal="do it", projectId="app", agent="demo")
            box.wait_until(
                lambda: box.session("app-work")["status"] not in ("starting", "working", "queued"), "a change", 30
            )
        box.wait_until(lambda: box.session("app-ask")["status"] == "needs_input", "a question", 30)
        created.assert_healthy()
        yield created


_JSON = {"Content-Type": "application/json"}


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
