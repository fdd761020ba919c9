"""What a Jira site holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CATEGORIES = {
    "new": (2, "To Do", "blue-gray"),
    "indeterminate": (4, "In Progress", "yellow"),
    "done": (3, "Done", "green"),
}
STATUSES = (("To Do", "new"), ("In Progress", "indeterminate"), ("In Review", "indeterminate"), ("Done", "done"))


@dataclass(eq=False)
class User:
    account: str
    name: str
    display: str
    email: str
    kind: str = "atlassian"
    shy: bool = False
    """The address is not shown, though one is found by it."""


@dataclass(eq=False)
class Status:
    id: str
    name: str
    category: str


@dataclass(eq=False)
class Project:
    id: str
    key: str
    statuses: list[Status] = field(default_factory=list)
    ways: Mapping[str, Sequence[str]] | None = None
    """Which statuses lead where; none: each to each."""
    members: list[User] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    last: int = 0
    """The newest issue's number; none is given twice."""

    def leads_to(self, status: Status) -> list[Status]:
        if self.ways is None:
            return [one for one in self.statuses if one is not status]
        names = self.ways.get(status.name, ())
        return [one for one in self.statuses if one.name in names]


@dataclass(eq=False)
class Comment:
    id: str
    author: User
    body: Any
    """A document, or on a server a text."""
    at: float
    properties: list[dict[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Issue:
    id: str
    project: Project
    number: int
    title: str
    body: Any
    status: Status
    reporter: User
    created: float
    updated: float
    kind: str = "Task"
    labels: list[str] = field(default_factory=list)
    assignee: User | None = None
    comments: list[Comment] = field(default_factory=list)
    attachments: list[tuple[str, str]] = field(default_factory=list)
    """Id and file name."""
    former: str = ""
    """The key that it had in another project."""

    @property
    def key(self) -> str:
        return f"{self.project.key}-{self.number}"
