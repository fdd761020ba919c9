"""A pull request as GitHub tells it by GraphQL, and what it comes to: `PullState`.

What an answer does not have is unknown: it is named in `PullState.unread`, and nothing is concluded from its absence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.plugins.forges.github.comment_marks import unmarked
from agent_orchestrator.plugins.forges.github.graphql_documents import FEWER, MORE
from agent_orchestrator.plugins.forges.github.people import author, same, when
from agent_orchestrator.plugins.forges.github.permissions import Speaks
from agent_orchestrator.plugins.forges.shared.http import TooLarge
from agent_orchestrator.protocols.forge import Author, PullCheck, PullComment, PullReview, PullState

Run = Callable[[str, Mapping[str, Any]], Awaitable[tuple[Any, list[Any]]]]
Node = dict[str, Any]
Who = Callable[[Any, Any], Author]
"""An author, by who he is and what he is to the repository."""

MOST_PAGES = 60
LONGEST_SUMMARY = 4_000

_CONCLUSIONS = {
    "SUCCESS": "success",
    "NEUTRAL": "skipped",
    "SKIPPED": "skipped",
    "CANCELLED": "cancelled",
    "TIMED_OUT": "timed_out",
}
"""Whatever else a check may have come to is a failure."""
_STATUSES = {"SUCCESS": "success", "PENDING": "running", "EXPECTED": "queued"}
_WORST_FIRST = ("failure", "timed_out", "cancelled", "running", "queued", "success", "skipped")
_VERDICTS = {"APPROVED": "approved", "CHANGES_REQUESTED": "changes_requested"}


async def complete(run: Run, pull: Node) -> None:
    """Read the further pages of everything in a pull request that has more than one."""
    for name in ("comments", "reviews", "reviewThreads", "labels"):
        await _follow(run, name, pull["id"], pull.get(name))
    for thread in _nodes(pull.get("reviewThreads")):
        await _follow(run, "thread", thread["id"], thread.get("comments"))
    commit = _head_commit(pull)
    await _follow(run, "checks", pull["id"], _at(commit, "statusCheckRollup", "contexts"), commit.get("oid"))


async def _follow(run: Run, name: str, node: str, connection: Any, commit: str | None = None) -> None:
    """Add the pages that are missing; a page that cannot be read leaves the connection marked as having more."""
    for _ in range(MOST_PAGES):
        if not _at(connection, "pageInfo", "hasNextPage"):
            return
        wanted = {"id": node, "after": connection["pageInfo"].get("endCursor")}
        try:
            data, errors = await run(MORE[name], wanted)
        except TooLarge:
            if name not in FEWER:
                raise
            data, errors = await run(MORE[name], {**wanted, "some": FEWER[name]})
        found = _at(data, "node")
        if commit is not None:
            inner = _head_commit(found)
            if inner.get("oid") != commit:
                return
            found = inner.get("statusCheckRollup")
        page = _at(found, "page")
        if not isinstance(page, Mapping) or errors:
            return
        connection["nodes"] = [*_nodes(connection), *_nodes(page)]
        connection["pageInfo"] = page.get("pageInfo") or {}


def people_of(pull: Node) -> Iterable[Speaks]:
    """Everybody who said something, with what is told of his rights."""
    for review in _nodes(pull.get("reviews")):
        yield Speaks(review.get("author"), review.get("authorAssociation"), review.get("authorCanPushToRepository"))
    threads = [_nodes(thread.get("comments")) for thread in _nodes(pull.get("reviewThreads"))]
    for said in (*_nodes(pull.get("comments")), *(note for notes in threads for note in notes)):
        yield Speaks(said.get("author"), said.get("authorAssociation"))


def pull_state(pull: Node, us: str, failed: Iterable[tuple[Any, ...]] = (), who: Who = author) -> PullState:
    """What a pull request's node comes to. `us`: our login; `failed`: paths below the node that could not be read."""
    unread = _unread(pull, failed)
    state = {"OPEN": "open", "MERGED": "merged"}.get(str(pull.get("state")), "closed")
    base = _at(pull, "baseRef", "target") or {}
    checks = () if "checks" in unread else (*_found_checks(pull), *_unapproved(pull))
    fork = _at(pull, "headRepository", "nameWithOwner") or "?" if pull.get("isCrossRepository") else ""
    return PullState(
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
        blocked=blocked(pull) if state == "open" else "",
        checks=checks,
        checks_expected=True if checks or required_checks(pull) else None,
        reviews=tuple(_reviews(pull, us, who)),
        comments=tuple(_comments(pull, us, who)),
        labels=tuple(str(label.get("name")) for label in _nodes(pull.get("labels"))),
        queued=bool(pull.get("isInMergeQueue") or pull.get("autoMergeRequest")),
        merged_as=_at(pull, "mergeCommit", "oid") if state == "merged" else None,
        fork=fork,
        unread=unread,
    )


def _unread(pull: Node, failed: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """The parts of which something is missing."""
    missing = set()
    for path in failed:
        first = path[0] if path else ""
        missing |= {
            "commits": {"checks"},
            "statusCheckRollup": {"checks"},
            "reviews": {"reviews"},
            "reviewThreads": {"comments"},
            "comments": {"comments"},
            "labels": {"labels"},
        }.get(str(first), set())
    for name, part in (
        ("reviews", "reviews"),
        ("comments", "comments"),
        ("reviewThreads", "comments"),
        ("labels", "labels"),
    ):
        if _lacks(pull.get(name)):
            missing.add(part)
    if any(_lacks(thread.get("comments")) for thread in _nodes(pull.get("reviewThreads"))):
        missing.add("comments")
    commit = _head_commit(pull)
    rollup = commit.get("statusCheckRollup")
    if (
        not commit.get("oid")
        or commit["oid"] != pull.get("headRefOid")
        or (rollup is not None and _lacks(_at(rollup, "contexts")))
    ):
        missing.add("checks")
    return tuple(sorted(missing))


def _lacks(connection: Any) -> bool:
    if not isinstance(connection, Mapping) or not isinstance(connection.get("nodes"), list):
        return True
    return bool(_at(connection, "pageInfo", "hasNextPage")) or any(node is None for node in connection["nodes"])


def blocked(pull: Node) -> str:
    """What GitHub demands before it may land."""
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
    checks = {check.name.rpartition(" / ")[2]: check.state for check in _found_checks(pull)}
    lacking = [name for name in required_checks(pull) if checks.get(name) not in ("success", "skipped")]
    if lacking:
        reasons.append(f"required checks have not passed: {', '.join(lacking)}")
    open_threads = [thread for thread in _nodes(pull.get("reviewThreads")) if not thread.get("isResolved")]
    if open_threads and _at(pull, "baseRef", "refUpdateRule", "requiresConversationResolution"):
        reasons.append("discussions must be resolved")
    return "; ".join(reasons) or "a rule of the repository is not met"


def required_checks(pull: Node) -> list[str]:
    """The names of the checks without which it cannot land, as far as told."""
    names = _at(pull, "baseRef", "refUpdateRule", "requiredStatusCheckContexts")
    return [str(name) for name in names if name] if isinstance(names, list) else []


def base_has_checks(pull: Node) -> bool:
    """Did checks run at the head of its base?"""
    return _at(pull, "baseRef", "target", "statusCheckRollup") is not None


def _found_checks(pull: Node) -> tuple[PullCheck, ...]:
    return checks_of(_nodes(_at(_head_commit(pull), "statusCheckRollup", "contexts")))


def _unapproved(pull: Node) -> Iterable[PullCheck]:
    """Workflows of a stranger's fork, which have no checks before a maintainer lets them run: nobody's failure, and not green."""
    for suite in _nodes(_head_commit(pull).get("checkSuites")):
        run = suite.get("workflowRun")
        if suite.get("conclusion") == "ACTION_REQUIRED" and isinstance(run, Mapping):
            yield PullCheck(
                id=f"run-{run.get('databaseId')}",
                name=str(_at(run, "workflow", "name") or "workflow"),
                state="queued",
                url=run.get("url"),
                summary="It waits until a maintainer lets it run.",
            )


def checks_of(contexts: Iterable[Node]) -> tuple[PullCheck, ...]:
    """The checks of a commit, one for each name: of one workflow's runs for the same event the newest, of several events the worst."""
    newest: dict[tuple[str, str], tuple[tuple[float, int], PullCheck]] = {}
    for context in contexts:
        of_run = context.get("__typename") == "CheckRun"
        check, event, age = _check_run(context) if of_run else _status(context)
        key = (check.name, event)
        if key not in newest or newest[key][0] <= age:
            newest[key] = (age, check)
    worst: dict[str, PullCheck] = {}
    for _, check in newest.values():
        other = worst.get(check.name)
        if other is None or _WORST_FIRST.index(check.state) < _WORST_FIRST.index(other.state):
            worst[check.name] = check
    return tuple(worst[name] for name in sorted(worst))


def _check_run(run: Node) -> tuple[PullCheck, str, tuple[float, int]]:
    number = run.get("databaseId") if isinstance(run.get("databaseId"), int) else None
    workflow = _at(run, "checkSuite", "workflowRun")
    ours = _at(run, "checkSuite", "app", "slug") == "github-actions"
    title = _at(workflow, "workflow", "name")
    name = str(run.get("name") or "check")
    check = PullCheck(
        id=str(number if number is not None else run.get("id")),
        name=f"{title} / {name}" if title else name,
        state=check_state(str(run.get("status")), run.get("conclusion")),
        url=run.get("detailsUrl") or run.get("url"),
        summary=_summary(run.get("title"), run.get("summary"), run.get("conclusion")),
        job=str(number) if ours and number is not None else None,
    )
    return check, str(_at(workflow, "event") or ""), (when(run.get("startedAt")), number or 0)


def check_state(status: str, conclusion: Any) -> str:
    """Our word for a check run's state. Completed with no conclusion says nothing: it counts as running."""
    if status.upper() == "COMPLETED":
        return _CONCLUSIONS.get(str(conclusion).upper(), "failure") if conclusion else "running"
    return "running" if status.upper() == "IN_PROGRESS" else "queued"


def _status(status: Node) -> tuple[PullCheck, str, tuple[float, int]]:
    check = PullCheck(
        id=str(status.get("id")),
        name=str(status.get("context") or "status"),
        state=_STATUSES.get(str(status.get("state")), "failure"),
        url=status.get("targetUrl"),
        summary=_summary(status.get("description"), None, None),
    )
    return check, "", (when(status.get("createdAt")), 0)


def _summary(title: Any, summary: Any, conclusion: Any) -> str:
    parts = [str(part).strip() for part in (title, summary) if part]
    if conclusion == "ACTION_REQUIRED":
        parts.insert(0, "It waits for a person's action.")
    if conclusion == "STARTUP_FAILURE":
        parts.insert(0, "It could not be started: its workflow file is wrong.")
    return "\n".join(parts)[:LONGEST_SUMMARY]


def _reviews(pull: Node, us: str, who: Who) -> Iterable[PullReview]:
    for review in _nodes(pull.get("reviews")):
        body, mark = unmarked(str(review.get("body") or ""))
        verdict = _VERDICTS.get(str(review.get("state")), "commented")
        hidden = review.get("isMinimized") and verdict == "commented"
        if review.get("state") == "PENDING" or hidden or (verdict == "commented" and not body.strip()):
            continue  # not sent yet; hidden; or but the frame of comments on lines
        yield PullReview(
            id=str(review["id"]),
            verdict=verdict,
            author=_author(review, us, mark, who),
            body=body,
            head=str(_at(review, "commit", "oid") or ""),
            at=when(review.get("submittedAt") or review.get("createdAt")),
        )


def _comments(pull: Node, us: str, who: Who) -> Iterable[PullComment]:
    for comment in _nodes(pull.get("comments")):
        if not comment.get("isMinimized"):
            yield _comment(comment, us, who)
    for thread in _nodes(pull.get("reviewThreads")):
        for note in _nodes(thread.get("comments")):
            if note.get("isMinimized") or note.get("state") == "PENDING":
                continue
            yield replace(
                _comment(note, us, who),
                path=note.get("path") or thread.get("path"),
                line=_first(note.get("line"), thread.get("line"), note.get("originalLine"), thread.get("originalLine")),
                thread=str(thread["id"]),
                review=_at(note, "pullRequestReview", "id"),
                head=str(_at(note, "originalCommit", "oid") or _at(note, "commit", "oid") or ""),
                resolved=bool(thread.get("isResolved")),
            )


def _comment(comment: Node, us: str, who: Who) -> PullComment:
    body, mark = unmarked(str(comment.get("body") or ""))
    speaker = _author(comment, us, mark, who)
    return PullComment(
        id=str(comment["id"]),
        body=body,
        author=speaker,
        at=when(comment.get("createdAt")),
        mark=mark if speaker.kind == "agent" else "",
    )


def _author(said: Node, us: str, mark: str, who: Who) -> Author:
    """The author; our own login with our mark is ourselves: a mark that somebody else copied is not."""
    found = who(said.get("author"), said.get("authorAssociation"))
    return replace(found, kind="agent") if mark and same(us, found.name) else found


def _head_commit(pull: Any) -> Node:
    commits = _nodes(_at(pull, "commits"))
    commit = commits[-1].get("commit") if commits else None
    return commit if isinstance(commit, dict) else {}


def _nodes(connection: Any) -> list[Node]:
    nodes = connection.get("nodes") if isinstance(connection, Mapping) else None
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _first(*values: Any) -> int | None:
    return next((value for value in values if isinstance(value, int)), None)
