"""From events to facts: the issues of trackers. Part of the fold in `core/fold/home.py`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.issues import Issue, PlanEntry, issue_number
from agent_orchestrator.core.pull_request import Comment, is_hosted


def issue_key(project: str, number: int) -> str:
    """Return the name of an issue that is unique among all projects."""
    return f"{project}#{number}"


def issue_of(issues: Mapping[str, Issue], project: str, name: str | None) -> Issue | None:
    """Return the issue that a session names, by its number or by its tracker's key, or None."""
    number = issue_number(name or "")
    issue = issues.get(issue_key(project, number)) if number is not None else None
    return issue if issue is not None and name in (str(issue.number), issue.key) else None


def reduce_issues(facts: HomeFacts, event: Event) -> HomeFacts:
    """Return the home's facts with its issues after an event."""
    body, project = event.body, event.project or ""
    if isinstance(body, e.IssueOpened):
        key = issue_key(project, body.number)
        if key in facts.issues:
            return facts
        new_issue = Issue(
            body.number,
            project,
            body.title,
            event.time,
            event.time,
            body.body,
            "open",
            body.labels,
            body.author,
            after=body.after,
            write_access=body.write_access,
            key=body.key,
            url=body.url,
            tracker=body.tracker,
            branch=body.branch,
            assignee=body.assignee,
            hosted=is_hosted(body.tracker, body.hosted),
        )
        return replace(facts, issues={**facts.issues, key: new_issue})
    if not isinstance(body, e.IssueChanged | e.IssuePlanned | e.LabelAdded | e.LabelRemoved | e.IssueComment):
        return facts
    key = issue_key(project, body.number)
    issue = facts.issues.get(key)
    if issue is None:
        return facts
    return replace(
        facts, issues={**facts.issues, key: replace(_change_issue(issue, event, body), updated_at=event.time)}
    )


def _change_issue(issue: Issue, event: Event, body: e.Body) -> Issue:
    """Return an issue after an event about it."""
    match body:
        case e.IssueChanged():
            changes = {
                "title": body.title,
                "body": body.body,
                "state": body.state,
                "assignee": body.assignee,
                "after": body.after,
            }
            return replace(issue, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
        case e.IssuePlanned():
            planned = PlanEntry(body.plan, body.task, body.profile, body.priority, body.files, body.start)
            return replace(issue, plan_entry=planned, after=body.after)
        case e.LabelAdded() if body.label not in issue.labels:
            return replace(issue, labels=(*issue.labels, body.label))
        case e.LabelRemoved():
            return replace(issue, labels=tuple(label for label in issue.labels if label != body.label))
        case e.IssueComment() if all(comment.id != body.comment for comment in issue.comments):
            new_comment = Comment(body.comment, body.body, body.author, event.time, write_access=body.write_access)
            return replace(issue, comments=(*issue.comments, new_comment))
    return issue
