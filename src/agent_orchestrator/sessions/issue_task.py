"""An issue of the tracker as the task of a session."""

from __future__ import annotations

from collections.abc import Collection

from agent_orchestrator.core.authors import free, held
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.errors import NotFound


def find_issue(flow: Flow, project: str, number: int) -> Issue:
    """An issue of a project's tracker."""
    issue = flow.home.issues.get(issue_key(project, number))
    if issue is None:
        raise NotFound(f"{project} has no issue {number}", f"see them: ao issues -p {project}")
    return issue


def task_text(issue: Issue, trusted: Collection[str] = ()) -> str:
    """An issue as a task: what people wrote is quoted, whatever it says.

    Who names an issue has read it; what strangers added to it is left out, and said to be.
    """
    parts = [f"Issue {issue.name}: {issue.title}"]
    if issue.body.strip():
        parts.append(f"{issue.author} wrote:\n{_quoted(issue.body)}")
    for one in issue.comments:
        if free(one, trusted):
            parts.append(f"{one.author} added:\n{_quoted(one.body)}")
        else:
            parts.append(f"(A comment is left out: {held([one], trusted)}.)")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
