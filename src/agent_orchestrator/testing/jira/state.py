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
class JiraUser:
    account: str
    name: str
    display: str
    email: str
    kind: str = "atlassian"
    has_hidden_email: bool = False
    """Whether the email address is hidden, although searches find the user by it."""


@dataclass(eq=False)
class JiraStatusRecord:
    id: str
    name: str
    category: str


@dataclass(eq=False)
class JiraProject:
    id: str
    key: str
    statuses: list[JiraStatusRecord] = field(default_factory=list)
    transitions: Mapping[str, Sequence[str]] | None = None
    """Status → possible next statuses; None allows every transition."""
    members: list[JiraUser] = field(default_factory=list)
    issues: list[JiraIssue] = field(default_factory=list)
    last_number: int = 0
    """The number of the newest issue; numbers are not reused."""

    def next_statuses(self, status: JiraStatusRecord) -> list[JiraStatusRecord]:
        if self.transitions is None:
            return [candidate for candidate in self.statuses if candidate is not status]
        names = self.transitions.get(status.name, ())
        return [candidate for candidate in self.statuses if candidate.name in names]


@dataclass(eq=False)
class JiraComment:
    id: str
    author: JiraUser
    body: Any
    """A document, or a text on a server."""
    at: float
    properties: list[dict[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class JiraIssue:
    id: str
    project: JiraProject
    number: int
    title: str
    body: Any
    status: JiraStatusRecord
    reporter: JiraUser
    created: float
    updated: float
    kind: str = "Task"
    labels: list[str] = field(default_factory=list)
    assignee: JiraUser | None = None
    comments: list[JiraComment] = field(default_factory=list)
    attachments: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of id and file name."""
    former_key: str = ""
    """Its key in a previous project."""

    @property
    def key(self) -> str:
        return f"{self.project.key}-{self.number}"
