"""The records of a Jira site."""

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
    """Whether the email address is hidden, although searches find the user by it."""


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
    """Status → possible next statuses; None allows every transition."""
    members: list[User] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    last: int = 0
    """The number of the newest issue; numbers are not reused."""

    def leads_to(self, status: Status) -> list[Status]:
        if self.ways is None:
            return [candidate for candidate in self.statuses if candidate is not status]
        names = self.ways.get(status.name, ())
        return [candidate for candidate in self.statuses if candidate.name in names]


@dataclass(eq=False)
class Comment:
    id: str
    author: User
    body: Any
    """A document, or a text on a server."""
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
    """Pairs of id and file name."""
    former: str = ""
    """Its key in a previous project."""

    @property
    def key(self) -> str:
        return f"{self.project.key}-{self.number}"
