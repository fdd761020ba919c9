"""From events to facts: a session's pull request, its offers and predicted conflicts, and the issues of trackers.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts, Offer, PredictedConflict, SessionFacts
from agent_orchestrator.core.fold.step import Step
from agent_orchestrator.core.pull_request import (
    DEPENDENCY_ENDED,
    MOST_REPLIES,
    CheckRun,
    Comment,
    Episode,
    Issue,
    MergeRequest,
    Planned,
    PullRequest,
    Review,
    is_hosted,
    issue_number,
)

MAX_OFFERS = 50
"""Number of open offers that a session keeps; older ones are dropped."""


def _with_pull_request(facts: SessionFacts, **changes: Any) -> SessionFacts:
    """Return the facts with changes to the pull request, or unchanged if there is none."""
    return replace(facts, pr=replace(facts.pr, **changes)) if facts.pr else facts


def _apply_pr_opened(facts: SessionFacts, _event: Event, body: e.PrOpened) -> SessionFacts:
    """Add the pull request, unless the session has one."""
    if facts.pr is not None:
        return facts
    return replace(facts, pr=PullRequest(body.number, body.title, body.base, body.draft, url=body.url, node=body.node))


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
        landed=body.commit,
        merged_head=body.head,
        base_before=body.base_before,
        keep_branch=body.keep_branch,
        left=body.left,
        refused="",
    )


def _apply_base_moved(facts: SessionFacts, _event: Event, body: e.BaseMoved) -> SessionFacts:
    """Record the head of the base branch; a new one clears the reason of a failed merge."""
    has_moved = body.head != facts.base_head
    return _with_pull_request(replace(facts, base_head=body.head), refused="") if has_moved else facts


def _apply_conflicts_seen(facts: SessionFacts, _event: Event, body: e.ConflictsSeen) -> SessionFacts:
    """Record which files conflict, and the commits that were compared."""
    return _with_pull_request(facts, conflicts=body.files, compared=(body.head, body.base_head))


def _apply_checks_requested(facts: SessionFacts, _event: Event, _body: e.ChecksRequested) -> SessionFacts:
    """Queue all checks of the head again; until they have run there is no result."""
    if facts.pr is None:
        return facts
    checks = {
        name: CheckRun(name, run.head, "queued") if run.head == facts.head else run
        for name, run in facts.pr.checks.items()
    }
    return _with_pull_request(facts, settled=None, asked=facts.pr.asked + 1, checks=checks)


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
    if facts.pr and any(run.outdated for run in facts.pr.runs(body.head)):
        return _with_pull_request(facts, asked=facts.pr.asked + 1)
    return _with_pull_request(facts, settled=body.head, unchecked=body.none)


def _apply_checks_by_hand(facts: SessionFacts, _event: Event, body: e.ChecksByHand) -> SessionFacts:
    """Record the commit at which checks run only on request."""
    return _with_pull_request(facts, by_hand=body.head)


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
        counts=body.counts,
        heard=body.head if body.reviewer else facts.head or "",
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
    requested = facts.pr.requested if facts.pr else ()
    return _with_pull_request(facts, requested=tuple(dict.fromkeys((*requested, *body.people))))


def _apply_comment_added(facts: SessionFacts, event: Event, body: e.CommentAdded) -> SessionFacts:
    """Add a comment, unless it is recorded or the agent has reached its limit of `MOST_REPLIES`."""
    if facts.pr is None or any(comment.id == body.comment for comment in facts.pr.comments):
        return facts
    if body.by_agent and event.source != facts.spec.scm and facts.pr.replies >= MOST_REPLIES:
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
        heard=facts.head or "",
    )
    return _with_pull_request(facts, comments=(*facts.pr.comments, comment))


def _apply_merge_requested(facts: SessionFacts, event: Event, body: e.MergeRequested) -> SessionFacts:
    """Record that a merge was requested for the current head."""
    if facts.pr is None or facts.pr.state != "open" or facts.pr.merge_request:
        return facts
    merge_request = MergeRequest(body.strategy, body.force, body.delete_after, event.time, head=facts.head or "")
    return _with_pull_request(facts, merge_request=merge_request, refused="", draft=False)


def _apply_merge_waits(facts: SessionFacts, _event: Event, body: e.LandingWaits) -> SessionFacts:
    """Record what a requested merge waits for."""
    return (
        _with_pull_request(facts, merge_request=replace(facts.pr.merge_request, waits=body.reason))
        if facts.pr and facts.pr.merge_request
        else facts
    )


def _apply_merge_failed(facts: SessionFacts, _event: Event, body: e.LandingFailed) -> SessionFacts:
    """Remove the merge request, and record why the merge failed and at which commit."""
    request = facts.pr.merge_request if facts.pr else None
    return _with_pull_request(
        facts, merge_request=None, refused=body.reason, refused_head=request.head if request else facts.head or ""
    )


def _apply_reacted(facts: SessionFacts, event: Event, body: e.Reacted) -> SessionFacts:
    """Record an attempt of a rule in the trigger's episode."""
    recorded = facts.episodes.get(body.trigger) or Episode(event.time, first=body.occurrence)
    episode = replace(recorded, attempts=max(recorded.attempts, body.attempt), occurrence=body.occurrence)
    return replace(facts, episodes={**facts.episodes, body.trigger: episode})


def _apply_escalated(facts: SessionFacts, event: Event, body: e.Escalated) -> SessionFacts:
    """Mark the trigger's episode as escalated."""
    recorded = facts.episodes.get(body.trigger) or Episode(event.time)
    return replace(facts, episodes={**facts.episodes, body.trigger: replace(recorded, escalated=True)})


def _apply_action_offered(facts: SessionFacts, event: Event, body: e.ActionOffered) -> SessionFacts:
    """Add an offer; it replaces an older one of the same rule that it repeats."""
    others = tuple(offer for offer in facts.offers if offer.id != body.offer and not _is_repeated(offer, body))
    new_offer = Offer(
        id=body.offer,
        rule=body.rule,
        trigger=body.trigger,
        occurrence=body.occurrence,
        action=body.action,
        text=body.text,
        attempt=body.attempt,
        at=event.time,
        event=body.event,
    )
    return replace(facts, offers=(*others, new_offer)[-MAX_OFFERS:])


def _is_repeated(offer: Offer, body: e.ActionOffered) -> bool:
    """Return whether an offer is repeated by a newer one of the same rule."""
    return offer.rule == body.rule and not body.event


def _apply_offer_answered(facts: SessionFacts, _event: Event, body: e.OfferAnswered) -> SessionFacts:
    """Remove an offer that a person answered; an accepted one no longer needs that person, so its episode is not escalated."""
    offer = next((other for other in facts.offers if other.id == body.offer), None)
    if offer is None:
        return facts
    episodes, episode = facts.episodes, facts.episodes.get(offer.trigger)
    if episode is not None and body.decision == "allow":
        episodes = {**episodes, offer.trigger: replace(episode, escalated=False)}
    if offer.trigger == DEPENDENCY_ENDED:
        facts = _apply_dependency_answer(facts, str(offer.event.get("other", "")), body.decision)
    return replace(facts, offers=tuple(other for other in facts.offers if other.id != body.offer), episodes=episodes)


def _apply_dependency_answer(facts: SessionFacts, other: str, decision: str) -> SessionFacts:
    """Apply the answer to a dependency that ended badly: the session starts without it, or is stopped if it has not started."""
    if decision == "allow":
        return replace(facts, waived=tuple(dict.fromkeys((*facts.waived, other))))
    return facts if facts.admitted else replace(facts, wanted="stop", keep=False, stopped_by="person")


def _apply_offer_withdrawn(facts: SessionFacts, _event: Event, body: e.OfferWithdrawn) -> SessionFacts:
    """Remove an offer that was withdrawn."""
    return replace(facts, offers=tuple(offer for offer in facts.offers if offer.id != body.offer))


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
    e.ActionOffered: _apply_action_offered,
    e.OfferAnswered: _apply_offer_answered,
    e.OfferWithdrawn: _apply_offer_withdrawn,
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
    e.Reacted: _apply_reacted,
    e.Escalated: _apply_escalated,
}


def issue_key(project: str, number: int) -> str:
    """Return the name of an issue that is unique among all projects."""
    return f"{project}#{number}"


def issue_of(issues: Mapping[str, Issue], project: str, name: str | None) -> Issue | None:
    """Return the issue that a session names, by its number or by its tracker's key, or None."""
    number = issue_number(name or "")
    issue = issues.get(issue_key(project, number)) if number is not None else None
    return issue if issue is not None and name in (str(issue.number), issue.key) else None


def reduce_issues(facts: HomeFacts, event: Event) -> HomeFacts:
    """Return the home's facts with its issues after an event."""
    body, project = event.body, event.project or ""
    if isinstance(body, e.IssueOpened):
        key = issue_key(project, body.number)
        if key in facts.issues:
            return facts
        new_issue = Issue(
            body.number,
            project,
            body.title,
            event.time,
            event.time,
            body.body,
            "open",
            body.labels,
            body.author,
            after=body.after,
            write_access=body.write_access,
            key=body.key,
            url=body.url,
            tracker=body.tracker,
            branch=body.branch,
            assignee=body.assignee,
            hosted=is_hosted(body.tracker, body.hosted),
        )
        return replace(facts, issues={**facts.issues, key: new_issue})
    if not isinstance(body, e.IssueChanged | e.IssuePlanned | e.LabelAdded | e.LabelRemoved | e.IssueComment):
        return facts
    key = issue_key(project, body.number)
    issue = facts.issues.get(key)
    if issue is None:
        return facts
    return replace(
        facts, issues={**facts.issues, key: replace(_change_issue(issue, event, body), updated_at=event.time)}
    )


def _change_issue(issue: Issue, event: Event, body: e.Body) -> Issue:
    """Return an issue after an event about it."""
    match body:
        case e.IssueChanged():
            changes = {
                "title": body.title,
                "body": body.body,
                "state": body.state,
                "assignee": body.assignee,
                "after": body.after,
            }
            return replace(issue, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
        case e.IssuePlanned():
            planned = Planned(body.plan, body.task, body.profile, body.priority, body.files, body.start)
            return replace(issue, planned=planned, after=body.after)
        case e.LabelAdded() if body.label not in issue.labels:
            return replace(issue, labels=(*issue.labels, body.label))
        case e.LabelRemoved():
            return replace(issue, labels=tuple(label for label in issue.labels if label != body.label))
        case e.IssueComment() if all(comment.id != body.comment for comment in issue.comments):
            new_comment = Comment(body.comment, body.body, body.author, event.time, write_access=body.write_access)
            return replace(issue, comments=(*issue.comments, new_comment))
    return issue
