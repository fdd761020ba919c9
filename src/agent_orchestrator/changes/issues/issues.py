"""Issues with labels, comments, an assignee, and other issues that must be closed first, wherever they are kept.

Issues and pull requests of a project are numbered together. Text is cleaned on input; in a task it is fenced as text of
its author.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from agent_orchestrator.changes.forge_records import NumberAllocator
from agent_orchestrator.changes.forge_records.issues import comment_id
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import LOCAL_PERSON, TextAuthor
from agent_orchestrator.core.dependencies import is_about, open_prerequisites, session_working_on
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.forge import IssueChange
from agent_orchestrator.sessions.creation.issue_task import find_issue

IssueRows = list[dict[str, Any]]
"""Issues as JSON objects."""

STATES = ("open", "closed")
MAX_TITLE_LENGTH = 300
MAX_BODY_LENGTH = 100_000
MAX_LABEL_LENGTH = 80
MAX_LABELS = 50


class RemoteTracker(Protocol):
    """The trackers that are services."""

    async def create(self, project: str, title: str, body: str, labels: Sequence[str]) -> int | None:
        """Create an issue there and return its number, or None if the project's tracker is no service."""
        ...

    async def change(self, project: str, issue: str, change: IssueChange) -> bool:
        """Change an issue there. Return False if the project's tracker is no service."""
        ...

    async def comment(self, project: str, issue: str, text: str, key: str) -> None:
        """Add a comment to an issue there."""
        ...


class Issues:
    """Requests about issues."""

    def __init__(self, flow: Flow, numbers: NumberAllocator, remote: RemoteTracker) -> None:
        """`remote` changes issues of projects whose tracker is a service."""
        self.flow = flow
        self.numbers = numbers
        self.remote = remote

    # -- reading -------------------------------------------------------------------------------------------------------

    def list(self, project: str | None, *, labels: Sequence[str] = (), state: str = "open") -> IssueRows:
        """Return the issues with all of these labels, by project and number; state `all` includes open and closed ones."""
        if state not in (*STATES, "all"):
            raise UsageError(f"{state!r} is no state of an issue", "one of open, closed, all")
        issues = [
            issue
            for issue in self.flow.home.issues.values()
            if project in (None, issue.project)
            and state in ("all", issue.state)
            and all(label in issue.labels for label in labels)
        ]
        return [self._issue_json(issue) for issue in sorted(issues, key=lambda issue: (issue.project, issue.number))]

    def list_in_start_order(self, project: str | None, *, labels: Sequence[str] = ()) -> IssueRows:
        """Return open issues in the order in which they would be started: those that wait for nothing first."""
        return sorted(self.list(project, labels=labels), key=lambda issue: issue["waitingFor"] is not None)

    def get(self, project: str, number: int) -> dict[str, Any]:
        """Return one issue. Raises `NotFound`."""
        return self._issue_json(self._find_issue(project, number))

    def _find_issue(self, project: str, number: int) -> Issue:
        """Return an issue's facts. Raises `NotFound`."""
        return find_issue(self.flow, project, number)

    def _issue_json(self, issue: Issue) -> dict[str, Any]:
        """Return an issue as a JSON object."""
        return {
            "number": issue.number,
            "key": issue.name,
            "id": issue_key(issue.project, issue.number),
            "project": issue.project,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state,
            "labels": list(issue.labels),
            "author": issue.author,
            "writeAccess": issue.write_access,
            "assignee": issue.assignee or None,
            "after": list(issue.after),
            "comments": [
                {
                    "id": comment.id,
                    "author": comment.author,
                    "writeAccess": comment.write_access,
                    "body": comment.body,
                    "at": rfc3339(comment.at),
                }
                for comment in issue.comments
            ],
            "sessions": [facts.id for facts in self.flow.sessions.values() if is_about(issue, facts)],
            "waitingFor": self._blocker_of(issue),
            "createdAt": rfc3339(issue.created_at),
            "updatedAt": rfc3339(issue.updated_at),
            "url": issue.url,
        }

    def _blocker_of(self, issue: Issue) -> str | None:
        """Return what an open issue waits for before it is started, or None."""
        if issue.state != "open":
            return None
        if facts := session_working_on(issue, self.flow.sessions.values()):
            return f"{facts.id}, which works on it"
        if open_issues := open_prerequisites(issue, self.flow.home.issues):
            return f"{', '.join(f'issue {number}' for number in open_issues)} to be closed"
        return None

    # -- changing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        project: str,
        title: str,
        body: str = "",
        labels: Iterable[str] = (),
        after: Iterable[int] = (),
        words: TextAuthor = LOCAL_PERSON,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """Create an issue and return it; a repeated request with the same key returns the same issue."""
        event_key = f"issue:{project}:{key or uuid.uuid4().hex}"
        title, body, labels = _clean_title(title), _clean_body(body, "text"), _clean_labels(labels)
        prerequisites = tuple(dict.fromkeys(after))
        for other in prerequisites:
            self._find_issue(project, other)
        if (remote_number := await self.remote.create(project, title, body, labels)) is not None:
            return self.get(project, remote_number)
        async with self.numbers.lock:
            earlier = await self.flow.store.event_by_key(event_key) if key else None
            if earlier is not None and isinstance(earlier.body, e.IssueOpened):
                return self.get(project, earlier.body.number)
            number = self.numbers.next_number(project)
            issue_opened = e.IssueOpened(
                number, title, body, labels, words.author, prerequisites, words.write_access, hosted=False
            )
            await self._record(project, issue_opened, event_key, by)
        return self.get(project, number)

    async def change(
        self,
        project: str,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        state: str | None = None,
        assignee: str | None = None,
        after: Sequence[int] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Change the given fields and return the issue; an empty assignee removes the present one."""
        issue = self._find_issue(project, number)
        if state is not None and state not in STATES:
            raise UsageError(f"{state!r} is no state of an issue", f"one of {', '.join(STATES)}")
        prerequisites = None if after is None else tuple(dict.fromkeys(after))
        self._refuse_cycle(issue, prerequisites or ())
        changed = e.IssueChanged(
            number,
            title=None if title is None else _clean_title(title),
            body=None if body is None else _clean_body(body, "text"),
            state=state,
            assignee=None if assignee is None else _clean_line(assignee, "assignee", MAX_LABEL_LENGTH),
            after=prerequisites,
        )
        remote_change = IssueChange(state=state, assignee=assignee, title=changed.title, body=changed.body)
        if await self._change_remote(issue, remote_change):
            return self.get(project, number)
        if changed != e.IssueChanged(number):
            await self._record(project, changed, f"issue-changed:{project}:{number}:{key or uuid.uuid4().hex}")
        return self.get(project, number)

    async def assign(self, project: str, number: int, who: str | None, key: str | None = None) -> dict[str, Any]:
        """Assign the issue to a person; None removes the assignee."""
        return await self.change(project, number, assignee=who or "", key=key)

    async def comment(
        self, project: str, number: int, body: str, words: TextAuthor = LOCAL_PERSON, key: str | None = None
    ) -> dict[str, Any]:
        """Add a comment to an issue."""
        issue = self._find_issue(project, number)
        text = _clean_body(body, "comment")
        if not text:
            raise UsageError("the comment is empty", "write something: -m TEXT")
        event_key = f"issue-comment:{project}:{number}:{key or uuid.uuid4().hex}"
        comment = comment_id(event_key)
        if issue.hosted:
            await self.remote.comment(project, issue.name, text, comment)
        comment_event = e.IssueComment(number, comment, text, words.author, words.write_access)
        await self._record(project, comment_event, event_key)
        return self.get(project, number)

    async def label(self, project: str, number: int, labels: Iterable[str], key: str | None = None) -> dict[str, Any]:
        """Add labels."""
        issue = self._find_issue(project, number)
        added = [label for label in _clean_labels(labels) if label not in issue.labels]
        if len(issue.labels) + len(added) > MAX_LABELS:
            raise UsageError(f"issue {number} would have more than {MAX_LABELS} labels", "take some off first")
        if added and await self._change_remote(issue, IssueChange(add_labels=tuple(added))):
            return self.get(project, number)
        for label in added:
            event_key = f"label:{project}:{number}:{label}:{key or uuid.uuid4().hex}"
            await self._record(project, e.LabelAdded(number, label), event_key)
        return self.get(project, number)

    async def unlabel(self, project: str, number: int, label: str, key: str | None = None) -> dict[str, Any]:
        """Remove a label; does nothing if the issue does not have it."""
        issue = self._find_issue(project, number)
        if label in issue.labels and await self._change_remote(issue, IssueChange(remove_labels=(label,))):
            return self.get(project, number)
        if label in issue.labels:
            event_key = f"unlabel:{project}:{number}:{label}:{key or uuid.uuid4().hex}"
            await self._record(project, e.LabelRemoved(number, label), event_key)
        return self.get(project, number)

    async def _change_remote(self, issue: Issue, change: IssueChange) -> bool:
        """Change an issue at its tracker. Return False if that is no service or nothing changes."""
        if not issue.hosted or change == IssueChange():
            return False
        return await self.remote.change(issue.project, issue.name, change)

    def _refuse_cycle(self, issue: Issue, prerequisites: Sequence[int]) -> None:
        """Raise `UsageError` if an issue would wait for itself, directly or through others."""
        to_visit, visited = [self._find_issue(issue.project, number) for number in prerequisites], set[int]()
        while to_visit:
            other = to_visit.pop()
            if other.number == issue.number:
                raise UsageError(f"issue {issue.number} would wait for itself", "leave one of them out of `after`")
            if other.number not in visited:
                visited.add(other.number)
                to_visit += [self._find_issue(issue.project, number) for number in other.after]

    async def _record(self, project: str, body: e.Body, key: str, by: str = "person") -> None:
        """Record an event about a project's issue."""
        await self.flow.append(Event(body, self.flow.clock(), by, key, project))


def _clean_title(text: str) -> str:
    """Return a cleaned title. Raises `UsageError` if it is empty or too long."""
    title = _clean_line(text, "title", MAX_TITLE_LENGTH)
    if not title:
        raise UsageError("the title is empty", "say in a few words what is wanted")
    return title


def _clean_line(text: str, field: str, max_length: int) -> str:
    """Return a text as one cleaned line. Raises `UsageError` if it is too long."""
    line = " ".join(clean_text(text).split())
    if len(line) > max_length:
        raise UsageError(f"the {field} has {len(line)} characters", f"{max_length} at most; put the rest into the text")
    return line


def _clean_body(text: str, field: str) -> str:
    """Return a cleaned text. Raises `UsageError` if it is too long."""
    cleaned = clean_text(text).strip()
    if len(cleaned) > MAX_BODY_LENGTH:
        raise UsageError(f"the {field} has {len(cleaned)} characters", f"{MAX_BODY_LENGTH} at most")
    return cleaned


def _clean_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return cleaned labels, each once. Raises `UsageError` if one is empty or there are too many."""
    cleaned = tuple(dict.fromkeys(_clean_line(label, "label", MAX_LABEL_LENGTH) for label in labels))
    if not all(cleaned):
        raise UsageError("a label is empty", "give it a name")
    if len(cleaned) > MAX_LABELS:
        raise UsageError(f"there are {len(cleaned)} labels", f"{MAX_LABELS} at most")
    return cleaned
