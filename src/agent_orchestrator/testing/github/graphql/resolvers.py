"""GraphQL: how the fields that need more than a look are read from the forge's state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.graphql.base import CommitNode, Context, RefNode, Rollup, connection
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import (
    CheckRun,
    Comment,
    Issue,
    Label,
    Pull,
    QueueEntry,
    Repo,
    Review,
    ReviewComment,
    Status,
    User,
    WorkflowRun,
)
from agent_orchestrator.testing.github.world import Refused

Resolver = Callable[..., Any]
"""Takes what it is asked of; where it names more, the context and the arguments as well."""


def many(of: Callable[[Any], list[Any]]) -> Resolver:
    return lambda source, _, args: connection(of(source), args)


def value(it: Any) -> Resolver:
    return lambda _: it


def page(source: Any, context: Context) -> str:
    show = context.show
    if isinstance(source, Repo):
        return show.page(source)
    if isinstance(source, Issue):
        return show.issue_page(source)
    if isinstance(source, User):
        return f"{show.web}/{source.login}"
    shapes: dict[type, Callable[[Any], Json]] = {
        Comment: show.comment, Review: show.review, ReviewComment: show.review_comment, CheckRun: show.check_run,
        WorkflowRun: show.workflow_run,
    }  # fmt: skip
    shaped = shapes.get(type(source))
    if shaped is None:
        raise Refused(501, f"{type(source).__name__} has no page here", kind="NOT_SERVED")
    return str(shaped(source)["html_url"])


def upper(source: str | None) -> str | None:
    return source.upper() if source else None


def repo_of(source: Any) -> Repo:
    for name in ("repo", "issue", "pull", "thread", "suite"):
        found = getattr(source, name, None)
        if found is not None:
            return found if isinstance(found, Repo) else repo_of(found)
    raise Refused(501, "no repository here", kind="NOT_SERVED")


def association(source: Any) -> str:
    return rules.association(repo_of(source), source.user, source.association)


def required(source: CheckRun | Status, _: Context, args: Json) -> bool:
    repo = repo_of(source)
    name = source.context if isinstance(source, Status) else source.name
    wanted = [
        pull
        for pull in repo.pulls()
        if pull.number == args.get("pullRequestNumber") or pull.node_id == args.get("pullRequestId")
    ]
    return any(name in rules.protection(pull).checks for pull in wanted)


def time_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def named_repository(_: Any, context: Context, args: Json) -> Repo:
    name = f"{args['owner']}/{args['name']}"
    found = context.world.repos.get(name.lower()) or (
        context.world.moved.get(name.lower()) if args.get("followRenames", True) else None
    )
    if found is None or not rules.visible(found, context.viewer):
        raise Refused(404, f"Could not resolve to a Repository with the name '{name}'.", kind="NOT_FOUND")
    return found


def by_number(kind: type[Issue], word: str) -> Resolver:
    def one(source: Repo, _: Context, args: Json) -> Issue:
        found = source.issues.get(args["number"])
        if found is None or (kind is Pull) != isinstance(found, Pull):
            raise Refused(404, f"Could not resolve to {word} with the number of {args['number']}.", kind="NOT_FOUND")
        return found

    return one


def pulls_of(source: Repo | RefNode, _: Context, args: Json) -> Json:
    found = (source.repo if isinstance(source, RefNode) else source).pulls()
    if isinstance(source, RefNode):
        found = [pull for pull in found if pull.head_ref == source.name]
    if args.get("states"):
        found = [pull for pull in found if pull_state(pull) in args["states"]]
    if args.get("headRefName"):
        found = [pull for pull in found if pull.head_ref == args["headRefName"]]
    if args.get("baseRefName"):
        found = [pull for pull in found if pull.base_ref == args["baseRefName"]]
    if args.get("labels"):
        found = [pull for pull in found if {label.name for label in pull.labels} & set(args["labels"])]
    return connection(ordered(found, args), args)


def issues_of(source: Repo, _: Context, args: Json) -> Json:
    found = [issue for issue in source.issues.values() if not isinstance(issue, Pull)]
    by = args.get("filterBy") or {}
    states, labels = args.get("states") or by.get("states"), args.get("labels") or by.get("labels")
    if states:
        found = [issue for issue in found if issue.state.upper() in states]
    if labels:
        found = [issue for issue in found if {label.name for label in issue.labels} & set(labels)]
    if by.get("since"):
        found = [issue for issue in found if issue.updated_at >= by["since"]]
    if by.get("assignee"):
        found = [issue for issue in found if by["assignee"] in {user.login for user in issue.assignees}]
    return connection(ordered(found, args), args)


def ordered(found: list[Any], args: Json) -> list[Any]:
    order = args.get("orderBy") or {}
    by = (
        (lambda one: (one.updated_at, one.id))
        if order.get("field") == "UPDATED_AT"
        else (lambda one: (one.created_at, one.id))
    )
    return sorted(found, key=by, reverse=order.get("direction") == "DESC")


def pull_state(pull: Pull) -> str:
    return "MERGED" if pull.merged else pull.state.upper()


def mergeable(source: Pull) -> str:
    can = rules.mergeable(source)
    return "UNKNOWN" if can is None else "MERGEABLE" if can else "CONFLICTING"


def rollup_of(source: CommitNode) -> Rollup | None:
    state = rules.rollup(source.repo, source.sha)
    return Rollup(source.repo, source.sha, state) if state else None


def contexts_of(source: Rollup, _: Context, args: Json) -> Json:
    runs, words = rules.check_runs(source.repo, source.sha), rules.statuses(source.repo, source.sha)
    return connection([*runs, *words], args, checkRunCount=len(runs), statusContextCount=len(words))


def reviews_of(source: Pull, context: Context, args: Json) -> Json:
    found = [review for review in source.reviews if review.state != "PENDING" or review.user is context.viewer]
    if args.get("states"):
        found = [review for review in found if review.state in args["states"]]
    if args.get("author"):
        found = [review for review in found if review.user.graphql_login == args["author"]]
    return connection(found, args)


def latest_reviews(source: Pull, _: Context, args: Json) -> Json:
    last = {review.user.login: review for review in source.reviews if review.state != "PENDING"}
    return connection(list(last.values()), args)


def ref_node(repo: Repo | None, name: str) -> RefNode | None:
    sha = repo.head(name) if repo else None
    return RefNode(repo, name, sha) if repo and sha else None


def update_rule(source: RefNode) -> Json | None:
    kept = source.repo.protections.get(source.name)
    return None if kept is None else {
        "requiredStatusCheckContexts": list(kept.checks), "requiredApprovingReviewCount": kept.approvals or None,
        "requiresConversationResolution": kept.resolved, "requiresCodeOwnerReviews": False, "requiresLinearHistory": False,
        "requiresSignatures": False, "allowsDeletions": False, "allowsForcePushes": False, "blocksCreations": False,
        "pattern": source.name, "viewerCanPush": True, "viewerAllowedToDismissReviews": True,
    }  # fmt: skip


def protection_rule(source: RefNode) -> Json | None:
    kept = source.repo.protections.get(source.name)
    return None if kept is None else {
        "pattern": source.name, "requiredStatusCheckContexts": list(kept.checks), "requiresStatusChecks": bool(kept.checks),
        "requiresStrictStatusChecks": kept.strict, "requiresApprovingReviews": bool(kept.approvals),
        "requiredApprovingReviewCount": kept.approvals, "requiresConversationResolution": kept.resolved,
    }  # fmt: skip


def node_or_refusal(context: Context, node_id: str) -> Any:
    found = context.world.nodes.get(node_id)
    repo = repo_of(found) if found is not None and not isinstance(found, (Repo, User, Label)) else found
    if found is None or (isinstance(repo, Repo) and not rules.visible(repo, context.viewer)):
        return Refused(404, f"Could not resolve to a node with the global id of '{node_id}'", kind="NOT_FOUND")
    return found


def one_node(_: Any, context: Context, args: Json) -> Any:
    found = node_or_refusal(context, args["id"])
    if isinstance(found, Refused):
        raise found
    return found


def position_in_queue(source: QueueEntry) -> int:
    pull = source.pull
    line = sorted(other.queue.id for other in pull.repo.pulls() if other.queue and other.base_ref == pull.base_ref)
    return line.index(source.id) + 1 if source.id in line else 1


def attribute(login: str) -> Resolver:
    return lambda source: getattr(source, login)


def person(_: Any, context: Context, args: Json) -> Any:
    found = context.world.users.get(str(args["login"]).lower())
    if found is None:
        raise Refused(404, f"Could not resolve to a User with the login of '{args['login']}'.", kind="NOT_FOUND")
    return found


def organization(_: Any, context: Context, args: Json) -> User:
    found = context.world.users.get(str(args["login"]).lower())
    if found is None or found.kind != "Organization":
        raise Refused(
            404, f"Could not resolve to an Organization with the login of '{args['login']}'.", kind="NOT_FOUND"
        )
    return found


def search(_: Any, context: Context, args: Json) -> Json:
    """Issues and pull requests by the qualifiers that tools use; words without one are looked for in the title."""
    found: list[Issue] = [issue for repo in context.world.repos.values() for issue in repo.issues.values()]
    found = [issue for issue in found if rules.visible(issue.repo, context.viewer)]
    for word in args["query"].split():
        name, _, value = word.partition(":")
        value = value.strip('"').replace("@me", context.viewer.login)
        found = [issue for issue in found if answers(issue, name, value)]
    return connection(found, args, issueCount=len(found))


def answers(issue: Issue, name: str, value: str) -> bool:
    pull = issue if isinstance(issue, Pull) else None
    if name in ("is", "type", "state"):
        kinds = {"pr" if pull else "issue", issue.state, "merged" if pull and pull.merged else "unmerged"}
        return value in kinds
    if name == "review-requested":
        return pull is not None and value in {user.login for user in pull.requested}
    if name == "assignee":
        return value in {user.login for user in issue.assignees}
    if name == "label":
        return value in {label.name for label in issue.labels}
    known = {"repo": issue.repo.full_name, "author": issue.user.login, "head": pull.head_ref if pull else ""}
    if name in known:
        return known[name] == value
    return bool(value) or name.lower() in issue.title.lower()


def files_of(pull: Pull) -> tuple[bare.FileChange, ...]:
    return bare.changes(pull.repo.path, rules.base_sha(pull), pull.head_sha)


def queue_of(repo: Repo, branch: str) -> Json | None:
    kept = repo.protections.get(branch)
    if not kept or not kept.merge_queue:
        return None
    line = sorted(
        (pull.queue for pull in repo.pulls() if pull.queue and pull.base_ref == branch), key=lambda entry: entry.id
    )
    return {"__typename": "MergeQueue", "id": f"MQ_{repo.id}_{branch}", "repository": repo, "lined": line}
