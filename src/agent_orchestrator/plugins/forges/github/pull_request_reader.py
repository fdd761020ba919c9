"""Convert a pull request as GraphQL returns it into `PullRequestState`.

A part that is missing in an answer is unknown: it is listed in `PullRequestState.unread`, and nothing is concluded from its absence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.plugins.forges.github.graphql_documents import MORE_PAGES, SMALL_PAGE_SIZES
from agent_orchestrator.plugins.forges.github.people import parse_author
from agent_orchestrator.plugins.forges.github.permissions import CommentAuthor
from agent_orchestrator.plugins.forges.shared.comment_marks import is_same_login, split_mark
from agent_orchestrator.plugins.forges.shared.http import ResponseTooLarge
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import (
    Author,
    PullRequestCheck,
    PullRequestComment,
    PullRequestReview,
    PullRequestState,
)

QueryRunner = Callable[[str, Mapping[str, Any]], Awaitable[tuple[Any, list[Any]]]]
"""A function that runs a query and returns its data and errors."""
GraphQLNode = dict[str, Any]
"""An object in a GraphQL answer."""
AuthorOfActor = Callable[[Any, Any], Author]
"""A function that returns an author from an actor and its association with the repository."""

MAX_PAGES = 60
"""Pages that are read of one connection."""
MAX_SUMMARY_LENGTH = 4_000
"""Characters that are kept of a check's summary."""

_CONCLUSIONS = {
    "SUCCESS": "success",
    "NEUTRAL": "skipped",
    "SKIPPED": "skipped",
    "CANCELLED": "cancelled",
    "TIMED_OUT": "timed_out",
}
"""Our state by GitHub's conclusion of a check run. Any other conclusion is a failure."""
_STATUSES = {"SUCCESS": "success", "PENDING": "running", "EXPECTED": "queued"}
"""Our state by GitHub's state of a commit status. Any other state is a failure."""
_WORST_FIRST = ("failure", "timed_out", "cancelled", "running", "queued", "success", "skipped")
"""The states by which the worst of several checks of one name is chosen."""
_VERDICTS = {"APPROVED": "approved", "CHANGES_REQUESTED": "changes_requested"}


async def read_missing_pages(run: QueryRunner, pull: GraphQLNode) -> None:
    """Read the further pages of every connection of a pull request, in place."""
    for name in ("comments", "reviews", "reviewThreads", "labels"):
        await _add_pages(run, name, pull["id"], pull.get(name))
    for thread in _nodes(pull.get("reviewThreads")):
        await _add_pages(run, "thread", thread["id"], thread.get("comments"))
    commit = _head_commit(pull)
    await _add_pages(run, "checks", pull["id"], _value_at(commit, "statusCheckRollup", "contexts"), commit.get("oid"))


async def _add_pages(run: QueryRunner, name: str, node: str, connection: Any, commit: str | None = None) -> None:
    """Add the missing pages of a connection; if a page cannot be read, the connection stays marked as having more.

    `commit`: stop if the head is no longer this commit.
    """
    for _ in range(MAX_PAGES):
        if not _value_at(connection, "pageInfo", "hasNextPage"):
            return
        variables = {"id": node, "after": connection["pageInfo"].get("endCursor")}
        try:
            data, errors = await run(MORE_PAGES[name], variables)
        except ResponseTooLarge:
            if name not in SMALL_PAGE_SIZES:
                raise
            data, errors = await run(MORE_PAGES[name], {**variables, "some": SMALL_PAGE_SIZES[name]})
        parent = _value_at(data, "node")
        if commit is not None:
            head_commit = _head_commit(parent)
            if head_commit.get("oid") != commit:
                return
            parent = head_commit.get("statusCheckRollup")
        page = _value_at(parent, "page")
        if not isinstance(page, Mapping) or errors:
            return
        connection["nodes"] = [*_nodes(connection), *_nodes(page)]
        connection["pageInfo"] = page.get("pageInfo") or {}


def people_of(pull: GraphQLNode) -> Iterable[CommentAuthor]:
    """Return the authors of all reviews and comments, with what the answer says about their permissions."""
    for review in _nodes(pull.get("reviews")):
        yield CommentAuthor(
            review.get("author"), review.get("authorAssociation"), review.get("authorCanPushToRepository")
        )
    threads = [_nodes(thread.get("comments")) for thread in _nodes(pull.get("reviewThreads"))]
    for comment in (*_nodes(pull.get("comments")), *(note for notes in threads for note in notes)):
        yield CommentAuthor(comment.get("author"), comment.get("authorAssociation"))


def parse_pull_request(
    pull: GraphQLNode, us: str, failed: Iterable[tuple[Any, ...]] = (), who: AuthorOfActor = parse_author
) -> PullRequestState:
    """Return the state of a pull request from its node.

    `us`: our login; `failed`: paths below the node that could not be read; `who`: returns an author with the known write access.
    """
    unread = _unread_parts(pull, failed)
    state = {"OPEN": "open", "MERGED": "merged"}.get(str(pull.get("state")), "closed")
    base = _value_at(pull, "baseRef", "target") or {}
    checks = () if "checks" in unread else (*_head_checks(pull), *_unapproved_workflows(pull))
    fork = _value_at(pull, "headRepository", "nameWithOwner") or "?" if pull.get("isCrossRepository") else ""
    return PullRequestState(
        number=int(pull["number"]),
        id=str(pull["id"]),
        url=str(pull.get("url") or ""),
        title=str(pull.get("title") or ""),
        state=state,
        draft=bool(pull.get("isDraft")),
        branch=str(pull.get("headRefName") or ""),
        head=str(pull.get("headRefOid") or ""),
        base=str(pull.get("baseRefName") or ""),
        base_head=str(base.get("oid") or pull.get("baseRefOid") or ""),
        mergeable={"MERGEABLE": "yes", "CONFLICTING": "no"}.get(str(pull.get("mergeable")), "unknown"),
        blocked=blocking_reason(pull) if state == "open" else "",
        checks=checks,
        checks_expected=True if checks or required_checks(pull) else None,
        reviews=tuple(_reviews(pull, us, who)),
        comments=tuple(_comments(pull, us, who)),
        labels=tuple(str(label.get("name")) for label in _nodes(pull.get("labels"))),
        queued=bool(pull.get("isInMergeQueue") or pull.get("autoMergeRequest")),
        merged_as=_value_at(pull, "mergeCommit", "oid") if state == "merged" else None,
        fork=fork,
        unread=unread,
    )


def _unread_parts(pull: GraphQLNode, failed: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the parts of a pull request of which something is missing."""
    missing = set()
    for path in failed:
        field = path[0] if path else ""
        missing |= {
            "commits": {"checks"},
            "statusCheckRollup": {"checks"},
            "reviews": {"reviews"},
            "reviewThreads": {"comments"},
            "comments": {"comments"},
            "labels": {"labels"},
        }.get(str(field), set())
    for name, part in (
        ("reviews", "reviews"),
        ("comments", "comments"),
        ("reviewThreads", "comments"),
        ("labels", "labels"),
    ):
        if _is_incomplete(pull.get(name)):
            missing.add(part)
    if any(_is_incomplete(thread.get("comments")) for thread in _nodes(pull.get("reviewThreads"))):
        missing.add("comments")
    commit = _head_commit(pull)
    rollup = commit.get("statusCheckRollup")
    if (
        not commit.get("oid")
        or commit["oid"] != pull.get("headRefOid")
        or (rollup is not None and _is_incomplete(_value_at(rollup, "contexts")))
    ):
        missing.add("checks")
    return tuple(sorted(missing))


def _is_incomplete(connection: Any) -> bool:
    """Return whether a connection is missing, has unread pages or unreadable nodes."""
    if not isinstance(connection, Mapping) or not isinstance(connection.get("nodes"), list):
        return True
    return bool(_value_at(connection, "pageInfo", "hasNextPage")) or any(node is None for node in connection["nodes"])


def blocking_reason(pull: GraphQLNode) -> str:
    """Return what GitHub demands before the pull request can be merged, or ""."""
    status, decision = pull.get("mergeStateStatus"), pull.get("reviewDecision")
    if status == "BEHIND":
        return "its branch must be brought up to date with its base"
    if status != "BLOCKED":
        return ""
    reasons = []
    if decision == "REVIEW_REQUIRED":
        reasons.append("an approving review is required")
    if decision == "CHANGES_REQUESTED":
        reasons.append("changes are requested")
    checks = {check.name.rpartition(" / ")[2]: check.state for check in _head_checks(pull)}
    missing_checks = [name for name in required_checks(pull) if checks.get(name) not in ("success", "skipped")]
    if missing_checks:
        reasons.append(f"required checks have not passed: {', '.join(missing_checks)}")
    open_threads = [thread for thread in _nodes(pull.get("reviewThreads")) if not thread.get("isResolved")]
    if open_threads and _value_at(pull, "baseRef", "refUpdateRule", "requiresConversationResolution"):
        reasons.append("discussions must be resolved")
    return "; ".join(reasons) or "a rule of the repository is not met"


def required_checks(pull: GraphQLNode) -> list[str]:
    """Return the names of the checks that must pass before a merge, as far as GitHub names them."""
    names = _value_at(pull, "baseRef", "refUpdateRule", "requiredStatusCheckContexts")
    return [str(name) for name in names if name] if isinstance(names, list) else []


def base_has_checks(pull: GraphQLNode) -> bool:
    """Return whether checks ran at the head of the base branch."""
    return _value_at(pull, "baseRef", "target", "statusCheckRollup") is not None


def _head_checks(pull: GraphQLNode) -> tuple[PullRequestCheck, ...]:
    """Return the checks of the head commit."""
    return checks_of(_nodes(_value_at(_head_commit(pull), "statusCheckRollup", "contexts")))


def _unapproved_workflows(pull: GraphQLNode) -> Iterable[PullRequestCheck]:
    """Return a queued check for each workflow of a fork that runs only after a maintainer approves it.

    Such a workflow has no check run yet. It is not a failure, but the pull request must not count as green without it.
    """
    for suite in _nodes(_head_commit(pull).get("checkSuites")):
        run = suite.get("workflowRun")
        if suite.get("conclusion") == "ACTION_REQUIRED" and isinstance(run, Mapping):
            yield PullRequestCheck(
                id=f"run-{run.get('databaseId')}",
                name=str(_value_at(run, "workflow", "name") or "workflow"),
                state="queued",
                url=run.get("url"),
                summary="It waits until a maintainer lets it run.",
            )


def checks_of(contexts: Iterable[GraphQLNode]) -> tuple[PullRequestCheck, ...]:
    """Return the checks of a commit, one per name.

    Of the runs of one workflow for the same event the newest counts, of the runs for several events the worst.
    """
    newest: dict[tuple[str, str], tuple[tuple[float, int], PullRequestCheck]] = {}
    for context in contexts:
        is_check_run = context.get("__typename") == "CheckRun"
        check, event, order = _from_check_run(context) if is_check_run else _from_status(context)
        key = (check.name, event)
        if key not in newest or newest[key][0] <= order:
            newest[key] = (order, check)
    worst: dict[str, PullRequestCheck] = {}
    for _, check in newest.values():
        other = worst.get(check.name)
        if other is None or _WORST_FIRST.index(check.state) < _WORST_FIRST.index(other.state):
            worst[check.name] = check
    return tuple(worst[name] for name in sorted(worst))


def _from_check_run(run: GraphQLNode) -> tuple[PullRequestCheck, str, tuple[float, int]]:
    """Return a check run as a check, the event that started it, and its order in time."""
    number = run.get("databaseId") if isinstance(run.get("databaseId"), int) else None
    workflow = _value_at(run, "checkSuite", "workflowRun")
    is_actions = _value_at(run, "checkSuite", "app", "slug") == "github-actions"
    workflow_name = _value_at(workflow, "workflow", "name")
    name = str(run.get("name") or "check")
    check = PullRequestCheck(
        id=str(number if number is not None else run.get("id")),
        name=f"{workflow_name} / {name}" if workflow_name else name,
        state=check_state(str(run.get("status")), run.get("conclusion")),
        url=run.get("detailsUrl") or run.get("url"),
        summary=_summary(run.get("title"), run.get("summary"), run.get("conclusion")),
        job=str(number) if is_actions and number is not None else None,
    )
    return check, str(_value_at(workflow, "event") or ""), (parse_time(run.get("startedAt")), number or 0)


def check_state(status: str, conclusion: Any) -> str:
    """Return our state of a check run. One that is completed without a conclusion counts as running."""
    if status.upper() == "COMPLETED":
        return _CONCLUSIONS.get(str(conclusion).upper(), "failure") if conclusion else "running"
    return "running" if status.upper() == "IN_PROGRESS" else "queued"


def _from_status(status: GraphQLNode) -> tuple[PullRequestCheck, str, tuple[float, int]]:
    """Return a commit status as a check, an empty event, and its order in time."""
    check = PullRequestCheck(
        id=str(status.get("id")),
        name=str(status.get("context") or "status"),
        state=_STATUSES.get(str(status.get("state")), "failure"),
        url=status.get("targetUrl"),
        summary=_summary(status.get("description"), None, None),
    )
    return check, "", (parse_time(status.get("createdAt")), 0)


def _summary(title: Any, summary: Any, conclusion: Any) -> str:
    """Return the summary of a check, beginning with what a person should know about its conclusion."""
    parts = [str(part).strip() for part in (title, summary) if part]
    if conclusion == "ACTION_REQUIRED":
        parts.insert(0, "It waits for a person's action.")
    if conclusion == "STARTUP_FAILURE":
        parts.insert(0, "It could not be started: its workflow file is wrong.")
    return "\n".join(parts)[:MAX_SUMMARY_LENGTH]


def _reviews(pull: GraphQLNode, our_login: str, who: AuthorOfActor) -> Iterable[PullRequestReview]:
    """Return the reviews that were submitted and are visible."""
    for review in _nodes(pull.get("reviews")):
        body, mark = split_mark(str(review.get("body") or ""))
        verdict = _VERDICTS.get(str(review.get("state")), "commented")
        hidden = review.get("isMinimized") and verdict == "commented"
        if review.get("state") == "PENDING" or hidden or (verdict == "commented" and not body.strip()):
            continue  # not submitted; hidden; or only the container of comments on lines
        yield PullRequestReview(
            id=str(review["id"]),
            verdict=verdict,
            author=_author(review, our_login, mark, who),
            body=body,
            head=str(_value_at(review, "commit", "oid") or ""),
            at=parse_time(review.get("submittedAt") or review.get("createdAt")),
        )


def _comments(pull: GraphQLNode, our_login: str, who: AuthorOfActor) -> Iterable[PullRequestComment]:
    """Return all visible comments: those on the whole, and those on lines with their discussion."""
    for comment in _nodes(pull.get("comments")):
        if not comment.get("isMinimized"):
            yield _comment(comment, our_login, who)
    for thread in _nodes(pull.get("reviewThreads")):
        for line_comment in _nodes(thread.get("comments")):
            if line_comment.get("isMinimized") or line_comment.get("state") == "PENDING":
                continue
            yield replace(
                _comment(line_comment, our_login, who),
                path=line_comment.get("path") or thread.get("path"),
                line=_first_number(
                    line_comment.get("line"),
                    thread.get("line"),
                    line_comment.get("originalLine"),
                    thread.get("originalLine"),
                ),
                thread=str(thread["id"]),
                review=_value_at(line_comment, "pullRequestReview", "id"),
                head=str(
                    _value_at(line_comment, "originalCommit", "oid") or _value_at(line_comment, "commit", "oid") or ""
                ),
                resolved=bool(thread.get("isResolved")),
            )


def _comment(comment: GraphQLNode, our_login: str, who: AuthorOfActor) -> PullRequestComment:
    """Return a comment, without our hidden mark."""
    body, mark = split_mark(str(comment.get("body") or ""))
    comment_author = _author(comment, our_login, mark, who)
    return PullRequestComment(
        id=str(comment["id"]),
        body=body,
        author=comment_author,
        at=parse_time(comment.get("createdAt")),
        mark=mark if comment_author.kind == "agent" else "",
    )


def _author(node: GraphQLNode, our_login: str, mark: str, who: AuthorOfActor) -> Author:
    """Return an author; our own login with our mark has the kind `agent`. A mark that another person copied does not count."""
    known_author = who(node.get("author"), node.get("authorAssociation"))
    return replace(known_author, kind="agent") if mark and is_same_login(our_login, known_author.name) else known_author


def _head_commit(pull: Any) -> GraphQLNode:
    """Return the node of the last commit, or an empty one."""
    commits = _nodes(_value_at(pull, "commits"))
    commit = commits[-1].get("commit") if commits else None
    return commit if isinstance(commit, dict) else {}


def _nodes(connection: Any) -> list[GraphQLNode]:
    """Return the readable nodes of a connection."""
    nodes = connection.get("nodes") if isinstance(connection, Mapping) else None
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _value_at(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _first_number(*values: Any) -> int | None:
    """Return the first integer, or None."""
    return next((value for value in values if isinstance(value, int)), None)
