"""The issues of one project, as the facts have them; implements `IssueStorage`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence

from agent_orchestrator.changes.forge_records.numbers import NumberAllocator
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import author_kind
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.protocols.forge import Author, IssueChange, TrackerComment, TrackerIssue
from agent_orchestrator.protocols.text import clean_text, one_line

SOURCE = "forge"
"""The source of the events."""
AGENT = "agent"
"""The author of comments that plugins write."""


class ProjectIssues:
    """Reads from the facts and records events."""

    def __init__(self, flow: Flow, numbers: NumberAllocator, project: str) -> None:
        self._flow = flow
        self._numbers = numbers
        self._project = project

    def get(self, number: int) -> TrackerIssue | None:
        """Return an issue with its comments, or None if there is none with this number."""
        issue_facts = self._find(number)
        return None if issue_facts is None else _issue(issue_facts)

    def all(self) -> Sequence[TrackerIssue]:
        """Return all issues that are kept here, oldest first."""
        issues = (
            issue for issue in self._flow.home.issues.values() if issue.project == self._project and not issue.hosted
        )
        return [_issue(issue) for issue in sorted(issues, key=lambda issue: issue.number)]

    async def create(self, title: str, body: str, labels: Sequence[str]) -> int:
        """Create an issue with the next free number, and return it."""
        async with self._numbers.lock:
            number = self._numbers.next_number(self._project)
            opened = e.IssueOpened(number, one_line(title), clean_text(body), tuple(labels), hosted=False)
            await self._record(opened, f"issue:{self._project}:{uuid.uuid4().hex}")
        return number

    async def change(self, number: int, change: IssueChange) -> None:
        """Record what differs from what the issue has already."""
        issue_facts = self._find(number)
        if issue_facts is None:
            return
        bodies: list[e.Body] = [
            e.LabelAdded(number, label) for label in change.add_labels if label not in issue_facts.labels
        ]
        bodies += [e.LabelRemoved(number, label) for label in change.remove_labels if label in issue_facts.labels]
        new_fields = {
            name: value
            for name in ("title", "body", "state", "assignee")
            if (value := getattr(change, name)) is not None and value != getattr(issue_facts, name)
        }
        if new_fields:
            bodies.append(e.IssueChanged(number, **new_fields))
        for body in bodies:
            await self._record(body, f"issue-changed:{self._project}:{number}:{uuid.uuid4().hex}")

    async def comment(self, number: int, text: str, key: str) -> str:
        """Comment on an issue, once per key; returns the comment's id."""
        event_key = f"issue-comment:{self._project}:{number}:{key}"
        comment = comment_id(event_key)
        await self._record(e.IssueComment(number, comment, clean_text(text), AGENT), event_key)
        return comment

    def _find(self, number: int) -> Issue | None:
        """Return the facts of an issue that is kept here, or None."""
        issue_facts = self._flow.home.issues.get(issue_key(self._project, number))
        return issue_facts if issue_facts is not None and not issue_facts.hosted else None

    async def _record(self, body: e.Body, key: str) -> None:
        """Record an event about an issue."""
        await self._flow.append(Event(body, self._flow.clock(), SOURCE, key, self._project))


def comment_id(event_key: str) -> str:
    """Return the id of the comment that an event with this key adds."""
    return f"c-{hashlib.sha256(event_key.encode()).hexdigest()[:12]}"


def _issue(issue_facts: Issue) -> TrackerIssue:
    """Return an issue of the facts as plugins read it."""
    return TrackerIssue(
        id=str(issue_facts.number),
        title=issue_facts.title,
        body=issue_facts.body,
        state=issue_facts.state,
        labels=issue_facts.labels,
        assignee=issue_facts.assignee or None,
        author=_author(issue_facts.author, issue_facts.write_access),
        comments=tuple(
            TrackerComment(comment.id, _author(comment.author, comment.write_access), comment.body, comment.at)
            for comment in issue_facts.comments
        ),
        updated_at=issue_facts.updated_at,
    )


def _author(name: str, write_access: str) -> Author:
    """Return an author by the recorded name."""
    return Author(name, AGENT if name == AGENT else author_kind(name), write_access)
