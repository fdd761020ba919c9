"""Reviews: verdicts, threads on lines, comments, resolving, and requesting reviews."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.state import (
    GitHubPullRequest,
    GitHubReview,
    GitHubThread,
    GitHubUser,
    ReviewComment,
)
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld, validation_error

EVENTS = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


def review(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, event: str | None, body: str = "", comments: list[dict[str,
    Any]] | None = None,
    association: str | None = None, commit: str | None = None,
) -> GitHubReview:  # fmt: skip
    """Create a review with comments on lines; without an event it stays the reviewer's pending draft."""
    if event is not None and event not in EVENTS:
        raise validation_error("PullRequestReview", "event")
    if user is pull.user and event in ("APPROVE", "REQUEST_CHANGES"):
        what = "approve" if event == "APPROVE" else "request changes on"
        raise GitHubRefused(422, f"Can not {what} your own pull request", [f"Can not {what} your own pull request"])
    if event == "REQUEST_CHANGES" and not body.strip():
        raise GitHubRefused(
            422, "Unprocessable Entity", ["You need to leave a comment indicating the requested changes."]
        )
    if event == "COMMENT" and not body.strip() and not comments:
        raise GitHubRefused(422, "Unprocessable Entity", ["Your review must have a body or comments."])
    created = world.add_record(GitHubReview(
        **world.record_fields("PRR"), pull=pull, user=user, body=body, state="PENDING", commit_id=commit or pull.head_sha,
        submitted_at=None,
        association=association,
    ))  # fmt: skip
    for comment in comments or []:
        start_thread(
            world,
            pull,
            user,
            comment["body"],
            comment["path"],
            comment.get("line"),
            into=created,
            side=comment.get("side", "RIGHT"),
        )
    pull.reviews.append(created)
    if event:
        submit(world, created, event, body)
    return created


def submit(world: GitHubWorld, review_record: GitHubReview, event: str, body: str | None = None) -> None:
    pull = review_record.pull
    if review_record.state != "PENDING":
        raise GitHubRefused(422, "Can not submit a review that is not pending")
    review_record.state, review_record.body, review_record.submitted_at = (
        EVENTS[event],
        body if body is not None else review_record.body,
        world.now(),
    )
    if review_record.user in pull.requested:
        pull.requested.remove(review_record.user)
    world.touch(review_record)
    world.touch(pull)
    _emit_review_event(world, review_record, "submitted", review_record.user)
    for thread in pull.threads:
        for comment in thread.comments:
            if comment.review is review_record:
                _emit_comment_event(world, comment)
    world.merge_ready(pull.repo)


def dismiss(world: GitHubWorld, review_record: GitHubReview, user: GitHubUser) -> None:
    world.require_push(review_record.pull.repo, user)
    if review_record.state not in ("APPROVED", "CHANGES_REQUESTED"):
        raise GitHubRefused(422, "Can not dismiss a commented pull request review")
    review_record.state = "DISMISSED"
    world.touch(review_record.pull)
    _emit_review_event(world, review_record, "dismissed", user)
    world.merge_ready(review_record.pull.repo)


def start_thread(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, body: str, path: str, line: int | None = None, *, side: str = "RIGHT",
    start_line: int | None = None, into: GitHubReview | None = None, association: str | None = None,
) -> GitHubThread:  # fmt: skip
    """Start a thread on a line of a changed file, or on the whole file without a line."""
    files = {file.path: file for file in bare_repository.changes(pull.repo.path, rules.base_sha(pull), pull.head_sha)}
    if path not in files:
        raise GitHubRefused(422, "Validation Failed", [
            {"resource": "PullRequestReviewComment", "code": "custom", "field": "pull_request_review_thread.path", "message": "is invalid"}
        ])  # fmt: skip
    thread = world.add_record(GitHubThread(
        **world.record_fields("PRRT"), pull=pull, path=path, line=line, original_line=line or 1, side=side, original_commit=pull.head_sha,
        hunk=files[path].patch or "", start_line=start_line, whole_file=line is None,
    ))  # fmt: skip
    pull.threads.append(thread)
    _add(world, thread, user, body, into, None, association)
    return thread


def reply(
    world: GitHubWorld,
    thread: GitHubThread,
    user: GitHubUser,
    body: str,
    association: str | None = None,
    into: GitHubReview | None = None,
) -> ReviewComment:
    return _add(world, thread, user, body, into, thread.comments[0], association)


def _add(
    world: GitHubWorld,
    thread: GitHubThread,
    user: GitHubUser,
    body: str,
    into: GitHubReview | None,
    first: ReviewComment | None,
    association: str | None,
) -> ReviewComment:
    if not body.strip():
        raise validation_error("PullRequestReviewComment", "body", code="missing_field")
    pull = thread.pull
    is_single = into is None
    if into is None:
        into = world.add_record(GitHubReview(
            **world.record_fields("PRR"), pull=pull, user=user, body="", state="COMMENTED", commit_id=pull.head_sha,
            submitted_at=world.now(),
            association=association,
        ))  # fmt: skip
        pull.reviews.append(into)
    created = world.add_record(ReviewComment(
        **world.record_fields("PRRC"), thread=thread, review=into, user=user, body=body, commit_id=pull.head_sha, reply_to=first,
        association=association,
    ))  # fmt: skip
    thread.comments.append(created)
    if is_single:
        world.touch(pull)
        _emit_review_event(world, into, "submitted", user)
        _emit_comment_event(world, created)
    return created


def edit_comment(world: GitHubWorld, comment_record: ReviewComment, user: GitHubUser, body: str) -> None:
    before, comment_record.body = comment_record.body, body
    world.touch(comment_record)
    world.touch(comment_record.thread.pull)
    _emit_comment_event(world, comment_record, "edited", user, changes={"body": {"from": before}})


def delete_comment(world: GitHubWorld, comment_record: ReviewComment, user: GitHubUser) -> None:
    """Delete a comment, and its thread with the last one."""
    comment_record.thread.comments.remove(comment_record)
    if not comment_record.thread.comments:
        comment_record.thread.pull.threads.remove(comment_record.thread)
    del world.nodes[comment_record.node_id]
    world.touch(comment_record.thread.pull)
    _emit_comment_event(world, comment_record, "deleted", user)


def resolve(world: GitHubWorld, thread: GitHubThread, user: GitHubUser, done: bool = True) -> None:
    if user is not thread.pull.user and not rules.may_push(thread.pull.repo, user):
        raise GitHubRefused(
            403,
            f"{user.login} does not have the correct permissions to execute `ResolveReviewThread`",
            kind="FORBIDDEN",
        )
    if (thread.resolved_by is not None) == done:
        return
    thread.resolved_by = user if done else None
    show = world.shapes
    world.touch(thread)
    world.emit(
        thread.pull.repo, "pull_request_review_thread", user, action="resolved" if done else "unresolved",
        thread=show.thread(thread), pull_request=show.simple_pull(thread.pull),
    )  # fmt: skip
    world.merge_ready(thread.pull.repo)


def request(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, logins: list[str], *, remove: bool = False
) -> None:
    if any(login.lower() not in world.users for login in logins):
        raise GitHubRefused(422, "Reviews may only be requested from collaborators.")
    people = [world.user(login) for login in logins]
    if pull.user in people and not remove:
        raise GitHubRefused(422, "Review cannot be requested from pull request author.")
    for person in people:
        if not rules.is_visible(pull.repo, person):
            raise GitHubRefused(422, "Reviews may only be requested from collaborators.")
        if (person in pull.requested) != remove:
            continue
        if remove:
            pull.requested.remove(person)
        else:
            pull.requested.append(person)
        world.touch(pull)
        action = "review_request_removed" if remove else "review_requested"
        world.emit_issue_event(pull, action, user, requested_reviewer=world.shapes.user(person))


def _emit_review_event(world: GitHubWorld, review_record: GitHubReview, action: str, user: GitHubUser) -> None:
    show = world.shapes
    shape = show.review(review_record)
    shape["state"] = review_record.state.lower()
    shape["body"] = review_record.body or None
    world.emit(
        review_record.pull.repo,
        "pull_request_review",
        user,
        action=action,
        review=shape,
        pull_request=show.simple_pull(review_record.pull),
    )


def _emit_comment_event(
    world: GitHubWorld, comment: ReviewComment, action: str = "created", user: GitHubUser | None = None, **parts: Any
) -> None:
    show, pull = world.shapes, comment.thread.pull
    world.emit(
        pull.repo, "pull_request_review_comment", user or comment.user, action=action, comment=show.review_comment(comment),
        pull_request=show.simple_pull(pull), **parts,
    )  # fmt: skip
