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


def next_number(team: LinearTeamRecord) -> int:
    team.last_number += 1
    return team.last_number


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(eq=False)
class LinearUser:
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
class LinearLabel:
    name: str
    team: LinearTeamRecord | None
    created_at: str
    color: str = "#5e6ad2"
    is_group: bool = False
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class LinearTeamRecord:
    key: str
    name: str
    states: list[WorkflowState] = field(default_factory=list)
    issues: list[LinearIssue] = field(default_factory=list)
    last_number: int = 0
    """The number of the newest issue; numbers are not reused."""
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class Attachment:
    title: str
    url: str
    created_at: str
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class LinearComment:
    issue: LinearIssue
    body: str
    user: LinearUser | None
    created_at: str
    external_user: LinearUser | None = None
    bot_actor: None = None
    id: str = field(default_factory=new_id)


@dataclass(eq=False)
class LinearIssue:
    team: LinearTeamRecord
    number: int
    title: str
    description: str
    state: WorkflowState
    creator: LinearUser | None
    created_at: str
    updated_at: str
    root: str
    assignee: LinearUser | None = None
    labels: list[LinearLabel] = field(default_factory=list)
    comments: list[LinearComment] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    external_user_creator: LinearUser | None = None
    bot_actor: None = None
    former_identifiers: list[str] = field(default_factory=list)
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
