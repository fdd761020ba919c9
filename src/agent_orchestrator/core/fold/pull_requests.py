"""From events to facts: a session's pull request, its checks, reviews, comments and merge, and predicted conflicts.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import PredictedConflict, SessionFacts
from agent_orchestrator.core.fold.step import Step
from agent_orchestrator.core.pull_request import (
    MAX_REPLIES,
    CheckRun,
    Comment,
    MergeRequest,
    PullRequest,
    Review,
)


def _with_pull_request(facts: SessionFacts, **changes: Any) -> SessionFacts:
    """Return the facts with changes to the pull request, or unchanged if there is none."""
    return replace(facts, pr=replace(facts.pr, **changes)) if facts.pr else facts


def _apply_pr_opened(facts: SessionFacts, _event: Event, body: e.PrOpened) -> SessionFacts:
    """Add the pull request, unless the session has one."""
    if facts.pr is not None:
        return facts
    return replace(
        facts, pr=PullRequest(body.number, body.title, body.base, body.draft, url=body.url, permanent_id=body.node)
    )


def _apply_pr_ready(facts: SessionFacts, _event: Event, _body: e.PrReady) -> SessionFacts:
    """Mark the pull request as ready for review."""
    return _with_pull_request(facts, draft=False)


def _apply_pr_changed(facts: SessionFacts, _event: Event, body: e.PrChanged) -> SessionFacts:
    """Record title, state and demands of the pull request as read from the forge."""
    return _with_pull_request(facts, title=body.title, draft=body.draft, state=body.state, blocked=body.blocked)


def _apply_pr_closed(facts: SessionFacts, _event: Event, _body: e.PrClosed) -> SessionFacts:
    """Mark the pull request as closed, unless it is merged."""
    return (
        facts
        if facts.pr and facts.pr.state == "merged"
        else _with_pull_request(facts, state="closed", merge_request=None)
    )


def _apply_pr_merged(facts: SessionFacts, _event: Event, body: e.PrMerged) -> SessionFacts:
    """Mark the pull request as merged."""
    return _with_pull_request(
        facts,
        state="merged",
        draft=False,
        merge_request=None,
        merge_commit=body.commit,
        merged_head=body.head,
        base_before=body.base_before,
        keep_branch=body.keep_branch,
        uncommitted_files=body.left,
        merge_failure="",
    )


def _apply_base_moved(facts: SessionFacts, _event: Event, body: e.BaseMoved) -> SessionFacts:
    """Record the head of the base branch; a new one clears the reason of a failed merge."""
    has_moved = body.head != facts.base_head
    return _with_pull_request(replace(facts, base_head=body.head), merge_failure="") if has_moved else facts


def _apply_conflicts_seen(facts: SessionFacts, _event: Event, body: e.ConflictsSeen) -> SessionFacts:
    """Record which files conflict, and the commits that were compared."""
    return _with_pull_request(facts, conflicting_files=body.files, compared_heads=(body.head, body.base_head))


def _apply_checks_requested(facts: SessionFacts, _event: Event, _body: e.ChecksRequested) -> SessionFacts:
    """Queue all checks of the head again; until they have run there is no result."""
    if facts.pr is None:
        return facts
    checks = {
        name: CheckRun(name, run.head, "queued") if run.head == facts.head else run
        for name, run in facts.pr.checks.items()
    }
    return _with_pull_request(
        facts, settled_head=None, check_request_count=facts.pr.check_request_count + 1, checks=checks
    )


def _apply_check_started(facts: SessionFacts, _event: Event, body: e.CheckStarted) -> SessionFacts:
    """Record a check that is queued or running."""
    return _with_check_run(
        facts,
        CheckRun(body.name, body.head, "running" if body.log or body.running else "queued", log=body.log, url=body.url),
    )


def check_run(body: e.CheckFinished) -> CheckRun:
    """Return a finished check as the facts keep it."""
    return CheckRun(
        name=body.name,
        head=body.head,
        state=body.state,
        summary=body.summary,
        log=body.log,
        tree=body.tree,
        passed=body.passed,
        failed=body.failed,
        skipped=body.skipped,
        new=body.new,
        known=body.known,
        owned=body.owned,
        vanished=body.vanished,
        newly_skipped=body.newly_skipped,
        fewer=body.fewer,
        forbidden=body.forbidden,
        reason=body.reason,
        remedy=body.remedy,
        command=body.command,
        url=body.url,
        outdated=body.on_base and not body.compared,
    )


def _apply_check_finished(facts: SessionFacts, _event: Event, body: e.CheckFinished) -> SessionFacts:
    """Record the result of a check."""
    return _with_check_run(facts, check_run(body))


def _with_check_run(facts: SessionFacts, run: CheckRun) -> SessionFacts:
    """Record a check run, unless it is of an older commit than the recorded one."""
    if facts.pr is None:
        return facts
    recorded = facts.pr.checks.get(run.name)
    if recorded is not None and recorded.head == facts.head and run.head != facts.head:
        return facts
    return _with_pull_request(facts, checks={**facts.pr.checks, run.name: run})


def _apply_check_gone(facts: SessionFacts, _event: Event, body: e.CheckGone) -> SessionFacts:
    """Remove a check run that no longer exists at the forge."""
    checks = facts.pr.checks if facts.pr else {}
    removed = (body.name, body.head)
    return _with_pull_request(facts, checks={name: run for name, run in checks.items() if (name, run.head) != removed})


def _apply_checks_settled(facts: SessionFacts, _event: Event, body: e.ChecksSettled) -> SessionFacts:
    """Record the commit at which every check has a result; request the checks again if a result is outdated."""
    if facts.pr and any(run.outdated for run in facts.pr.check_runs(body.head)):
        return _with_pull_request(facts, check_request_count=facts.pr.check_request_count + 1)
    return _with_pull_request(facts, settled_head=body.head, has_no_checks=body.none)


def _apply_checks_by_hand(facts: SessionFacts, _event: Event, body: e.ChecksByHand) -> SessionFacts:
    """Record the commit at which checks run only on request."""
    return _with_pull_request(facts, manual_checks_head=body.head)


def _apply_review_submitted(facts: SessionFacts, event: Event, body: e.ReviewSubmitted) -> SessionFacts:
    """Add a review, unless it is recorded."""
    if facts.pr is None or any(review.id == body.review for review in facts.pr.reviews):
        return facts
    review = Review(
        id=body.review,
        verdict=body.verdict,
        head=body.head,
        author=body.author,
        body=body.body,
        at=event.time,
        write_access=body.write_access,
        kind=body.kind,
        reviewer=body.reviewer,
        is_sufficient=body.counts,
        session_head=body.head if body.reviewer else facts.head or "",
    )
    return _with_pull_request(facts, reviews=(*facts.pr.reviews, review))


def _apply_review_changed(facts: SessionFacts, _event: Event, body: e.ReviewChanged) -> SessionFacts:
    """Change the verdict of a review."""
    reviews = facts.pr.reviews if facts.pr else ()
    return _with_pull_request(
        facts,
        reviews=tuple(
            replace(review, verdict=body.verdict) if review.id == body.review else review for review in reviews
        ),
    )


def _apply_thread_settled(facts: SessionFacts, _event: Event, body: e.ThreadSettled) -> SessionFacts:
    """Mark the comments of a thread as resolved or open."""
    comments = facts.pr.comments if facts.pr else ()
    return _with_pull_request(
        facts,
        comments=tuple(
            replace(comment, resolved=body.resolved) if body.thread == (comment.thread or comment.id) else comment
            for comment in comments
        ),
    )


def _apply_people_asked(facts: SessionFacts, _event: Event, body: e.PeopleAsked) -> SessionFacts:
    """Add people who were asked to review."""
    requested = facts.pr.requested_reviewers if facts.pr else ()
    return _with_pull_request(facts, requested_reviewers=tuple(dict.fromkeys((*requested, *body.people))))


def _apply_comment_added(facts: SessionFacts, event: Event, body: e.CommentAdded) -> SessionFacts:
    """Add a comment, unless it is recorded or the agent has reached its limit of `MAX_REPLIES`."""
    if facts.pr is None or any(comment.id == body.comment for comment in facts.pr.comments):
        return facts
    if body.by_agent and event.source != facts.spec.scm and facts.pr.reply_count >= MAX_REPLIES:
        return facts
    comment = Comment(
        id=body.comment,
        body=body.body,
        author=body.author,
        at=event.time,
        path=body.path,
        line=body.line,
        thread=body.thread,
        review=body.review,
        by_agent=body.by_agent,
        head=body.head,
        write_access=body.write_access,
        kind=body.kind,
        session_head=facts.head or "",
    )
    return _with_pull_request(facts, comments=(*facts.pr.comments, comment))


def _apply_merge_requested(facts: SessionFacts, event: Event, body: e.MergeRequested) -> SessionFacts:
    """Record that a merge was requested for the current head."""
    if facts.pr is None or facts.pr.state != "open" or facts.pr.merge_request:
        return facts
    merge_request = MergeRequest(body.strategy, body.force, body.delete_after, event.time, head=facts.head or "")
    return _with_pull_request(facts, merge_request=merge_request, merge_failure="", draft=False)


def _apply_merge_waits(facts: SessionFacts, _event: Event, body: e.LandingWaits) -> SessionFacts:
    """Record what a requested merge waits for."""
    return (
        _with_pull_request(facts, merge_request=replace(facts.pr.merge_request, wait_reason=body.reason))
        if facts.pr and facts.pr.merge_request
        else facts
    )


def _apply_merge_failed(facts: SessionFacts, _event: Event, body: e.LandingFailed) -> SessionFacts:
    """Remove the merge request, and record why the merge failed and at which commit."""
    request = facts.pr.merge_request if facts.pr else None
    return _with_pull_request(
        facts,
        merge_request=None,
        merge_failure=body.reason,
        merge_failure_head=request.head if request else facts.head or "",
    )


def _apply_conflict_predicted(facts: SessionFacts, event: Event, body: e.ConflictPredicted) -> SessionFacts:
    """Record a predicted conflict with another session."""
    conflict = PredictedConflict(body.files, body.kind, event.time)
    return replace(facts, predicted_conflicts={**facts.predicted_conflicts, body.other: conflict})


def _apply_conflict_cleared(facts: SessionFacts, event: Event, body: e.ConflictCleared) -> SessionFacts:
    """Remove a predicted conflict, or keep it with the files that still conflict."""
    remaining = {other: conflict for other, conflict in facts.predicted_conflicts.items() if other != body.other}
    if body.files:
        remaining[body.other] = PredictedConflict(body.files, body.kind, event.time)
    return replace(facts, predicted_conflicts=remaining)


STEPS: Mapping[type[e.Body], Step] = {
    e.ConflictPredicted: _apply_conflict_predicted,
    e.ConflictCleared: _apply_conflict_cleared,
    e.PrOpened: _apply_pr_opened,
    e.PrReady: _apply_pr_ready,
    e.PrChanged: _apply_pr_changed,
    e.ReviewChanged: _apply_review_changed,
    e.ThreadSettled: _apply_thread_settled,
    e.PeopleAsked: _apply_people_asked,
    e.PrClosed: _apply_pr_closed,
    e.PrMerged: _apply_pr_merged,
    e.BaseMoved: _apply_base_moved,
    e.ConflictsSeen: _apply_conflicts_seen,
    e.ChecksRequested: _apply_checks_requested,
    e.CheckStarted: _apply_check_started,
    e.CheckFinished: _apply_check_finished,
    e.CheckGone: _apply_check_gone,
    e.ChecksSettled: _apply_checks_settled,
    e.ChecksByHand: _apply_checks_by_hand,
    e.ReviewSubmitted: _apply_review_submitted,
    e.CommentAdded: _apply_comment_added,
    e.MergeRequested: _apply_merge_requested,
    e.LandingWaits: _apply_merge_waits,
    e.LandingFailed: _apply_merge_failed,
}
