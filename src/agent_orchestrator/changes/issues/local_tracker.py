"""The local tracker: issues with labels, comments, an assignee, and issues that must be closed before.

Issues and pull requests of a project are numbered together. Text is cleaned on its way in; in a task it stands fenced, as somebody's words.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from agent_orchestrator.changes.pull_requests.local import next_number
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import A_PERSON, Words
from agent_orchestrator.core.dependencies import open_before
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import is_about, works_on
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.forge import IssueChange
from agent_orchestrator.sessions.issue_task import find_issue

Rows = list[dict[str, Any]]

STATES = ("open", "closed")
LONGEST_TITLE = 300
LONGEST_TEXT = 100_000
LONGEST_LABEL = 80
MOST_LABELS = 50


class Elsewhere(Protocol):
    """A tracker that is not ours."""

    async def create(self, project: str, title: str, body: str, labels: Sequence[str]) -> int | None:
        """Make an issue there; none: the project's issues are here."""
        ...

    async def change(self, project: str, issue: str, change: IssueChange) -> bool:
        """Change one there; false: it is here."""
        ...

    async def comment(self, project: str, issue: str, text: str, key: str) -> None:
        """Say something there."""
        ...


class Issues:
    """What may be asked of the tracker."""

    def __init__(self, flow: Flow, numbering: asyncio.Lock) -> None:
        self.flow = flow
        self.numbering = numbering
        self.elsewhere: Elsewhere | None = None
        """Where a project's issues are at a tracker: they are changed there, and read again."""

    # -- looking -------------------------------------------------------------------------------------------------------

    def list(self, project: str | None, *, labels: Sequence[str] = (), state: str = "open") -> Rows:
        """Issues with all of these labels, by project and number; state `all`: open and closed ones."""
        if state not in (*STATES, "all"):
            raise UsageError(f"{state!r} is no state of an issue", "one of open, closed, all")
        chosen = [
            issue
            for issue in self.flow.home.issues.values()
            if project in (None, issue.project)
            and state in ("all", issue.state)
            and all(label in issue.labels for label in labels)
        ]
        return [self._json(issue) for issue in sorted(chosen, key=lambda issue: (issue.project, issue.number))]

    def next(self, project: str | None, *, labels: Sequence[str] = ()) -> Rows:
        """Open issues in the order they would be taken: those that wait for nothing first."""
        return sorted(self.list(project, labels=labels), key=lambda issue: issue["waitingFor"] is not None)

    def get(self, project: str, number: int) -> dict[str, Any]:
        """One issue."""
        return self._json(self._find(project, number))

    def _find(self, project: str, number: int) -> Issue:
        return find_issue(self.flow, project, number)

    def _json(self, issue: Issue) -> dict[str, Any]:
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
                    "id": one.id,
                    "author": one.author,
                    "writeAccess": one.write_access,
                    "body": one.body,
                    "at": rfc3339(one.at),
                }
                for one in issue.comments
            ],
            "sessions": [facts.id for facts in self.flow.sessions.values() if is_about(issue, facts)],
            "waitingFor": self._waiting_for(issue),
            "createdAt": rfc3339(issue.created_at),
            "updatedAt": rfc3339(issue.updated_at),
            "url": issue.url,
        }

    def _waiting_for(self, issue: Issue) -> str | None:
        """Why nobody takes it just now."""
        if issue.state != "open":
            return None
        if facts := works_on(issue, self.flow.sessions.values()):
            return f"{facts.id}, which works on it"
        if before := open_before(issue, self.flow.home.issues):
            return f"{', '.join(f'issue {number}' for number in before)} to be closed"
        return None

    # -- changing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        project: str,
        title: str,
        body: str = "",
        labels: Iterable[str] = (),
        after: Iterable[int] = (),
        words: Words = A_PERSON,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """Open an issue; the same key gives the same issue."""
        unique = f"issue:{project}:{key or uuid.uuid4().hex}"
        title, body, labels = _title(title), _text(body, "text"), _labels(labels)
        before = tuple(dict.fromkeys(after))
        for other in before:
            self._find(project, other)
        if self.elsewhere and (there := await self.elsewhere.create(project, title, body, labels)) is not None:
            return self.get(project, there)
        async with self.numbering:
            known = await self.flow.store.event_by_key(unique) if key else None
            if known is not None and isinstance(known.body, e.IssueOpened):
                return self.get(project, known.body.number)
            number = next_number(self.flow, project)
            opened = e.IssueOpened(number, title, body, labels, words.author, before, words.write_access)
            await self._tell(project, opened, unique, by)
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
        """Change what is given; an empty assignee takes the issue from whoever has it."""
        issue = self._find(project, number)
        if state is not None and state not in STATES:
            raise UsageError(f"{state!r} is no state of an issue", f"one of {', '.join(STATES)}")
        before = None if after is None else tuple(dict.fromkeys(after))
        self._refuse_cycle(issue, before or ())
        changed = e.IssueChanged(
            number,
            title=None if title is None else _title(title),
            body=None if body is None else _text(body, "text"),
            state=state,
            assignee=None if assignee is None else _line(assignee, "assignee", LONGEST_LABEL),
            after=before,
        )
        given = IssueChange(state=state, assignee=assignee, title=changed.title, body=changed.body)
        if await self._changed_there(issue, given):
            return self.get(project, number)
        if changed != e.IssueChanged(number):
            await self._tell(project, changed, f"issue-changed:{project}:{number}:{key or uuid.uuid4().hex}")
        return self.get(project, number)

    async def assign(self, project: str, number: int, who: str | None, key: str | None = None) -> dict[str, Any]:
        """Give the issue to somebody; none: to nobody."""
        return await self.change(project, number, assignee=who or "", key=key)

    async def comment(
        self, project: str, number: int, body: str, words: Words = A_PERSON, key: str | None = None
    ) -> dict[str, Any]:
        """Say something about an issue."""
        issue = self._find(project, number)
        text = _text(body, "comment")
        if not text:
            raise UsageError("the comment is empty", "write something: -m TEXT")
        unique = f"issue-comment:{project}:{number}:{key or uuid.uuid4().hex}"
        comment = f"c-{hashlib.sha256(unique.encode()).hexdigest()[:12]}"
        if self.elsewhere and issue.tracker != "local":
            await self.elsewhere.comment(project, issue.name, text, comment)
        said = e.IssueComment(number, comment, text, words.author, words.write_access)
        await self._tell(project, said, unique)
        return self.get(project, number)

    async def label(self, project: str, number: int, labels: Iterable[str], key: str | None = None) -> dict[str, Any]:
        """Add labels."""
        issue = self._find(project, number)
        added = [label for label in _labels(labels) if label not in issue.labels]
        if len(issue.labels) + len(added) > MOST_LABELS:
            raise UsageError(f"issue {number} would have more than {MOST_LABELS} labels", "take some off first")
        if added and await self._changed_there(issue, IssueChange(add_labels=tuple(added))):
            return self.get(project, number)
        for label in added:
            unique = f"label:{project}:{number}:{label}:{key or uuid.uuid4().hex}"
            await self._tell(project, e.LabelAdded(number, label), unique)
        return self.get(project, number)

    async def unlabel(self, project: str, number: int, label: str, key: str | None = None) -> dict[str, Any]:
        """Take a label off; one that it does not have is off already."""
        issue = self._find(project, number)
        if label in issue.labels and await self._changed_there(issue, IssueChange(remove_labels=(label,))):
            return self.get(project, number)
        if label in issue.labels:
            unique = f"unlabel:{project}:{number}:{label}:{key or uuid.uuid4().hex}"
            await self._tell(project, e.LabelRemoved(number, label), unique)
        return self.get(project, number)

    async def _changed_there(self, issue: Issue, change: IssueChange) -> bool:
        if self.elsewhere is None or issue.tracker == "local" or change == IssueChange():
            return False
        return await self.elsewhere.change(issue.project, issue.name, change)

    def _refuse_cycle(self, issue: Issue, before: Sequence[int]) -> None:
        """An issue that waits for itself, by whatever way, would wait for ever."""
        ahead, seen = [self._find(issue.project, number) for number in before], set[int]()
        while ahead:
            other = ahead.pop()
            if other.number == issue.number:
                raise UsageError(f"issue {issue.number} would wait for itself", "leave one of them out of `after`")
            if other.number not in seen:
                seen.add(other.number)
                ahead += [self._find(issue.project, number) for number in other.after]

    async def _tell(self, project: str, body: e.Body, key: str, by: str = "person") -> None:
        await self.flow.append(Event(body, self.flow.clock(), by, key, project))


def _title(text: str) -> str:
    title = _line(text, "title", LONGEST_TITLE)
    if not title:
        raise UsageError("the title is empty", "say in a few words what is wanted")
    return title


def _line(text: str, what: str, most: int) -> str:
    line = " ".join(clean_text(text).split())
    if len(line) > most:
        raise UsageError(f"the {what} has {len(line)} characters", f"{most} at most; put the rest into the text")
    return line


def _text(text: str, what: str) -> str:
    cleaned = clean_text(text).strip()
    if len(cleaned) > LONGEST_TEXT:
        raise UsageError(f"the {what} has {len(cleaned)} characters", f"{LONGEST_TEXT} at most")
    return cleaned


def _labels(labels: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(_line(label, "label", LONGEST_LABEL) for label in labels))
    if not all(found):
        raise UsageError("a label is empty", "give it a name")
    if len(found) > MOST_LABELS:
        raise UsageError(f"there are {len(found)} labels", f"{MOST_LABELS} at most")
    return found
