"""A daemon with something in it: projects of every kind, sessions in several states, issues, a plan, tokens of every role."""

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
ELSEWHERE = {
    "hub": f'repo: o/n, scm: {{plugin: github, apiUrl: "{_NOWHERE}", {_HOOK}}}, tracker: local',
    "lab": f'repo: "gitlab.invalid/o/n", scm: {{plugin: gitlab, apiUrl: "{_NOWHERE}", {_HOOK}}}, tracker: local',
    "line": f'tracker: {{plugin: linear, team: LIN, apiUrl: "{_NOWHERE}/graphql", {_HOOK}}}',
    "jir": f'tracker: {{plugin: jira, project: LIN, url: "{_NOWHERE}", api: 3, {_HOOK}}}',
}
"""Projects of forges and trackers that do not answer: what they send is taken all the same."""


class Over(http.client.HTTPConnection):
    """HTTP over the Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        """Dial."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


@dataclass
class Answer:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class World:
    """The daemon and how it is reached."""

    box: Sandbox
    tokens: dict[str, str] = field(default_factory=dict)
    _seen: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return str(json.loads(self.box.home.info.read_text())["url"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rpartition(":")[2])

    @property
    def socket(self) -> Path:
        """Its Unix socket."""
        return Path(json.loads(self.box.home.info.read_text())["socket"])

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        role: str | None = "admin",
    ) -> Answer:
        """One request; `role`: whose token is shown, `unix` for the Unix socket, none for nobody's."""
        link = Over(self.socket) if role == "unix" else http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        shown = {"Authorization": f"Bearer {self.tokens[role]}"} if role in self.tokens else {}
        with contextlib.closing(link):
            link.putrequest(method, path, skip_accept_encoding=True)
            for name, value in {**shown, **(headers or {})}.items():
                link.putheader(name, value.encode("utf-8"))
            if body is not None:
                link.putheader("Content-Length", str(len(body)))
            link.endheaders(body)
            answer = link.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def make(self, path: str, /, **body: Any) -> Any:
        """Make something, over the Unix socket."""
        answer = self.ask("POST", path, _json(body), _JSON, "unix")
        assert answer.status < 300, (path, answer.body)
        return json.loads(answer.body)

    def events(self) -> int:
        """How many events there are."""
        found = json.loads(self.ask("GET", "/api/events?limit=1", role="unix").body)["events"]
        return int(found[-1]["seq"]) if found else 0

    def heard(self, after: int) -> list[str]:
        """The kinds of what was told by a forge or a tracker since then."""
        found = json.loads(self.ask("GET", f"/api/events?limit=1000&after={after}", role="unix").body)["events"]
        return [one["type"] for one in found if one["source"] in ("github", "gitlab", "linear", "jira")]

    def sound(self) -> None:
        """It is there, and wrote of no fault of its own since it was last looked at."""
        log = self.box.home.log.read_bytes()
        new, self._seen = log[self._seen :].decode(errors="replace"), len(log)
        at = new.find("Traceback")
        assert at < 0, new[max(0, at - 300) : at + 6000]
        assert self.box.daemon_pid() is not None, "the daemon is gone"


def is_problem(answer: Answer) -> bool:
    """Whether an error is told as errors are: by a problem document."""
    if answer.headers.get("content-type") != "application/problem+json":
        return False
    document = json.loads(answer.body)
    return document["status"] == answer.status and bool(document["detail"]) and bool(document["title"])


@contextmanager
def world(*, small: bool = False) -> Iterator[World]:
    """A daemon of its own, ended at the end. `small`: with as little in it as will do."""
    with tempfile.TemporaryDirectory(prefix="ao-fz-") as name, Sandbox(Path(name)) as box:
        others = [project for project in ELSEWHERE if not small or project == "hub"]
        for project in others:
            box.repository(project, config=CONFIG.format(name=project, more=ELSEWHERE[project]))
        box.repository("app", config=CONFIG.format(name="app", more='ci: {command: "true"}'))
        box.start()
        made = World(box)
        for project in ("app", *others):
            made.make("/api/projects", path=str(box.folder / project))
        for role in ("admin", "operator", "viewer"):
            made.tokens[role] = made.make("/api/tokens", name=role, role=role)["token"]
        made.make("/api/issues", title="Odd é ☃ title", body="body", labels=["bug"], projectId="app")
        made.make("/api/sessions", prompt="[[ask: Which?]]", name="ask", projectId="app")
        if not small:
            work = "[[write: a é.txt|hello]] [[commit: one]] [[done: it is]]"
            made.make("/api/sessions", prompt=work, name="work", projectId="app")
            made.make("/api/sessions", name="later", defer=True, projectId="app")
            made.make("/api/plans", goal="do it", projectId="app", agent="demo")
            box.until(
                lambda: box.session("app-work")["status"] not in ("starting", "working", "queued"), "a change", 30
            )
        box.until(lambda: box.session("app-ask")["status"] == "needs_input", "a question", 30)
        made.sound()
        yield made


_JSON = {"Content-Type": "application/json"}


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
