"""GraphQL: the mutations, by the same functions as REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_orchestrator.testing.github import issues, merges, pulls, reviews, rules
from agent_orchestrator.testing.github.graphql.base import GitHubQueryContext
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import (
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubReview,
    GitHubThread,
    GitHubUser,
    Repo,
)
from agent_orchestrator.testing.github.world import GitHubRefused

Mutation = Callable[[GitHubQueryContext, Json], Json]


def _pull(context: GitHubQueryContext, arguments: Json) -> GitHubPullRequest:
    pull: GitHubPullRequest = context.world.node(arguments["pullRequestId"], GitHubPullRequest)
    return pull


def _owned(context: GitHubQueryContext, arguments: Json) -> GitHubPullRequest:
    """Return a pull request that the viewer opened or may push to; raise `GitHubRefused` otherwise."""
    pull = _pull(context, arguments)
    if context.viewer is not pull.user and not rules.may_push(pull.repo, context.viewer):
        raise GitHubRefused(
            403, f"{context.viewer.graphql_login} does not have the correct permissions", kind="FORBIDDEN"
        )
    return pull


def _draft(draft: bool) -> Mutation:
    def change(context: GitHubQueryContext, arguments: Json) -> Json:
        pull = _owned(context, arguments)
        pulls.set_draft(context.world, pull, context.viewer, draft)
        return {"pullRequest": pull}

    return change


def _state(state: str) -> Mutation:
    def change(context: GitHubQueryContext, arguments: Json) -> Json:
        pull = _owned(context, arguments)
        pulls.set_state(context.world, pull, context.viewer, state)
        return {"pullRequest": pull}

    return change


def _issue_state(state: str) -> Mutation:
    def change(context: GitHubQueryContext, arguments: Json) -> Json:
        issue = context.world.node(arguments["issueId"], GitHubIssue)
        issues.set_state(
            context.world, issue, context.viewer, state, (arguments.get("stateReason") or "").lower() or None
        )
        return {"issue": issue}

    return change


def _create_pull(context: GitHubQueryContext, arguments: Json) -> Json:
    world = context.world
    repo, source = world.node(arguments["repositoryId"], Repo), arguments.get("headRepositoryId")
    created = pulls.open_pull(
        world, repo, context.viewer, arguments["headRefName"], arguments["baseRefName"], arguments["title"], arguments.get("body"),
        bool(arguments.get("draft")), world.node(source, Repo) if source else None,
    )  # fmt: skip
    return {"pullRequest": created}


def _create_issue(context: GitHubQueryContext, arguments: Json) -> Json:
    world = context.world
    labels = [world.node(node_id, GitHubLabel).name for node_id in arguments.get("labelIds") or []]
    people = [world.node(node_id, GitHubUser).login for node_id in arguments.get("assigneeIds") or []]
    repo = world.node(arguments["repositoryId"], Repo)
    return {
        "issue": issues.open_issue(
            world, repo, context.viewer, arguments["title"], arguments.get("body"), labels, people
        )
    }


def _update_pull(context: GitHubQueryContext, arguments: Json) -> Json:
    pull = _owned(context, arguments)
    pulls.edit(
        context.world, pull, context.viewer, arguments.get("title"), arguments.get("body"), arguments.get("baseRefName")
    )
    return {"pullRequest": pull}


def _merge(context: GitHubQueryContext, arguments: Json) -> Json:
    pull, method = _pull(context, arguments), arguments.get("mergeMethod") or "MERGE"
    merges.merge(
        context.world, pull, context.viewer, method.lower(), arguments.get("expectedHeadOid"), arguments.get("commitHeadline"),
        arguments.get("commitBody"),
    )  # fmt: skip
    return {"pullRequest": pull, "actor": context.viewer}


def _auto_merge(context: GitHubQueryContext, arguments: Json) -> Json:
    pull, method = _pull(context, arguments), arguments.get("mergeMethod") or "MERGE"
    expected = arguments.get("expectedHeadOid")
    if expected and expected != pull.head_sha:
        raise GitHubRefused(422, "The head of the pull request is not at the expected commit")
    merges.enable_auto_merge(
        context.world,
        pull,
        context.viewer,
        method.lower(),
        arguments.get("commitHeadline"),
        arguments.get("commitBody"),
    )
    return {"pullRequest": pull, "actor": context.viewer}


def _no_auto_merge(context: GitHubQueryContext, arguments: Json) -> Json:
    pull = _owned(context, arguments)
    merges.disable_auto_merge(context.world, pull, context.viewer)
    return {"pullRequest": pull, "actor": context.viewer}


def _enqueue(context: GitHubQueryContext, arguments: Json) -> Json:
    return {
        "mergeQueueEntry": merges.enqueue(
            context.world, _pull(context, arguments), context.viewer, arguments.get("expectedHeadOid")
        )
    }


def _dequeue(context: GitHubQueryContext, arguments: Json) -> Json:
    pull = context.world.node(arguments["id"], GitHubPullRequest)
    entry = pull.queue
    merges.dequeue(context.world, pull, context.viewer)
    return {"mergeQueueEntry": entry}


def _add_review(context: GitHubQueryContext, arguments: Json) -> Json:
    comments = [*(arguments.get("threads") or []), *(arguments.get("comments") or [])]
    created = reviews.review(
        context.world, _pull(context, arguments), context.viewer, arguments.get("event"), arguments.get("body") or "", comments,
        commit=arguments.get("commitOID"),
    )  # fmt: skip
    return {"pullRequestReview": created}


def _submit_review(context: GitHubQueryContext, arguments: Json) -> Json:
    review = context.world.node(arguments["pullRequestReviewId"], GitHubReview)
    reviews.submit(context.world, review, arguments["event"], arguments.get("body"))
    return {"pullRequestReview": review}


def _add_thread(context: GitHubQueryContext, arguments: Json) -> Json:
    into = (
        context.world.node(arguments["pullRequestReviewId"], GitHubReview)
        if arguments.get("pullRequestReviewId")
        else None
    )
    pull = into.pull if into else _pull(context, arguments)
    thread = reviews.start_thread(
        context.world,
        pull,
        context.viewer,
        arguments["body"],
        arguments["path"],
        arguments.get("line"),
        side=arguments.get("side") or "RIGHT",
        start_line=arguments.get("startLine"),
        into=into,
    )
    return {"thread": thread}


def _add_reply(context: GitHubQueryContext, arguments: Json) -> Json:
    thread = context.world.node(arguments["pullRequestReviewThreadId"], GitHubThread)
    into = (
        context.world.node(arguments["pullRequestReviewId"], GitHubReview)
        if arguments.get("pullRequestReviewId")
        else None
    )
    return {"comment": reviews.reply(context.world, thread, context.viewer, arguments["body"], into=into)}


def _resolve(done: bool) -> Mutation:
    def change(context: GitHubQueryContext, arguments: Json) -> Json:
        thread = context.world.node(arguments["threadId"], GitHubThread)
        reviews.resolve(context.world, thread, context.viewer, done)
        return {"thread": thread}

    return change


def _add_comment(context: GitHubQueryContext, arguments: Json) -> Json:
    issue = context.world.node(arguments["subjectId"], GitHubIssue)
    created = issues.comment(context.world, issue, context.viewer, arguments["body"])
    return {"commentEdge": {"node": created, "cursor": created.node_id}, "subject": issue}


def _request(context: GitHubQueryContext, arguments: Json) -> Json:
    pull = _owned(context, arguments)
    logins = [context.world.node(node_id, GitHubUser).login for node_id in arguments.get("userIds") or []]
    if not arguments.get("union"):
        removed_logins = [user.login for user in pull.requested if user.login not in logins]
        reviews.request(context.world, pull, context.viewer, removed_logins, remove=True)
    reviews.request(context.world, pull, context.viewer, logins)
    return {"pullRequest": pull, "actor": context.viewer}


def _label(remove: bool) -> Mutation:
    def change(context: GitHubQueryContext, arguments: Json) -> Json:
        issue = context.world.node(arguments["labelableId"], GitHubIssue)
        context.world.require_triage(issue.repo, context.viewer)
        names = [context.world.node(node_id, GitHubLabel).name for node_id in arguments["labelIds"]]
        for name in names if remove else ():
            issues.remove_label(context.world, issue, context.viewer, name)
        if not remove:
            issues.add_labels(context.world, issue, context.viewer, names)
        return {"labelable": issue}

    return change


def _assign(context: GitHubQueryContext, arguments: Json) -> Json:
    issue: Any = context.world.node(arguments["assignableId"], GitHubIssue)
    people = [context.world.node(node_id, GitHubUser).login for node_id in arguments["assigneeIds"]]
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
