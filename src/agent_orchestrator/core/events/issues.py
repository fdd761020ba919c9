"""Events of issues."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class IssueOpened(Body):
    """An issue was opened."""

    number: int
    title: str
    body: str = ""
    labels: tuple[str, ...] = ()
    author: str = "person"
    after: tuple[int, ...] = ()
    """Issues that must be closed before."""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    key: str = ""
    """How the tracker calls it, where that is not its number: `LIN-3`."""
    url: str | None = None
    tracker: str = "local"
    branch: str | None = None
    """The branch that the tracker suggests."""
    assignee: str | None = None
    hosted: bool | None = None
    """It is at a service; if not, it is kept here. None: recorded before this was (`core.pull_request.is_hosted`)."""


@record
class IssueTracked(Body):
    """The tracker was updated with the state of the work on the session's issue: `in_progress`, `in_review` or `closed`."""

    state: str


@record
class IssueChanged(Body):
    """An issue's title, text, state or assignee is another; what is not given stays."""

    number: int
    title: str | None = None
    body: str | None = None
    state: str | None = None
    assignee: str | None = None
    after: tuple[int, ...] | None = None
    author: str = "person"
    """Who may have changed title, text or state: by default the author of the issue."""
    write_access: str = "yes"
    """May he write to the repository: `yes`, `no` or `unknown`."""


@record
class IssuePlanned(Body):
    """An issue is a task of a plan: what the plan says of it beyond its text."""

    number: int
    plan: str
    task: str
    """The task's id in the plan."""
    profile: str | None = None
    """Who is suggested to take it."""
    priority: int = 0
    files: tuple[str, ...] = ()
    """Files that it is expected to change."""
    after: tuple[int, ...] = ()
    """Issues that must be closed before."""
    start: bool = True
    """It is taken as soon as there is room, whether issues are taken by themselves or not."""


@record
class LabelAdded(Body):
    """An issue got a label."""

    number: int
    label: str


@record
class LabelRemoved(Body):
    """An issue lost a label."""

    number: int
    label: str


@record
class IssueComment(Body):
    """An issue was commented on."""

    number: int
    comment: str
    body: str
    author: str = "person"
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
