"""The records of a Linear workspace."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

STATES = (
    ("Triage", "triage"),
    ("Backlog", "backlog"),
    ("Todo", "unstarted"),
    ("In Progress", "started"),
    ("In Review", "started"),
    ("Done", "completed"),
    ("Canceled", "canceled"),
)


def next_number(team: Team) -> int:
    team.last += 1
    return team.last


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(eq=False)
class User:
    name: str
    display_name: str
    email: str
    guest: bool = False
    app: bool = False
    id: str = field(default_factory=new_id)
    url: str = ""


@dataclass(eq=False)
class WorkflowState:
    name: str
    type: str
    position: float
    color: str = "#bec2c8"
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Label:
    name: str
    team: Team | None
    created_at: str
    color: str = "#5e6ad2"
    is_group: bool = False
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Team:
    key: str
    name: str
    states: list[WorkflowState] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    last: int = 0
    """The number of the newest issue; numbers are not reused."""
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Attachment:
    title: str
    url: str
    created_at: str
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Comment:
    issue: Issue
    body: str
    user: User | None
    created_at: str
    external_user: User | None = None
    bot_actor: None = None
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Issue:
    team: Team
    number: int
    title: str
    description: str
    state: WorkflowState
    creator: User | None
    created_at: str
    updated_at: str
    root: str
    assignee: User | None = None
    labels: list[Label] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    external_user_creator: User | None = None
    bot_actor: None = None
    former: list[str] = field(default_factory=list)
    """Its previous identifiers."""
    id: str = field(default_factory=new_id)

    @property
    def identifier(self) -> str:
        return f"{self.team.key}-{self.number}"

    @property
    def url(self) -> str:
        return f"{self.root}/acme/issue/{self.identifier}/{slug(self.title)}"

    @property
    def branch_name(self) -> str:
        who = f"{slug(self.creator.display_name)}/" if self.creator else ""
        return f"{who}{self.identifier.lower()}-{slug(self.title)}".rstrip("-")


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
