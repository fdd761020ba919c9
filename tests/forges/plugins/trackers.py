"""Each tracker's test server with our plugin for it, behind one interface, so that the same tests run for all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.forges.jira.issues import JiraIssues
from agent_orchestrator.plugins.forges.jira.webhooks import JiraHooks
from agent_orchestrator.plugins.forges.linear.issues import LinearIssues
from agent_orchestrator.plugins.forges.linear.webhooks import LinearHooks
from agent_orchestrator.protocols.forge import Hooks, Tracker
from agent_orchestrator.testing.forge.tracker import TrackerServer
from agent_orchestrator.testing.jira import JiraServer
from agent_orchestrator.testing.linear import LinearServer

Server = TypeVar("Server", bound=TrackerServer)


class TrackerBench(ABC, Generic[Server]):
    """A project with the members `dev` (whose token we have) and `rev`, and the outsider `eve`."""

    name: str
    prefix: str
    server: Server
    hooks: Hooks
    posts: str
    """A part of the requests that post a comment."""

    @abstractmethod
    def plugin(self, by: str = "dev", **config: Any) -> Tracker: ...

    @abstractmethod
    def issue(self, title: str, body: str = "", **more: Any) -> Any: ...

    @abstractmethod
    def comment(self, issue: Any, body: str, by: str = "dev") -> Any: ...

    @abstractmethod
    def status(self, issue: Any) -> str:
        """Return the tracker's name of the issue's state."""

    @abstractmethod
    def move(self, issue: Any, status: str) -> None: ...

    @abstractmethod
    def label(self, issue: Any, name: str) -> None: ...

    @abstractmethod
    def attach(self, issue: Any) -> str: ...


class LinearBench(TrackerBench[LinearServer]):
    name, prefix, posts = "linear", "LIN", "commentCreate"
    hooks = LinearHooks()

    def __init__(self, schema: Path, clock: Callable[[], float] = time.time) -> None:
        self.server = LinearServer(schema=schema, clock=clock)
        self.clock = clock
        for person in ("dev", "rev"):
            self.server.user(person)
        self.server.user("eve", guest=True)
        self.team = self.server.team("LIN")

    def plugin(self, by: str = "dev", **config: Any) -> LinearIssues:
        settings = {"team": "LIN", "apiUrl": self.server.api, "token": self.server.token(by), **config}
        return LinearIssues(settings, LocalHost(), self.clock)

    def issue(self, title: str, body: str = "", **more: Any) -> Any:
        return self.server.issue(self.team, title, body, **more)

    def comment(self, issue: Any, body: str, by: str = "dev") -> Any:
        return self.server.comment(issue, body, by=by)

    def status(self, issue: Any) -> str:
        return str(issue.state.name)

    def move(self, issue: Any, status: str) -> None:
        self.server.move(issue, status)

    def label(self, issue: Any, name: str) -> None:
        self.server.label_issue(issue, name)

    def attach(self, issue: Any) -> str:
        self.server.attach(issue, "trace", "https://files.example/trace.txt")
        return "https://files.example/trace.txt"


class JiraBench(TrackerBench[JiraServer]):
    prefix, posts = "APP", "/comment"
    hooks = JiraHooks()

    def __init__(self, api: int, clock: Callable[[], float] = time.time, **project: Any) -> None:
        self.name = "jira cloud" if api == 3 else "jira server"
        self.api = api
        self.server = JiraServer(clock=clock)
        self.clock = clock
        self.server.user("eve")
        self.project = self.server.project("APP", members=("dev", "rev"), **project)

    def plugin(self, by: str = "dev", **config: Any) -> JiraIssues:
        settings = {"url": self.server.url, "project": "APP", "api": self.api, "token": self.server.token(by), **config}
        if self.api == 3:
            settings.setdefault("email", f"{by}@acme.example")
        return JiraIssues(settings, LocalHost(), self.clock)

    def issue(self, title: str, body: str = "", **more: Any) -> Any:
        return self.server.issue(self.project, title, body, **more)

    def comment(self, issue: Any, body: str, by: str = "dev") -> Any:
        return self.server.comment(issue, body, by=by)

    def status(self, issue: Any) -> str:
        return str(issue.status.name)

    def move(self, issue: Any, status: str) -> None:
        self.server.move(issue, status)

    def label(self, issue: Any, name: str) -> None:
        self.server.label_issue(issue, name)

    def attach(self, issue: Any) -> str:
        return self.server.attach(issue, "trace.txt", self.api)


def lower_case_names(people: Sequence[str]) -> list[str]:
    """Return the names in lower case: trackers differ in how they capitalise them."""
    return [person.lower() for person in people]
