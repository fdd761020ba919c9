"""Turns an issue of the tracker into the task of a session."""

from __future__ import annotations

from collections.abc import Collection

from agent_orchestrator.core.authors import approval_reason, is_trusted_text
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.errors import NotFound


def find_issue(flow: Flow, project: str, number: int) -> Issue:
    """Return an issue of a project's tracker; raise `NotFound` if there is none."""
    issue = flow.home.issues.get(issue_key(project, number))
    if issue is None:
        raise NotFound(f"{project} has no issue {number}", f"see them: ao issues -p {project}")
    return issue


def issue_task_text(issue: Issue, trusted: Collection[str] = ()) -> str:
    """Return an issue as a task: what people wrote is quoted.

    The person who starts a session for an issue has read the issue itself; comments of untrusted authors are replaced by a note.
    """
    parts = [f"Issue {issue.name}: {issue.title}"]
    if issue.body.strip():
        parts.append(f"{issue.author} wrote:\n{_quote(issue.body)}")
    for comment in issue.comments:
        if is_trusted_text(comment, trusted):
            parts.append(f"{comment.author} added:\n{_quote(comment.body)}")
        else:
            parts.append(f"(A comment is left out: {approval_reason([comment], trusted)}.)")
    return "\n\n".join(parts)


def _quote(text: str) -> str:
    """Return a text with `>` before each line."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
