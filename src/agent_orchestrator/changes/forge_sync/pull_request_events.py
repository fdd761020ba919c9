"""Compare a pull request with the facts: `news(facts, pull, conflicts) -> [event's body]`. Pure functions.

The forge reports a state (`protocols/forge.py`) and the facts hold what is known; the difference is what happened. So a
state that is read twice, by a webhook and by a poll, leads to events once.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_orchestrator.changes.forge_sync.merge_cleanup import keeps_branch
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import UNFINISHED_STATES, PullRequest
from agent_orchestrator.protocols.forge import PullRequestCheck, PullRequestComment, PullRequestReview, PullRequestState

UNKNOWN_FILES = ("files that the forge does not name",)
"""Stands for files in conflict that the forge does not name."""


def pull_request_news(facts: SessionFacts, pull: PullRequestState, conflicts: Sequence[str] = ()) -> list[e.Body]:
    """Return what happened to a session's pull request, in order; `conflicts`: the files in conflict, if they are known."""
    pr = facts.pr
    if pr is None or pr.state == "merged":
        return []
    bodies: list[e.Body] = []
    if pull.state == "open":
        bodies += _metadata_events(pr, pull)
        if pull.base_head and pull.base_head != facts.base_head:
            bodies.append(e.BaseMoved(pull.base_head))
        if pull.head == facts.head:  # another commit's checks and conflicts say nothing about the session's head
            bodies += _conflict_events(pr, pull, tuple(conflicts) or UNKNOWN_FILES) + _check_events(pr, pull)
    if merges_other_commit(facts, pull):
        bodies.append(e.LandingFailed(f"somebody pushed {pull.head[:12]}, which was not checked", "moved"))
    return bodies + _discussion_events(pr, pull) + _end_events(pr, pull)


def merges_other_commit(facts: SessionFacts, pull: PullRequestState) -> bool:
    """Return whether the forge is about to merge another commit than the requested one."""
    request = facts.pr.merge_request if facts.pr else None
    return request is not None and pull.state == "open" and pull.queued and pull.head != request.head


def _metadata_events(pr: PullRequest, pull: PullRequestState) -> list[e.Body]:
    """Return the changes of the pull request's base, title, draft state and blocked state."""
    bodies: list[e.Body] = []
    if pull.base != pr.base:
        bodies.append(e.BaseChanged(pull.base, "it was given another base at the forge"))
    state = (pull.title, pull.draft, "open", pull.blocked)
    if (pr.title, pr.draft, pr.state, pr.blocked) != state:
        bodies.append(e.PrChanged(*state))
    return bodies


def _conflict_events(pr: PullRequest, pull: PullRequestState, files: tuple[str, ...]) -> list[e.Body]:
    """Return the change in whether the pull request can be merged, with the files in conflict."""
    sides, has_conflicts = (pull.head, pull.base_head), pull.mergeable == "no"
    is_known = pr.compared_heads == sides and pr.base == pull.base and bool(pr.conflicting_files) == has_conflicts
    return [] if pull.mergeable == "unknown" or is_known else [e.ConflictsSeen(*sides, files if has_conflicts else ())]


def _check_events(pr: PullRequest, pull: PullRequestState) -> list[e.Body]:
    """Return the events of checks: each result, and that all have ended or, if a run was restarted, that they have not."""
    if "checks" in pull.unread:
        return []
    check_names = {check.name for check in pull.checks}
    gone = [run for run in pr.checks.values() if run.head == pull.head and run.name not in check_names]
    running = any(check.state in UNFINISHED_STATES for check in pull.checks)
    was_restarted = running and pr.settled_head == pull.head
    changed_checks = [check for check in pull.checks if was_restarted or not _is_known(pr, check, pull.head)]
    bodies = [
        *(e.CheckGone(run.name, run.head) for run in gone),
        *(_check_event(check, pull.head) for check in changed_checks),
    ]
    if was_restarted:
        return [e.ChecksRequested(pull.head), *bodies]
    had_checks = any(run.head != pull.head for run in pr.checks.values())  # so this commit will have some too
    has_no_checks = not pull.checks and pull.checks_expected is False and not had_checks
    if (
        (has_no_checks or pull.checks)
        and not running
        and (bodies or pr.settled_head != pull.head or pr.has_no_checks != has_no_checks)
    ):
        bodies.append(e.ChecksSettled(pull.head, none=has_no_checks))
    return bodies


def _is_known(pr: PullRequest, check: PullRequestCheck, head: str) -> bool:
    """Return whether a check's state on this commit is in the facts."""
    run = pr.checks.get(check.name)
    return run is not None and (run.head, run.state) == (head, check.state)


def _check_event(check: PullRequestCheck, head: str) -> e.Body:
    """Return the event for a check's state."""
    match check.state:
        case "queued":
            return e.CheckStarted(check.name, head)
        case "running":
            return e.CheckStarted(check.name, head, url=check.url or "", running=True)
    return e.CheckFinished(check.name, head, check.state, summary=check.summary, log=check.log, url=check.url or "")


def _discussion_events(pr: PullRequest, pull: PullRequestState) -> list[e.Body]:
    """Return new reviews, comments and settled threads.

    A comment that the agent made here and that was posted at the forge has its id as a mark and is left out.
    """
    timed_bodies: list[tuple[float, e.Body]] = []
    verdicts = {item.id: item.verdict for item in pr.reviews}
    for review in pull.reviews:
        verdict = verdicts.get(review.id)
        if verdict is None:
            timed_bodies.append((review.at, _review_event(review)))
        elif verdict != review.verdict:
            timed_bodies.append((review.at, e.ReviewChanged(review.id, review.verdict)))
    known_ids, known_threads = (
        {item.id for item in pr.comments},
        {item.thread: item.resolved for item in pr.comments if item.thread},
    )
    new_comments = [item for item in pull.comments if item.id not in known_ids and item.mark not in known_ids]
    timed_bodies += [(item.at, _comment_event(item, pull.head)) for item in new_comments]
    resolved_by_thread = {item.thread: item.resolved for item in pull.comments if item.thread}
    bodies = [body for _, body in sorted(timed_bodies, key=lambda item: item[0])]
    changed = [
        thread for thread, is_resolved in resolved_by_thread.items() if is_resolved != known_threads.get(thread, False)
    ]
    return bodies + [e.ThreadSettled(thread, resolved_by_thread[thread]) for thread in changed]


def _review_event(review: PullRequestReview) -> e.Body:
    """Return the event for a new review."""
    return e.ReviewSubmitted(
        review=review.id,
        verdict=review.verdict,
        head=review.head,
        author=review.author.name,
        body=review.body,
        write_access=review.author.write_access,
        kind=review.author.kind,
        counts=review.author.kind == "person",
    )


def _comment_event(comment: PullRequestComment, head: str) -> e.Body:
    """Return the event for a new comment."""
    return e.CommentAdded(
        comment=comment.id,
        body=comment.body,
        author=comment.author.name,
        path=comment.path,
        line=comment.line,
        thread=comment.thread,
        review=comment.review,
        by_agent=comment.author.kind == "agent",
        head=comment.head or head,
        write_access=comment.author.write_access,
        kind=comment.author.kind,
    )


def _end_events(pr: PullRequest, pull: PullRequestState) -> list[e.Body]:
    """Return the event for a pull request that was merged or closed at the forge."""
    if pull.state == "merged":
        request = pr.merge_request
        keep_branch = keeps_branch(request)
        strategy = request.strategy if request else "squash"
        remove_there = bool(request and not keep_branch)
        return [
            e.PrMerged(
                pull.merged_as or "", "", pull.head, strategy, keep_branch=keep_branch, remove_there=remove_there
            )
        ]
    if pull.state == "closed" and pr.state == "open":
        return [e.PrClosed("it was closed at the forge")]
    return []
