"""From events to facts, for what concerns a session's change and the issues it comes from. Part of `sessions.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Collision, HomeFacts, Offer, SessionFacts
from agent_orchestrator.core.pull_request import (
    DEPENDENCY_ENDED,
    MOST_REPLIES,
    CheckRun,
    Comment,
    Episode,
    Issue,
    Landing,
    Planned,
    PullRequest,
    Review,
    issue_number,
)

Step = Callable[[SessionFacts, Event, Any], SessionFacts]

MOST_OFFERS = 50
"""Actions that wait for a person's word in one session."""


def _with(facts: SessionFacts, **changes: Any) -> SessionFacts:
    """The facts with another pull request; without one they stay."""
    return replace(facts, pr=replace(facts.pr, **changes)) if facts.pr else facts


def _opened(facts: SessionFacts, _event: Event, body: e.PrOpened) -> SessionFacts:
    if facts.pr is not None:
        return facts
    return replace(facts, pr=PullRequest(body.number, body.title, body.base, body.draft, url=body.url, node=body.node))


def _ready(facts: SessionFacts, _event: Event, _body: e.PrReady) -> SessionFacts:
    return _with(facts, draft=False)


def _changed_otherwise(facts: SessionFacts, _event: Event, body: e.PrChanged) -> SessionFacts:
    return _with(facts, title=body.title, draft=body.draft, state=body.state, blocked=body.blocked)


def _closed(facts: SessionFacts, _event: Event, _body: e.PrClosed) -> SessionFacts:
    return facts if facts.pr and facts.pr.state == "merged" else _with(facts, state="closed", landing=None)


def _merged(facts: SessionFacts, _event: Event, body: e.PrMerged) -> SessionFacts:
    return _with(
        facts,
        state="merged",
        draft=False,
        landing=None,
        landed=body.commit,
        landed_head=body.head,
        base_before=body.base_before,
        keep_branch=body.keep_branch,
        left=body.left,
        refused="",
    )


def _base(facts: SessionFacts, _event: Event, body: e.BaseMoved) -> SessionFacts:
    moved = body.head != facts.base_head
    return _with(replace(facts, base_head=body.head), refused="") if moved else facts


def _conflicts(facts: SessionFacts, _event: Event, body: e.ConflictsSeen) -> SessionFacts:
    return _with(facts, conflicts=body.files, compared=(body.head, body.base_head))


def _asked(facts: SessionFacts, _event: Event, _body: e.ChecksRequested) -> SessionFacts:
    """All of them run again: until they have, nothing is known."""
    if facts.pr is None:
        return facts
    checks = {
        name: CheckRun(name, run.head, "queued") if run.head == facts.head else run
        for name, run in facts.pr.checks.items()
    }
    return _with(facts, settled=None, asked=facts.pr.asked + 1, checks=checks)


def _check_started(facts: SessionFacts, _event: Event, body: e.CheckStarted) -> SessionFacts:
    return _checked(
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


def _check_finished(facts: SessionFacts, _event: Event, body: e.CheckFinished) -> SessionFacts:
    return _checked(facts, check_run(body))


def _checked(facts: SessionFacts, run: CheckRun) -> SessionFacts:
    """A result of an older commit does not replace one of the newest."""
    if facts.pr is None:
        return facts
    known = facts.pr.checks.get(run.name)
    if known is not None and known.head == facts.head and run.head != facts.head:
        return facts
    return _with(facts, checks={**facts.pr.checks, run.name: run})


def _check_gone(facts: SessionFacts, _event: Event, body: e.CheckGone) -> SessionFacts:
    checks = facts.pr.checks if facts.pr else {}
    gone = (body.name, body.head)
    return _with(facts, checks={name: run for name, run in checks.items() if (name, run.head) != gone})


def _settled(facts: SessionFacts, _event: Event, body: e.ChecksSettled) -> SessionFacts:
    if facts.pr and any(run.outdated for run in facts.pr.runs(body.head)):
        return _with(facts, asked=facts.pr.asked + 1)
    return _with(facts, settled=body.head, unchecked=body.none)


def _by_hand(facts: SessionFacts, _event: Event, body: e.ChecksByHand) -> SessionFacts:
    return _with(facts, by_hand=body.head)


def _review(facts: SessionFacts, event: Event, body: e.ReviewSubmitted) -> SessionFacts:
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
    return _with(facts, reviews=(*facts.pr.reviews, review))


def _review_changed(facts: SessionFacts, _event: Event, body: e.ReviewChanged) -> SessionFacts:
    reviews = facts.pr.reviews if facts.pr else ()
    return _with(
        facts, reviews=tuple(replace(one, verdict=body.verdict) if one.id == body.review else one for one in reviews)
    )


def _thread(facts: SessionFacts, _event: Event, body: e.ThreadSettled) -> SessionFacts:
    comments = facts.pr.comments if facts.pr else ()
    return _with(
        facts,
        comments=tuple(
            replace(one, resolved=body.resolved) if body.thread == (one.thread or one.id) else one for one in comments
        ),
    )


def _people_asked(facts: SessionFacts, _event: Event, body: e.PeopleAsked) -> SessionFacts:
    known = facts.pr.requested if facts.pr else ()
    return _with(facts, requested=tuple(dict.fromkeys((*known, *body.people))))


def _comment(facts: SessionFacts, event: Event, body: e.CommentAdded) -> SessionFacts:
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
    return _with(facts, comments=(*facts.pr.comments, comment))


def _merge(facts: SessionFacts, event: Event, body: e.MergeRequested) -> SessionFacts:
    if facts.pr is None or facts.pr.state != "open" or facts.pr.landing:
        return facts
    landing = Landing(body.strategy, body.force, body.delete_after, event.time, head=facts.head or "")
    return _with(facts, landing=landing, refused="", draft=False)


def _landing_waits(facts: SessionFacts, _event: Event, body: e.LandingWaits) -> SessionFacts:
    return (
        _with(facts, landing=replace(facts.pr.landing, waits=body.reason)) if facts.pr and facts.pr.landing else facts
    )


def _landing_failed(facts: SessionFacts, _event: Event, body: e.LandingFailed) -> SessionFacts:
    asked = facts.pr.landing if facts.pr else None
    return _with(facts, landing=None, refused=body.reason, refused_head=asked.head if asked else facts.head or "")


def _reacted(facts: SessionFacts, event: Event, body: e.Reacted) -> SessionFacts:
    known = facts.episodes.get(body.trigger) or Episode(event.time, first=body.occurrence)
    episode = replace(known, attempts=max(known.attempts, body.attempt), occurrence=body.occurrence)
    return replace(facts, episodes={**facts.episodes, body.trigger: episode})


def _escalated(facts: SessionFacts, event: Event, body: e.Escalated) -> SessionFacts:
    known = facts.episodes.get(body.trigger) or Episode(event.time)
    return replace(facts, episodes={**facts.episodes, body.trigger: replace(known, escalated=True)})


def _offered(facts: SessionFacts, event: Event, body: e.ActionOffered) -> SessionFacts:
    """A newer offer of the same rule takes the place of an older one that it repeats."""
    others = tuple(one for one in facts.offers if one.id != body.offer and not _same_offer(one, body))
    offer = Offer(
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
    return replace(facts, offers=(*others, offer)[-MOST_OFFERS:])


def _same_offer(offer: Offer, body: e.ActionOffered) -> bool:
    return offer.rule == body.rule and not body.event


def _offer_answered(facts: SessionFacts, _event: Event, body: e.OfferAnswered) -> SessionFacts:
    """Who took an action is not called for it any more."""
    offer = next((one for one in facts.offers if one.id == body.offer), None)
    if offer is None:
        return facts
    episodes, known = facts.episodes, facts.episodes.get(offer.trigger)
    if known is not None and body.decision == "allow":
        episodes = {**episodes, offer.trigger: replace(known, escalated=False)}
    if offer.trigger == DEPENDENCY_ENDED:
        facts = _without_it(facts, str(offer.event.get("other", "")), body.decision)
    return replace(facts, offers=tuple(one for one in facts.offers if one.id != body.offer), episodes=episodes)


def _without_it(facts: SessionFacts, other: str, decision: str) -> SessionFacts:
    """A session whose dependency ended badly starts all the same, or is not wanted any more."""
    if decision == "allow":
        return replace(facts, waived=tuple(dict.fromkeys((*facts.waived, other))))
    return facts if facts.admitted else replace(facts, wanted="stop", keep=False, stopped_by="person")


def _offer_withdrawn(facts: SessionFacts, _event: Event, body: e.OfferWithdrawn) -> SessionFacts:
    return replace(facts, offers=tuple(one for one in facts.offers if one.id != body.offer))


def _predicted(facts: SessionFacts, event: Event, body: e.ConflictPredicted) -> SessionFacts:
    found = Collision(body.files, body.kind, event.time)
    return replace(facts, collisions={**facts.collisions, body.other: found})


def _cleared(facts: SessionFacts, event: Event, body: e.ConflictCleared) -> SessionFacts:
    rest = {other: one for other, one in facts.collisions.items() if other != body.other}
    if body.files:
        rest[body.other] = Collision(body.files, body.kind, event.time)
    return replace(facts, collisions=rest)


STEPS: Mapping[type[e.Body], Step] = {
    e.ConflictPredicted: _predicted,
    e.ConflictCleared: _cleared,
    e.ActionOffered: _offered,
    e.OfferAnswered: _offer_answered,
    e.OfferWithdrawn: _offer_withdrawn,
    e.PrOpened: _opened,
    e.PrReady: _ready,
    e.PrChanged: _changed_otherwise,
    e.ReviewChanged: _review_changed,
    e.ThreadSettled: _thread,
    e.PeopleAsked: _people_asked,
    e.PrClosed: _closed,
    e.PrMerged: _merged,
    e.BaseMoved: _base,
    e.ConflictsSeen: _conflicts,
    e.ChecksRequested: _asked,
    e.CheckStarted: _check_started,
    e.CheckFinished: _check_finished,
    e.CheckGone: _check_gone,
    e.ChecksSettled: _settled,
    e.ChecksByHand: _by_hand,
    e.ReviewSubmitted: _review,
    e.CommentAdded: _comment,
    e.MergeRequested: _merge,
    e.LandingWaits: _landing_waits,
    e.LandingFailed: _landing_failed,
    e.Reacted: _reacted,
    e.Escalated: _escalated,
}


def issue_key(project: str, number: int) -> str:
    """Names an issue among all projects'."""
    return f"{project}#{number}"


def issue_of(issues: Mapping[str, Issue], project: str, name: str | None) -> Issue | None:
    """The issue that a session names: by its number, or as its tracker calls it."""
    number = issue_number(name or "")
    found = issues.get(issue_key(project, number)) if number is not None else None
    return found if found is not None and name in (str(found.number), found.key) else None


def reduce_issues(facts: HomeFacts, event: Event) -> HomeFacts:
    """The local tracker's issues after one more event."""
    body, project = event.body, event.project or ""
    if isinstance(body, e.IssueOpened):
        key = issue_key(project, body.number)
        if key in facts.issues:
            return facts
        opened = Issue(
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
        )
        return replace(facts, issues={**facts.issues, key: opened})
    if not isinstance(body, e.IssueChanged | e.IssuePlanned | e.LabelAdded | e.LabelRemoved | e.IssueComment):
        return facts
    key = issue_key(project, body.number)
    issue = facts.issues.get(key)
    if issue is None:
        return facts
    return replace(facts, issues={**facts.issues, key: replace(_changed(issue, event, body), updated_at=event.time)})


def _changed(issue: Issue, event: Event, body: e.Body) -> Issue:
    match body:
        case e.IssueChanged():
            named = {
                "title": body.title,
                "body": body.body,
                "state": body.state,
                "assignee": body.assignee,
                "after": body.after,
            }
            return replace(issue, **{name: value for name, value in named.items() if value is not None})  # type: ignore[arg-type]
        case e.IssuePlanned():
            planned = Planned(body.plan, body.task, body.profile, body.priority, body.files, body.start)
            return replace(issue, planned=planned, after=body.after)
        case e.LabelAdded() if body.label not in issue.labels:
            return replace(issue, labels=(*issue.labels, body.label))
        case e.LabelRemoved():
            return replace(issue, labels=tuple(label for label in issue.labels if label != body.label))
        case e.IssueComment() if all(comment.id != body.comment for comment in issue.comments):
            said = Comment(body.comment, body.body, body.author, event.time, write_access=body.write_access)
            return replace(issue, comments=(*issue.comments, said))
    return issue
