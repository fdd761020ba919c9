"""Compare an issue of a tracker with the facts: `issue_news(recorded, issue, tracker) -> [event's body]`. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.issues import Issue, issue_number
from agent_orchestrator.protocols.forge import TrackerIssue as RemoteIssue


def issue_news(recorded: Issue | None, issue: RemoteIssue, tracker: str, *, with_comments: bool) -> list[e.Body]:
    """Return what happened to an issue of a tracker; `with_comments`: it was read with its comments."""
    number = issue_number(issue.id)
    if number is None:
        return []
    key = "" if issue.id == str(number) else issue.id
    bodies: list[e.Body] = []
    labels: tuple[str, ...] = ()
    if recorded is None:
        bodies.append(
            e.IssueOpened(
                number,
                issue.title,
                issue.body,
                issue.labels,
                issue.author.name,
                (),
                issue.author.write_access,
                key,
                issue.url,
                tracker,
                issue.branch,
                issue.assignee,
                hosted=True,
            )
        )
        labels, state = issue.labels, "open"
    else:
        labels, state = recorded.labels, recorded.state
        changed = e.IssueChanged(
            number,
            title=issue.title if issue.title != recorded.title else None,
            body=issue.body if with_comments and issue.body != recorded.body else None,
        )
        if changed != e.IssueChanged(number):
            bodies.append(_attribute_to_author(changed, issue))
        if (issue.assignee or "") != (recorded.assignee or ""):
            bodies.append(e.IssueChanged(number, assignee=issue.assignee or ""))
    if issue.state != state:
        bodies.append(_attribute_to_author(e.IssueChanged(number, state=issue.state), issue))
    bodies += [e.LabelAdded(number, label) for label in issue.labels if label not in labels]
    bodies += [e.LabelRemoved(number, label) for label in labels if label not in issue.labels]
    known_comments = {comment.id for comment in recorded.comments} if recorded else set()
    new_comments = (
        [comment for comment in issue.comments if comment.id not in known_comments and comment.author.kind != "agent"]
        if with_comments
        else []
    )
    return bodies + [
        e.IssueComment(number, comment.id, comment.body, comment.author.name, comment.author.write_access)
        for comment in new_comments
    ]


def _attribute_to_author(changed: e.IssueChanged, issue: RemoteIssue) -> e.IssueChanged:
    """Return the change with the issue's author as its author.

    Trackers do not report who changed an issue. It may have been the author; anyone else who may change it may write to
    the repository.
    """
    return replace(changed, author=issue.author.name, write_access=issue.author.write_access)
