"""GraphQL: resolvers of the fields that need more than an attribute of the state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.graphql.base import CommitNode, GitHubQueryContext, RefNode, Rollup, connection
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import (
    CommitStatus,
    GitHubCheckRun,
    GitHubComment,
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubReview,
    GitHubUser,
    QueueEntry,
    Repo,
    ReviewComment,
    WorkflowRun,
)
from agent_orchestrator.testing.github.world import GitHubRefused

Resolver = Callable[..., Any]
"""Takes the parent object; with more parameters also the context and the arguments."""


def connection_of(items_of: Callable[[Any], list[Any]]) -> Resolver:
    return lambda source, _, args: connection(items_of(source), args)


def constant_resolver(constant: Any) -> Resolver:
    return lambda _: constant


def page_url(source: Any, context: GitHubQueryContext) -> str:
    show = context.show
    if isinstance(source, Repo):
        return show.repo_page(source)
    if isinstance(source, GitHubIssue):
        return show.issue_page(source)
    if isinstance(source, GitHubUser):
        return f"{show.web}/{source.login}"
    shapes: dict[type, Callable[[Any], Json]] = {
        GitHubComment: show.comment, GitHubReview: show.review, ReviewComment: show.review_comment, GitHubCheckRun: show.check_run,
        WorkflowRun: show.workflow_run,
    }  # fmt: skip
    shape = shapes.get(type(source))
    if shape is None:
        raise GitHubRefused(501, f"{type(source).__name__} has no page here", kind="NOT_SERVED")
    return str(shape(source)["html_url"])


def upper_case_state(source: str | None) -> str | None:
    return source.upper() if source else None


def repo_of(source: Any) -> Repo:
    for name in ("repo", "issue", "pull", "thread", "suite"):
        related = getattr(source, name, None)
        if related is not None:
            return related if isinstance(related, Repo) else repo_of(related)
    raise GitHubRefused(501, "no repository here", kind="NOT_SERVED")


def association(source: Any) -> str:
    return rules.association(repo_of(source), source.user, source.association)


def is_required(source: GitHubCheckRun | CommitStatus, _: GitHubQueryContext, args: Json) -> bool:
    repo = repo_of(source)
    name = source.context if isinstance(source, CommitStatus) else source.name
    matching_pulls = [
        pull
        for pull in repo.pulls()
        if pull.number == args.get("pullRequestNumber") or pull.node_id == args.get("pullRequestId")
    ]
    return any(name in rules.protection(pull).checks for pull in matching_pulls)


def time_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def named_repository(_: Any, context: GitHubQueryContext, args: Json) -> Repo:
    name = f"{args['owner']}/{args['name']}"
    repository = context.world.repos.get(name.lower()) or (
        context.world.renamed_repos.get(name.lower()) if args.get("followRenames", True) else None
    )
    if repository is None or not rules.is_visible(repository, context.viewer):
        raise GitHubRefused(404, f"Could not resolve to a Repository with the name '{name}'.", kind="NOT_FOUND")
    return repository


def by_number(kind: type[GitHubIssue], word: str) -> Resolver:
    def find_by_number(source: Repo, _: GitHubQueryContext, args: Json) -> GitHubIssue:
        record = source.issues.get(args["number"])
        if record is None or (kind is GitHubPullRequest) != isinstance(record, GitHubPullRequest):
            raise GitHubRefused(
                404, f"Could not resolve to {word} with the number of {args['number']}.", kind="NOT_FOUND"
            )
        return record

    return find_by_number


def pulls_of(source: Repo | RefNode, _: GitHubQueryContext, args: Json) -> Json:
    matching = (source.repo if isinstance(source, RefNode) else source).pulls()
    if isinstance(source, RefNode):
        matching = [pull for pull in matching if pull.head_ref == source.name]
    if args.get("states"):
        matching = [pull for pull in matching if pull_state(pull) in args["states"]]
    if args.get("headRefName"):
        matching = [pull for pull in matching if pull.head_ref == args["headRefName"]]
    if args.get("baseRefName"):
        matching = [pull for pull in matching if pull.base_ref == args["baseRefName"]]
    if args.get("labels"):
        matching = [pull for pull in matching if {label.name for label in pull.labels} & set(args["labels"])]
    return connection(sort_items(matching, args), args)


def issues_of(source: Repo, _: GitHubQueryContext, args: Json) -> Json:
    matching = [issue for issue in source.issues.values() if not isinstance(issue, GitHubPullRequest)]
    filters = args.get("filterBy") or {}
    states, labels = args.get("states") or filters.get("states"), args.get("labels") or filters.get("labels")
    if states:
        matching = [issue for issue in matching if issue.state.upper() in states]
    if labels:
        matching = [issue for issue in matching if {label.name for label in issue.labels} & set(labels)]
    if filters.get("since"):
        matching = [issue for issue in matching if issue.updated_at >= filters["since"]]
    if filters.get("assignee"):
        matching = [issue for issue in matching if filters["assignee"] in {user.login for user in issue.assignees}]
    return connection(sort_items(matching, args), args)


def sort_items(items: list[Any], args: Json) -> list[Any]:
    order = args.get("orderBy") or {}
    sort_key = (
        (lambda item: (item.updated_at, item.id))
        if order.get("field") == "UPDATED_AT"
        else (lambda item: (item.created_at, item.id))
    )
    return sorted(items, key=sort_key, reverse=order.get("direction") == "DESC")


def pull_state(pull: GitHubPullRequest) -> str:
    return "MERGED" if pull.merged else pull.state.upper()


def mergeable(source: GitHubPullRequest) -> str:
    can = rules.mergeable(source)
    return "UNKNOWN" if can is None else "MERGEABLE" if can else "CONFLICTING"


def rollup_of(source: CommitNode) -> Rollup | None:
    state = rules.rollup(source.repo, source.sha)
    return Rollup(source.repo, source.sha, state) if state else None


def contexts_of(source: Rollup, _: GitHubQueryContext, args: Json) -> Json:
    runs, statuses = rules.check_runs(source.repo, source.sha), rules.statuses(source.repo, source.sha)
    return connection([*runs, *statuses], args, checkRunCount=len(runs), statusContextCount=len(statuses))


def reviews_of(source: GitHubPullRequest, context: GitHubQueryContext, args: Json) -> Json:
    matching = [review for review in source.reviews if review.state != "PENDING" or review.user is context.viewer]
    if args.get("states"):
        matching = [review for review in matching if review.state in args["states"]]
    if args.get("author"):
        matching = [review for review in matching if review.user.graphql_login == args["author"]]
    return connection(matching, args)


def latest_reviews(source: GitHubPullRequest, _: GitHubQueryContext, args: Json) -> Json:
    last = {review.user.login: review for review in source.reviews if review.state != "PENDING"}
    return connection(list(last.values()), args)


def ref_node(repo: Repo | None, name: str) -> RefNode | None:
    sha = repo.head(name) if repo else None
    return RefNode(repo, name, sha) if repo and sha else None


def update_rule(source: RefNode) -> Json | None:
    protection = source.repo.protections.get(source.name)
    return None if protection is None else {
        "requiredStatusCheckContexts": list(protection.checks), "requiredApprovingReviewCount": protection.approvals or None,
        "requiresConversationResolution": protection.resolved, "requiresCodeOwnerReviews": False, "requiresLinearHistory": False,
        "requiresSignatures": False, "allowsDeletions": False, "allowsForcePushes": False, "blocksCreations": False,
        "pattern": source.name, "viewerCanPush": True, "viewerAllowedToDismissReviews": True,
    }  # fmt: skip


def protection_rule(source: RefNode) -> Json | None:
    protection = source.repo.protections.get(source.name)
    return None if protection is None else {
        "pattern": source.name, "requiredStatusCheckContexts": list(protection.checks), "requiresStatusChecks": bool(protection.checks),
        "requiresStrictStatusChecks": protection.strict, "requiresApprovingReviews": bool(protection.approvals),
        "requiredApprovingReviewCount": protection.approvals, "requiresConversationResolution": protection.resolved,
    }  # fmt: skip


def node_or_refusal(context: GitHubQueryContext, node_id: str) -> Any:
    record = context.world.nodes.get(node_id)
    repo = repo_of(record) if record is not None and not isinstance(record, (Repo, GitHubUser, GitHubLabel)) else record
    if record is None or (isinstance(repo, Repo) and not rules.is_visible(repo, context.viewer)):
        return GitHubRefused(404, f"Could not resolve to a node with the global id of '{node_id}'", kind="NOT_FOUND")
    return record


def find_node(_: Any, context: GitHubQueryContext, args: Json) -> Any:
    record = node_or_refusal(context, args["id"])
    if isinstance(record, GitHubRefused):
        raise record
    return record


def position_in_queue(source: QueueEntry) -> int:
    pull = source.pull
    entry_ids = sorted(other.queue.id for other in pull.repo.pulls() if other.queue and other.base_ref == pull.base_ref)
    return entry_ids.index(source.id) + 1 if source.id in entry_ids else 1


def attribute(login: str) -> Resolver:
    return lambda source: getattr(source, login)


def person(_: Any, context: GitHubQueryContext, args: Json) -> Any:
    user = context.world.users.get(str(args["login"]).lower())
    if user is None:
        raise GitHubRefused(404, f"Could not resolve to a User with the login of '{args['login']}'.", kind="NOT_FOUND")
    return user


def organization(_: Any, context: GitHubQueryContext, args: Json) -> GitHubUser:
    user = context.world.users.get(str(args["login"]).lower())
    if user is None or user.kind != "Organization":
        raise GitHubRefused(
            404, f"Could not resolve to an Organization with the login of '{args['login']}'.", kind="NOT_FOUND"
        )
    return user


def search(_: Any, context: GitHubQueryContext, args: Json) -> Json:
    """Return issues and pull requests by the qualifiers that tools use; words without a qualifier are searched in the title."""
    matching: list[GitHubIssue] = [issue for repo in context.world.repos.values() for issue in repo.issues.values()]
    matching = [issue for issue in matching if rules.is_visible(issue.repo, context.viewer)]
    for word in args["query"].split():
        name, _, value = word.partition(":")
        value = value.strip('"').replace("@me", context.viewer.login)
        matching = [issue for issue in matching if matches_qualifier(issue, name, value)]
    return connection(matching, args, issueCount=len(matching))


def matches_qualifier(issue: GitHubIssue, name: str, value: str) -> bool:
    pull = issue if isinstance(issue, GitHubPullRequest) else None
    if name in ("is", "type", "state"):
        kinds = {"pr" if pull else "issue", issue.state, "merged" if pull and pull.merged else "unmerged"}
        return value in kinds
    if name == "review-requested":
        return pull is not None and value in {user.login for user in pull.requested}
    if name == "assignee":
        return value in {user.login for user in issue.assignees}
    if name == "label":
        return value in {label.name for label in issue.labels}
    fields = {"repo": issue.repo.full_name, "author": issue.user.login, "head": pull.head_ref if pull else ""}
    if name in fields:
        return fields[name] == value
    return bool(value) or name.lower() in issue.title.lower()


def files_of(pull: GitHubPullRequest) -> tuple[bare_repository.FileChange, ...]:
    return bare_repository.changes(pull.repo.path, rules.base_sha(pull), pull.head_sha)


def queue_of(repo: Repo, branch: str) -> Json | None:
    protection = repo.protections.get(branch)
    if not protection or not protection.merge_queue:
        return None
    entries = sorted(
        (pull.queue for pull in repo.pulls() if pull.queue and pull.base_ref == branch), key=lambda entry: entry.id
    )
    return {"__typename": "MergeQueue", "id": f"MQ_{repo.id}_{branch}", "repository": repo, "lined": entries}
