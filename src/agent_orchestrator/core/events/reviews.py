"""Events of reviews, comments and discussions of a change."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class ReviewSubmitted(Body):
    """A review was submitted: `approved`, `changes_requested` or `commented`."""

    review: str
    verdict: str
    head: str
    author: str = "person"
    body: str = ""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """The kind of reviewer: a `person`, a `bot` or an `agent`."""
    reviewer: str = ""
    """The session of the reviewing agent."""
    counts: bool = True
    """It is approval enough; that of a bot or an agent is so only where the project says it."""


@record
class ReviewChanged(Body):
    """A review counts otherwise than before: it was dismissed, or submitted again."""

    review: str
    verdict: str


@record
class ThreadSettled(Body):
    """A discussion was resolved, or reopened."""

    thread: str
    resolved: bool


@record
class ResolveRequested(Body):
    """A person says that a discussion is settled; it is to be resolved at the forge."""

    thread: str


@record
class PeopleRequested(Body):
    """These people are to be asked at the forge to look at the change."""

    people: tuple[str, ...]


@record
class PeopleAsked(Body):
    """The forge has asked these people to look at the change."""

    people: tuple[str, ...]


@record
class CommentAdded(Body):
    """The change, or a line of it, was commented on."""

    comment: str
    body: str
    author: str = "person"
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    """The comment that it answers."""
    review: str | None = None
    by_agent: bool = False
    head: str = ""
    """The commit that was looked at."""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """Who speaks: a `person`, a `bot` or an `agent`."""


@record
class ReviewRequested(Body):
    """An agent is asked to review the change, for the how-many-eth time."""

    reviewer: str
    head: str
    round: int = 1
