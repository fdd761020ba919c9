"""GraphQL: the mutations, each by the same functions that serve REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_orchestrator.testing.github import issues, merges, pulls, reviews, rules
from agent_orchestrator.testing.github.graphql.base import Context
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import Issue, Label, Pull, Repo, Review, Thread, User
from agent_orchestrator.testing.github.world import Refused

Mutation = Callable[[Context, Json], Json]


def _pull(context: Context, given: Json) -> Pull:
    found: Pull = context.world.node(given["pullRequestId"], Pull)
    return found


def _owned(context: Context, given: Json) -> Pull:
    """A pull request that the viewer opened, or may push to."""
    pull = _pull(context, given)
    if context.viewer is not pull.user and not rules.may_push(pull.repo, context.viewer):
        raise Refused(403, f"{context.viewer.graphql_login} does not have the correct permissions", kind="FORBIDDEN")
    return pull


def _draft(draft: bool) -> Mutation:
    def change(context: Context, given: Json) -> Json:
        pull = _owned(context, given)
        pulls.set_draft(context.world, pull, context.viewer, draft)
        return {"pullRequest": pull}

    return change


def _state(state: str) -> Mutation:
    def change(context: Context, given: Json) -> Json:
        pull = _owned(context, given)
        pulls.set_state(context.world, pull, context.viewer, state)
        return {"pullRequest": pull}

    return change


def _issue_state(state: str) -> Mutation:
    def change(context: Context, given: Json) -> Json:
        issue = context.world.node(given["issueId"], Issue)
        issues.set_state(context.world, issue, context.viewer, state, (given.get("stateReason") or "").lower() or None)
        return {"issue": issue}

    return change


def _create_pull(context: Context, given: Json) -> Json:
    world = context.world
    repo, source = world.node(given["repositoryId"], Repo), given.get("headRepositoryId")
    made = pulls.open_pull(
        world, repo, context.viewer, given["headRefName"], given["baseRefName"], given["title"], given.get("body"),
        bool(given.get("draft")), world.node(source, Repo) if source else None,
    )  # fmt: skip
    return {"pullRequest": made}


def _create_issue(context: Context, given: Json) -> Json:
    world = context.world
    labels = [world.node(one, Label).name for one in given.get("labelIds") or []]
    people = [world.node(one, User).login for one in given.get("assigneeIds") or []]
    repo = world.node(given["repositoryId"], Repo)
    return {"issue": issues.open_issue(world, repo, context.viewer, given["title"], given.get("body"), labels, people)}


def _update_pull(context: Context, given: Json) -> Json:
    pull = _owned(context, given)
    pulls.edit(context.world, pull, context.viewer, given.get("title"), given.get("body"), given.get("baseRefName"))
    return {"pullRequest": pull}


def _merge(context: Context, given: Json) -> Json:
    pull, method = _pull(context, given), given.get("mergeMethod") or "MERGE"
    merges.merge(
        context.world, pull, context.viewer, method.lower(), given.get("expectedHeadOid"), given.get("commitHeadline"),
        given.get("commitBody"),
    )  # fmt: skip
    return {"pullRequest": pull, "actor": context.viewer}


def _auto_merge(context: Context, given: Json) -> Json:
    pull, method = _pull(context, given), given.get("mergeMethod") or "MERGE"
    expected = given.get("expectedHeadOid")
    if expected and expected != pull.head_sha:
        raise Refused(422, "The head of the pull request is not at the expected commit")
    merges.enable_auto_merge(
        context.world, pull, context.viewer, method.lower(), given.get("commitHeadline"), given.get("commitBody")
    )
    return {"pullRequest": pull, "actor": context.viewer}


def _no_auto_merge(context: Context, given: Json) -> Json:
    pull = _owned(context, given)
    merges.disable_auto_merge(context.world, pull, context.viewer)
    return {"pullRequest": pull, "actor": context.viewer}


def _enqueue(context: Context, given: Json) -> Json:
    return {
        "mergeQueueEntry": merges.enqueue(
            context.world, _pull(context, given), context.viewer, given.get("expectedHeadOid")
        )
    }


def _dequeue(context: Context, given: Json) -> Json:
    pull = context.world.node(given["id"], Pull)
    entry = pull.queue
    merges.dequeue(context.world, pull, context.viewer)
    return {"mergeQueueEntry": entry}


def _add_review(context: Context, given: Json) -> Json:
    comments = [*(given.get("threads") or []), *(given.get("comments") or [])]
    made = reviews.review(
        context.world, _pull(context, given), context.viewer, given.get("event"), given.get("body") or "", comments,
        commit=given.get("commitOID"),
    )  # fmt: skip
    return {"pullRequestReview": made}


def _submit_review(context: Context, given: Json) -> Json:
    review = context.world.node(given["pullRequestReviewId"], Review)
    reviews.submit(context.world, review, given["event"], given.get("body"))
    return {"pullRequestReview": review}


def _add_thread(context: Context, given: Json) -> Json:
    into = context.world.node(given["pullRequestReviewId"], Review) if given.get("pullRequestReviewId") else None
    pull = into.pull if into else _pull(context, given)
    thread = reviews.start_thread(
        context.world, pull, context.viewer, given["body"], given["path"], given.get("line"), side=given.get("side") or "RIGHT",
        start_line=given.get("startLine"), into=into,
    )  # fmt: skip
    return {"thread": thread}


def _add_reply(context: Context, given: Json) -> Json:
    thread = context.world.node(given["pullRequestReviewThreadId"], Thread)
    into = context.world.node(given["pullRequestReviewId"], Review) if given.get("pullRequestReviewId") else None
    return {"comment": reviews.reply(context.world, thread, context.viewer, given["body"], into=into)}


def _resolve(done: bool) -> Mutation:
    def change(context: Context, given: Json) -> Json:
        thread = context.world.node(given["threadId"], Thread)
        reviews.resolve(context.world, thread, context.viewer, done)
        return {"thread": thread}

    return change


def _add_comment(context: Context, given: Json) -> Json:
    issue = context.world.node(given["subjectId"], Issue)
    made = issues.comment(context.world, issue, context.viewer, given["body"])
    return {"commentEdge": {"node": made, "cursor": made.node_id}, "subject": issue}


def _request(context: Context, given: Json) -> Json:
    pull = _owned(context, given)
    logins = [context.world.node(one, User).login for one in given.get("userIds") or []]
    if not given.get("union"):
        gone = [user.login for user in pull.requested if user.login not in logins]
        reviews.request(context.world, pull, context.viewer, gone, remove=True)
    reviews.request(context.world, pull, context.viewer, logins)
    return {"pullRequest": pull, "actor": context.viewer}


def _label(remove: bool) -> Mutation:
    def change(context: Context, given: Json) -> Json:
        issue = context.world.node(given["labelableId"], Issue)
        context.world.need_triage(issue.repo, context.viewer)
        names = [context.world.node(one, Label).name for one in given["labelIds"]]
        for name in names if remove else ():
            issues.remove_label(context.world, issue, context.viewer, name)
        if not remove:
            issues.add_labels(context.world, issue, context.viewer, names)
        return {"labelable": issue}

    return change


def _assign(context: Context, given: Json) -> Json:
    issue: Any = context.world.node(given["assignableId"], Issue)
    people = [context.world.node(one, User).login for one in given["assigneeIds"]]
    issues.assign(context.world, issue, context.viewer, people)
    return {"assignable": issue}


MUTATIONS: dict[str, Mutation] = {
    "createPullRequest": _create_pull,
    "updatePullRequest": _update_pull,
    "createIssue": _create_issue,
    "closeIssue": _issue_state("closed"),
    "reopenIssue": _issue_state("open"),
    "markPullRequestReadyForReview": _draft(False),
    "convertPullRequestToDraft": _draft(True),
    "closePullRequest": _state("closed"),
    "reopenPullRequest": _state("open"),
    "mergePullRequest": _merge,
    "enablePullRequestAutoMerge": _auto_merge,
    "disablePullRequestAutoMerge": _no_auto_merge,
    "enqueuePullRequest": _enqueue,
    "dequeuePullRequest": _dequeue,
    "addPullRequestReview": _add_review,
    "submitPullRequestReview": _submit_review,
    "addPullRequestReviewThread": _add_thread,
    "addPullRequestReviewThreadReply": _add_reply,
    "resolveReviewThread": _resolve(True),
    "unresolveReviewThread": _resolve(False),
    "addComment": _add_comment,
    "requestReviews": _request,
    "addLabelsToLabelable": _label(False),
    "removeLabelsFromLabelable": _label(True),
    "addAssigneesToAssignable": _assign,
}
