"""REST: issues, their comments, labels and assignees; pull requests are issues here too."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github import issues, pulls
from agent_orchestrator.testing.github.calls import GitHubCall, GitHubPage, route
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import (
    GitHubComment,
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubUser,
)
from agent_orchestrator.testing.github.world import GitHubRefused, validation_error


def _labels(call: GitHubCall) -> list[str]:
    names = call.parameter("labels", []) if isinstance(call.body, dict) else call.body
    return [label["name"] if isinstance(label, dict) else label for label in names or []]


def _matches(call: GitHubCall, issue: GitHubIssue) -> bool:
    query = call.query
    if query.get("state", "open") not in ("all", issue.state):
        return False
    if issue.updated_at < query.get("since", ""):
        return False
    label_names = {name.strip().lower() for name in query.get("labels", "").split(",") if name.strip()}
    if not label_names <= {label.name.lower() for label in issue.labels}:
        return False
    assignee = query.get("assignee")
    logins = {user.login.lower() for user in issue.assignees}
    if (assignee == "none" and logins) or (assignee == "*" and not logins):
        return False
    if assignee and assignee not in ("none", "*") and assignee.lower() not in logins:
        return False
    return issue.user.login.lower() == query["creator"].lower() if "creator" in query else True


@route("GET", "REPO/issues")
def list_issues(call: GitHubCall) -> GitHubPage:
    matching = [issue for issue in call.repo.issues.values() if _matches(call, issue)]
    sort = call.query.get("sort", "created")

    def sort_key(issue: GitHubIssue) -> tuple[Any, int]:
        return (
            len(issue.comments) if sort == "comments" else issue.updated_at if sort == "updated" else issue.created_at
        ), issue.id

    return GitHubPage(
        sorted(matching, key=sort_key, reverse=call.query.get("direction", "desc") == "desc"), call.shapes.issue
    )


@route("POST", "REPO/issues")
def create_issue(call: GitHubCall) -> ForgeAnswer:
    may = call.repo.people.get(call.require_user().login) or call.require_user() is call.repo.owner
    issue = issues.open_issue(
        call.world, call.repo, call.require_user(), str(call.parameter("title") or ""), call.parameter("body"),
        _labels(call) if may else [], call.parameter("assignees") if may else [],
    )  # fmt: skip
    return ForgeAnswer(201, call.shapes.issue(issue))


@route("GET", "REPO/issues/{number}")
def get_issue(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.issue(call.issue), last_modified=call.issue.updated_at)


@route("PATCH", "REPO/issues/{number}")
def edit_issue(call: GitHubCall) -> ForgeAnswer:
    world, issue, user = call.world, call.issue, call.require_user()
    if user is not issue.user:
        world.require_triage(issue.repo, user)
    issues.edit(world, issue, user, call.parameter("title"), call.parameter("body"))
    if call.parameter("labels") is not None:
        issues.set_labels(world, issue, user, _labels(call))
    if (logins := call.parameter("assignees")) is not None:
        removed_logins = [user_record.login for user_record in issue.assignees if user_record.login not in logins]
        issues.assign(world, issue, user, removed_logins, remove=True)
        issues.assign(world, issue, user, logins)
    if (state := call.parameter("state")) is not None:
        _set_state(call, issue, user, state)
    return ForgeAnswer(body=call.shapes.issue(issue))


def _set_state(call: GitHubCall, issue: GitHubIssue, user: GitHubUser, state: str) -> None:
    if state not in ("open", "closed"):
        raise validation_error("Issue", "state")
    if isinstance(issue, GitHubPullRequest):
        pulls.set_state(call.world, issue, user, state)
    else:
        issues.set_state(call.world, issue, user, state, call.parameter("state_reason"))


@route("GET", "REPO/issues/{number}/comments")
def comments(call: GitHubCall) -> GitHubPage:
    recent = [comment for comment in call.issue.comments if comment.updated_at >= call.query.get("since", "")]
    return GitHubPage(recent, call.shapes.comment)


@route("GET", "REPO/issues/comments")
def all_comments(call: GitHubCall) -> GitHubPage:
    recent = [comment for issue in call.repo.issues.values() for comment in issue.comments]
    recent = [comment for comment in recent if comment.updated_at >= call.query.get("since", "")]
    sort_key = (
        (lambda c: (c.updated_at, c.id)) if call.query.get("sort") == "updated" else (lambda c: (c.created_at, c.id))
    )
    return GitHubPage(sorted(recent, key=sort_key, reverse=call.query.get("direction") == "desc"), call.shapes.comment)


@route("POST", "REPO/issues/{number}/comments")
def create_comment(call: GitHubCall) -> ForgeAnswer:
    created = issues.comment(call.world, call.issue, call.require_user(), str(call.parameter("body") or ""))
    return ForgeAnswer(201, call.shapes.comment(created))


def _comment(call: GitHubCall) -> GitHubComment:
    for issue in call.repo.issues.values():
        for comment in issue.comments:
            if comment.id == int(call.args["comment_id"]):
                return comment
    raise GitHubRefused(404, "Not Found")


@route("GET", "REPO/issues/comments/{comment_id}")
def get_comment(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.comment(_comment(call)), last_modified=_comment(call).updated_at)


@route("PATCH", "REPO/issues/comments/{comment_id}")
def edit_comment(call: GitHubCall) -> ForgeAnswer:
    comment = _comment(call)
    _require_own_comment(call, comment)
    issues.edit_comment(call.world, comment, call.require_user(), call.required_parameter("body"))
    return ForgeAnswer(body=call.shapes.comment(comment))


@route("DELETE", "REPO/issues/comments/{comment_id}")
def delete_comment(call: GitHubCall) -> ForgeAnswer:
    comment = _comment(call)
    _require_own_comment(call, comment)
    issues.delete_comment(call.world, comment, call.require_user())
    return ForgeAnswer(204)


def _require_own_comment(call: GitHubCall, comment: GitHubComment) -> None:
    if comment.user is not call.require_user():
        call.world.require_push(call.repo, call.require_user())


def _label_shape(call: GitHubCall, label: GitHubLabel) -> Json:
    return call.shapes.label(call.repo, label)


def _label_page(call: GitHubCall, labels: list[GitHubLabel]) -> GitHubPage:
    return GitHubPage(labels, lambda label: _label_shape(call, label))


@route("GET", "REPO/issues/{number}/labels")
def labels(call: GitHubCall) -> GitHubPage:
    return _label_page(call, call.issue.labels)


@route("POST", "REPO/issues/{number}/labels")
def add_labels(call: GitHubCall) -> GitHubPage:
    call.world.require_triage(call.repo, call.require_user())
    issues.add_labels(call.world, call.issue, call.require_user(), _labels(call))
    return _label_page(call, call.issue.labels)


@route("PUT", "REPO/issues/{number}/labels")
def set_labels(call: GitHubCall) -> GitHubPage:
    call.world.require_triage(call.repo, call.require_user())
    issues.set_labels(call.world, call.issue, call.require_user(), _labels(call))
    return _label_page(call, call.issue.labels)


@route("DELETE", "REPO/issues/{number}/labels/{name}")
def remove_label(call: GitHubCall) -> GitHubPage:
    call.world.require_triage(call.repo, call.require_user())
    if call.args["name"].lower() not in {label.name.lower() for label in call.issue.labels}:
        raise GitHubRefused(404, "Label does not exist")
    issues.remove_label(call.world, call.issue, call.require_user(), call.args["name"])
    return _label_page(call, call.issue.labels)


@route("POST", "REPO/issues/{number}/assignees")
def add_assignees(call: GitHubCall) -> ForgeAnswer:
    call.world.require_triage(call.repo, call.require_user())
    issues.assign(call.world, call.issue, call.require_user(), call.parameter("assignees") or [])
    return ForgeAnswer(201, call.shapes.issue(call.issue))


@route("DELETE", "REPO/issues/{number}/assignees")
def remove_assignees(call: GitHubCall) -> ForgeAnswer:
    call.world.require_triage(call.repo, call.require_user())
    issues.assign(call.world, call.issue, call.require_user(), call.parameter("assignees") or [], remove=True)
    return ForgeAnswer(body=call.shapes.issue(call.issue))


@route("GET", "REPO/labels")
def repo_labels(call: GitHubCall) -> GitHubPage:
    return _label_page(call, list(call.repo.labels.values()))


@route("POST", "REPO/labels")
def create_label(call: GitHubCall) -> ForgeAnswer:
    call.world.require_triage(call.repo, call.require_user())
    name = call.required_parameter("name")
    if name.lower() in call.repo.labels:
        raise validation_error("Label", "name", code="already_exists")
    created = call.world.label(
        call.repo, name, call.require_user(), call.parameter("color", "ededed"), call.parameter("description")
    )
    return ForgeAnswer(201, _label_shape(call, created))


@route("GET", "REPO/labels/{name}")
def get_label(call: GitHubCall) -> ForgeAnswer:
    label = call.repo.labels.get(call.args["name"].lower())
    if label is None:
        raise GitHubRefused(404, "Not Found")
    return ForgeAnswer(body=_label_shape(call, label))
