"""What rules react to: a trigger's *occurrence* is one thing that calls for a reaction; its *episode* is the unbroken time in which the
trouble lasts, across pushes and attempts, until it is really over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent_orchestrator.core.authors import WRITES
from agent_orchestrator.core.facts import Message, Offer, SessionFacts
from agent_orchestrator.core.pull_request import Comment, Episode, PullRequest
from agent_orchestrator.core.rules import CHECK_NOT_SET_UP
from agent_orchestrator.core.status import IN_TURN, Status

STATUS_TRIGGERS = {
    "needs_input": "agent-needs-input",
    "blocked": "agent-blocked",
    "stuck": "agent-stuck",
    "failed": "agent-exited",
    "exited": "agent-exited",
    "interrupted": "agent-exited",
    "idle": "agent-idle",
    "limited": "usage-limit",
}
"""Triggers that are a status of the agent."""

RESTARTED = frozenset({"agent-exited", "agent-stuck"})
"""Troubles of the agent itself that may come back after a restart."""
NUDGED = frozenset({"agent-idle", "agent-needs-input"})
"""Triggers that a rule's own message would end and bring back: they last until somebody else speaks, or there is work to show."""
RAISE_BUDGET = "raise-budget"
"""What a person is offered for a session that is paused because its budget is spent."""
RECOVERED_AFTER = 1800.0
"""Seconds that an agent must have run after such a trouble before the next one counts as another."""


def is_state(trigger: str) -> bool:
    """Is the trigger a state that lasts, or else a kind of event?"""
    return trigger in _OF_CHANGE or trigger in STATUS_TRIGGERS.values()


def occurrence(trigger: str, facts: SessionFacts, status: Status) -> str | None:
    """What there is to react to just now; nothing: the trigger's state does not hold."""
    if find := _OF_CHANGE.get(trigger):
        return find(facts, facts.pr) if facts.pr else None
    if status.rests:
        return None
    esc = status.name == "interrupted" and facts.live  # somebody did that to its turn, and knows; its process runs on
    if STATUS_TRIGGERS.get(status.name) == trigger and not esc:
        return f"{facts.generation}:{status.name}:{status.at:.3f}"
    return None


def closed(facts: SessionFacts, status: Status) -> SessionFacts:
    """The facts without the episodes that are over, and without the offers that nothing is left of."""
    ongoing = {name: episode for name, episode in facts.episodes.items() if _lasts(name, episode, facts, status)}
    offers = tuple(offer for offer in facts.offers if _stands(offer, facts, status))
    if len(ongoing) == len(facts.episodes) and len(offers) == len(facts.offers):
        return facts
    return replace(facts, episodes=ongoing, offers=offers)


def _stands(offer: Offer, facts: SessionFacts, status: Status) -> bool:
    """What happened stays happened, as long as there is a session; a state may be over, or another one."""
    if offer.action == RAISE_BUDGET:
        return facts.wanted == "stop"
    if not is_state(offer.trigger):
        return not facts.stopped
    return occurrence(offer.trigger, facts, status) == offer.occurrence


def _lasts(trigger: str, episode: Episode, facts: SessionFacts, status: Status) -> bool:
    pr, head = facts.pr, facts.head
    if trigger in RESTARTED:
        return _is_shaky(trigger, episode, facts, status)
    if trigger in NUDGED and _is_nudged(episode, facts):
        return True
    if pr is None or trigger not in _OF_CHANGE:
        return occurrence(trigger, facts, status) is not None
    if pr.state != "open" and trigger not in ("pr-merged", "pr-closed"):
        return False
    if trigger == "ci-failed":
        return not pr.green(head)
    if trigger == "changes-requested":
        return pr.verdict(head) in ("changes_requested", "pending")
    if trigger == "merge-conflicts":
        return pr.mergeable(head, facts.base_head) != "yes"
    if trigger == "approved-and-green":  # a base that moves makes it no other approval
        return episode.occurrence.startswith(f"{head}:") and pr.verdict(head) == "approved" and not pr.red(head)
    return occurrence(trigger, facts, status) is not None


def _is_nudged(episode: Episode, facts: SessionFacts) -> bool:
    """Nobody but rules has spoken to the agent since, and it has nothing to show yet."""
    if facts.pr is not None or facts.done is not None or facts.wanted == "stop":
        return False
    return all(one.sender.startswith("rule ") for one in facts.messages if one.at > episode.since)


def _is_shaky(trigger: str, episode: Episode, facts: SessionFacts, status: Status) -> bool:
    """An agent that was started again has not recovered by that alone: it must have lived a while, or be done."""
    now, launch = occurrence(trigger, facts, status), facts.launch
    if now == episode.occurrence and now is not None:
        return True
    if launch is None or facts.done is not None or facts.wanted == "stop":
        return now is not None and facts.wanted != "stop"
    lived = (launch.ended_at or facts.updated_at) - launch.at
    return lived < RECOVERED_AFTER


def open_comment(
    facts: SessionFacts, pr: PullRequest, head: str | None = None, but: Callable[[Comment], bool] | None = None
) -> Comment | None:
    """The newest thing that a person said beside a judgement, and that the agent neither answered nor worked on.

    `head`: while that was the session's, and not the one of now. `but`: those that do not count.
    """
    judged = {one.id for one in pr.reviews if one.verdict == "changes_requested" and one.write_access == WRITES}
    for comment in reversed(pr.comments):
        if comment.by_agent:
            return None
        if comment.resolved or comment.stands_at != (facts.head if head is None else head) or (but and but(comment)):
            continue
        if comment.review not in judged or comment.review is None:
            return comment
    return None


def stands_since(facts: SessionFacts, comment: str, but: Callable[[Comment], bool] | None = None) -> Comment | None:
    """A comment by its id, if it is the newest of its time (`but` for some) and neither answered nor resolved; the head may have moved
    since.
    """
    found = next((one for one in facts.pr.comments if one.id == comment), None) if facts.pr else None
    return found if found and facts.pr and open_comment(facts, facts.pr, found.stands_at, but) == found else None


def _ci_failed(facts: SessionFacts, pr: PullRequest) -> str | None:
    failing = pr.failing(facts.head)
    if pr.state != "open" or pr.settled != facts.head or not failing:
        return None
    what = f"{facts.head}:{pr.asked}:{','.join(sorted(run.name for run in failing))}"
    episode = facts.episodes.get("ci-failed")
    if episode is None or not (episode.occurrence == what or episode.occurrence.startswith(f"{what}@")):
        return what
    in_vain = not episode.escalated and _ended_a_turn(facts, episode.since)
    return f"{what}@{facts.activity.at:.3f}" if in_vain else episode.occurrence


def _check_not_set_up(facts: SessionFacts, pr: PullRequest) -> str | None:
    """The check and what its environment lacks: the same for every session of the project."""
    runs = pr.not_set_up(facts.head)
    at_rest = not facts.live or facts.activity.state not in IN_TURN
    return f"{runs[0].name}:{runs[0].reason}" if runs and pr.state == "open" and at_rest else None


def _ended_a_turn(facts: SessionFacts, since: float) -> bool:
    """A rule has spoken to the agent since then, and the turn that took up the last message is over."""

    def taken_up(message: Message) -> float | None:
        return message.acknowledged_at or (None if facts.acknowledges else message.delivered_at)

    if facts.activity.state != "idle" or not facts.messages:
        return False
    last = taken_up(facts.messages[-1])
    if last is None or last >= facts.activity.at:
        return False
    return any(one.sender.startswith("rule ") and (taken_up(one) or 0.0) >= since for one in facts.messages)


def _changes_requested(facts: SessionFacts, pr: PullRequest) -> str | None:
    if pr.state != "open" or pr.verdict(facts.head) != "changes_requested":
        return None
    return next(review.id for review in reversed(pr.judgements) if review.verdict == "changes_requested")


def _review_comment(facts: SessionFacts, pr: PullRequest) -> str | None:
    comment = open_comment(facts, pr)
    return comment.id if comment and pr.state == "open" else None


def _merge_conflicts(facts: SessionFacts, pr: PullRequest) -> str | None:
    if pr.state != "open" or pr.mergeable(facts.head, facts.base_head) != "no" or pr.compared is None:
        return None
    return ":".join(pr.compared)


def _approved_and_green(facts: SessionFacts, pr: PullRequest) -> str | None:
    refused = pr.refused and pr.refused_head in ("", facts.head)
    free = pr.state == "open" and not pr.landing and not refused and not pr.blocked and not facts.stacked
    good = (
        free
        and pr.mergeable(facts.head, facts.base_head) == "yes"
        and pr.verdict(facts.head) == "approved"
        and pr.green(facts.head)
    )
    return f"{facts.head}:{facts.base_head}" if good else None


_OF_CHANGE: Mapping[str, Callable[[SessionFacts, PullRequest], str | None]] = {
    "ci-failed": _ci_failed,
    CHECK_NOT_SET_UP: _check_not_set_up,
    "changes-requested": _changes_requested,
    "review-comment": _review_comment,
    "merge-conflicts": _merge_conflicts,
    "approved-and-green": _approved_and_green,
    "pr-merged": lambda _facts, pr: pr.landed if pr.state == "merged" else None,
    "pr-closed": lambda _facts, pr: "closed" if pr.state == "closed" else None,
}
