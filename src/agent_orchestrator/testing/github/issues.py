"""Changes to issues, and to pull requests as issues: text, state, labels, assignees, comments."""

from __future__ import annotations

import re

from agent_orchestrator.testing.github.state import GitHubComment, GitHubIssue, GitHubPullRequest, GitHubUser, Repo
from agent_orchestrator.testing.github.world import GitHubWorld, validation_error

CLOSES = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)[: ]+#(\d+)", re.IGNORECASE)


def open_issue(
    world: GitHubWorld, repo: Repo, user: GitHubUser, title: str, body: str | None = None,
    labels: list[str] | None = None, assignees: list[str] | None = None,
) -> GitHubIssue:  # fmt: skip
    if not title:
        raise validation_error("Issue", "title", code="missing_field")
    issue = world.add_record(
        GitHubIssue(**world.record_fields("I"), repo=repo, number=repo.next_number, user=user, title=title, body=body)
    )
    repo.next_number += 1
    repo.issues[issue.number] = issue
    world.emit_issue_event(issue, "opened", user)
    if labels:
        add_labels(world, issue, user, labels)
    if assignees:
        assign(world, issue, user, assignees)
    return issue


def edit(
    world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, title: str | None = None, body: str | None = None
) -> None:
    changed: dict[str, dict[str, str]] = {}
    if title is not None and title != issue.title:
        changed["title"] = {"from": issue.title}
        issue.title = title
    if body is not None and body != issue.body:
        changed["body"] = {"from": issue.body or ""}
        issue.body = body
    if changed:
        world.touch(issue)
        world.emit_issue_event(issue, "edited", user, changes=changed)


def set_state(world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, state: str, reason: str | None = None) -> None:
    """Open or close an issue; for pull requests see `pulls.set_state`."""
    if state == issue.state:
        return
    issue.state = state
    closed = state == "closed"
    issue.closed_at = world.now() if closed else None
    issue.closed_by = user if closed else None
    issue.state_reason = (
        None if isinstance(issue, GitHubPullRequest) else (reason or "completed") if closed else "reopened"
    )
    world.touch(issue)
    world.emit_issue_event(issue, "closed" if closed else "reopened", user)


def close_named(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser) -> None:
    """Close the issues that a merged pull request names."""
    if pull.base_ref != pull.repo.default_branch:
        return
    for number in closing_numbers(pull):
        set_state(world, pull.repo.issues[number], user, "closed")


def closing_numbers(pull: GitHubPullRequest) -> list[int]:
    numbers = dict.fromkeys(int(number) for number in CLOSES.findall(f"{pull.title}\n{pull.body or ''}"))
    return [
        number
        for number in numbers
        if number in pull.repo.issues and not isinstance(pull.repo.issues[number], GitHubPullRequest)
    ]


def add_labels(world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, names: list[str]) -> None:
    for name in names:
        label = world.label(issue.repo, name, user)
        if label not in issue.labels:
            issue.labels.append(label)
            world.touch(issue)
            world.emit_issue_event(issue, "labeled", user, label=world.shapes.label(issue.repo, label))


def remove_label(world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, name: str) -> None:
    label = issue.repo.labels.get(name.lower())
    if label is None or label not in issue.labels:
        return
    issue.labels.remove(label)
    world.touch(issue)
    world.emit_issue_event(issue, "unlabeled", user, label=world.shapes.label(issue.repo, label))


def set_labels(world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, names: list[str]) -> None:
    wanted_names = {name.lower() for name in names}
    for label in [label for label in issue.labels if label.name.lower() not in wanted_names]:
        remove_label(world, issue, user, label.name)
    add_labels(world, issue, user, names)


def assign(
    world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, logins: list[str], *, remove: bool = False
) -> None:
    for login in logins:
        user_record = world.users.get(login.lower())
        if user_record is None or (user_record in issue.assignees) != remove:
            continue
        if remove:
            issue.assignees.remove(user_record)
        else:
            issue.assignees.append(user_record)
        world.touch(issue)
        world.emit_issue_event(
            issue, "unassigned" if remove else "assigned", user, assignee=world.shapes.user(user_record)
        )


def comment(
    world: GitHubWorld, issue: GitHubIssue, user: GitHubUser, body: str, association: str | None = None
) -> GitHubComment:
    if not body.strip():
        raise validation_error("IssueComment", "body", "body cannot be blank", "missing_field")
    created = world.add_record(
        GitHubComment(**world.record_fields("IC"), issue=issue, user=user, body=body, association=association)
    )
    issue.comments.append(created)
    world.touch(issue)
    _emit_comment_event(world, created, "created", user)
    return created


def edit_comment(world: GitHubWorld, comment_record: GitHubComment, user: GitHubUser, body: str) -> None:
    before, comment_record.body = comment_record.body, body
    world.touch(comment_record)
    world.touch(comment_record.issue)
    _emit_comment_event(world, comment_record, "edited", user, changes={"body": {"from": before}})


def delete_comment(world: GitHubWorld, comment_record: GitHubComment, user: GitHubUser) -> None:
    comment_record.issue.comments.remove(comment_record)
    del world.nodes[comment_record.node_id]
    world.touch(comment_record.issue)
    _emit_comment_event(world, comment_record, "deleted", user)


def _emit_comment_event(
    world: GitHubWorld, comment_record: GitHubComment, action: str, user: GitHubUser, **parts: object
) -> None:
    show = world.shapes
    world.emit(
        comment_record.issue.repo,
        "issue_comment",
        user,
        action=action,
        issue=show.issue(comment_record.issue),
        comment=show.comment(comment_record),
        **parts,
    )
