"""What rules react to: occurrences and episodes of triggers.

An *occurrence* of a trigger is one thing that calls for a reaction. Its *episode* is the unbroken time in which the
problem lasts, across pushes and attempts, until it is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent_orchestrator.core.authors import HAS_WRITE_ACCESS
from agent_orchestrator.core.facts import Episode, Message, Offer, SessionFacts
from agent_orchestrator.core.pull_request import Comment, PullRequest
from agent_orchestrator.core.rules.model import CHECK_NOT_SET_UP
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES, Status

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
"""Status of the session → the trigger that it is."""

RESTART_TRIGGERS = frozenset({"agent-exited", "agent-stuck"})
"""Problems of the agent itself that may come back after a restart."""
MESSAGE_ENDED_TRIGGERS = frozenset({"agent-idle", "agent-needs-input"})
"""Triggers that the rule's own message would end and start again: they last until another sender writes, or there is work to show."""
RAISE_BUDGET = "raise-budget"
"""The action offered to a person for a session that is paused because its budget is spent."""
RECOVERY_SECONDS = 1800.0
"""Seconds that an agent must have run after such a problem before the next one is a new episode."""


def is_state_trigger(trigger: str) -> bool:
    """Return whether the trigger is a state that lasts; otherwise it is a kind of event."""
    return trigger in _PULL_REQUEST_TRIGGERS or trigger in STATUS_TRIGGERS.values()


def current_occurrence(trigger: str, facts: SessionFacts, status: Status) -> str | None:
    """Return the id of what there is to react to, or None if the trigger's state does not hold."""
    if find := _PULL_REQUEST_TRIGGERS.get(trigger):
        return find(facts, facts.pr) if facts.pr else None
    if status.is_idle_as_intended:
        return None
    is_user_interrupt = status.name == "interrupted" and facts.live  # a person did it; the process runs on
    if STATUS_TRIGGERS.get(status.name) == trigger and not is_user_interrupt:
        return f"{facts.generation}:{status.name}:{status.at:.3f}"
    return None


def without_finished_episodes(facts: SessionFacts, status: Status) -> SessionFacts:
    """Return the facts without the episodes that are over and the offers that no longer apply."""
    ongoing = {name: episode for name, episode in facts.episodes.items() if _is_ongoing(name, episode, facts, status)}
    offers = tuple(offer for offer in facts.offers if _is_open_offer(offer, facts, status))
    if len(ongoing) == len(facts.episodes) and len(offers) == len(facts.offers):
        return facts
    return replace(facts, episodes=ongoing, offers=offers)


def _is_open_offer(offer: Offer, facts: SessionFacts, status: Status) -> bool:
    """Return whether an offer still applies: one for an event until the session stops, one for a state while that state holds."""
    if offer.action == RAISE_BUDGET:
        return facts.requested_state == "stop"
    if not is_state_trigger(offer.trigger):
        return not facts.stopped
    return current_occurrence(offer.trigger, facts, status) == offer.occurrence


def _is_ongoing(trigger: str, episode: Episode, facts: SessionFacts, status: Status) -> bool:
    """Return whether a trigger's episode still lasts."""
    pr, head = facts.pr, facts.head
    if trigger in RESTART_TRIGGERS:
        return _has_not_recovered(trigger, episode, facts, status)
    if trigger in MESSAGE_ENDED_TRIGGERS and _awaits_response(episode, facts):
        return True
    if pr is None or trigger not in _PULL_REQUEST_TRIGGERS:
        return current_occurrence(trigger, facts, status) is not None
    if pr.state != "open" and trigger not in ("pr-merged", "pr-closed"):
        return False
    if trigger == "ci-failed":
        return not pr.is_green(head)
    if trigger == "changes-requested":
        return pr.verdict(head) in ("changes_requested", "pending")
    if trigger == "merge-conflicts":
        return pr.mergeability(head, facts.base_head) != "yes"
    if trigger == "approved-and-green":  # the approval holds when the base moves
        return (
            episode.last_occurrence.startswith(f"{head}:")
            and pr.verdict(head) == "approved"
            and not pr.blocking_checks(head)
        )
    return current_occurrence(trigger, facts, status) is not None


def _awaits_response(episode: Episode, facts: SessionFacts) -> bool:
    """Return whether only rules have written to the agent since the episode began, and the agent has no work to show yet."""
    if facts.pr is not None or facts.done_summary is not None or facts.requested_state == "stop":
        return False
    return all(message.sender.startswith("rule ") for message in facts.messages if message.at > episode.since)


def _has_not_recovered(trigger: str, episode: Episode, facts: SessionFacts, status: Status) -> bool:
    """Return whether the agent has not recovered from an exit or silence.

    A restart alone is no recovery: the agent must have run for `RECOVERY_SECONDS`, or be done.
    """
    current, launch = current_occurrence(trigger, facts, status), facts.launch
    if current == episode.last_occurrence and current is not None:
        return True
    if launch is None or facts.done_summary is not None or facts.requested_state == "stop":
        return current is not None and facts.requested_state != "stop"
    uptime = (launch.ended_at or facts.updated_at) - launch.at
    return uptime < RECOVERY_SECONDS


def newest_open_comment(
    facts: SessionFacts, pr: PullRequest, head: str | None = None, but: Callable[[Comment], bool] | None = None
) -> Comment | None:
    """Return the newest comment outside of a review that requests changes, if the agent has neither answered nor worked on it.

    `head`: the comments of this head instead of the session's current one. `but`: returns true for comments to ignore.
    """
    review_ids = {
        review.id
        for review in pr.reviews
        if review.verdict == "changes_requested" and review.write_access == HAS_WRITE_ACCESS
    }
    for comment in reversed(pr.comments):
        if comment.by_agent:
            return None
        if (
            comment.resolved
            or comment.unanswered_head != (facts.head if head is None else head)
            or (but and but(comment))
        ):
            continue
        if comment.review not in review_ids or comment.review is None:
            return comment
    return None


def find_open_comment(
    facts: SessionFacts, comment: str, but: Callable[[Comment], bool] | None = None
) -> Comment | None:
    """Return a comment by its id if it is the newest one at its head (ignoring those for which `but` is true) and is
    neither answered nor resolved; the head may have moved since.
    """
    comment_by_id = (
        next((candidate for candidate in facts.pr.comments if candidate.id == comment), None) if facts.pr else None
    )
    return (
        comment_by_id
        if comment_by_id
        and facts.pr
        and newest_open_comment(facts, facts.pr, comment_by_id.unanswered_head, but) == comment_by_id
        else None
    )


def _ci_failed(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the failed checks at the head, with a new id after each turn that did not fix them, or None."""
    failing = pr.failing_checks(facts.head)
    if pr.state != "open" or pr.settled_head != facts.head or not failing:
        return None
    failure = f"{facts.head}:{pr.check_request_count}:{','.join(sorted(run.name for run in failing))}"
    episode = facts.episodes.get("ci-failed")
    if episode is None or not (episode.last_occurrence == failure or episode.last_occurrence.startswith(f"{failure}@")):
        return failure
    was_not_fixed = not episode.escalated and _has_ended_turn(facts, episode.since)
    return f"{failure}@{facts.activity.at:.3f}" if was_not_fixed else episode.last_occurrence


def _check_not_set_up(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the check that could not run and what its environment lacks; the id is the same for all sessions of the project."""
    runs = pr.checks_not_set_up(facts.head)
    is_out_of_turn = not facts.live or facts.activity.state not in IN_TURN_ACTIVITIES
    return f"{runs[0].name}:{runs[0].reason}" if runs and pr.state == "open" and is_out_of_turn else None


def _has_ended_turn(facts: SessionFacts, since: float) -> bool:
    """Return whether a rule has written to the agent since then, and the turn that handled the last message is over."""

    def handled_at(message: Message) -> float | None:
        """Return when the agent acknowledged a message; its delivery counts for agents that do not acknowledge messages."""
        return message.acknowledged_at or (None if facts.has_acknowledged else message.delivered_at)

    if facts.activity.state != "idle" or not facts.messages:
        return False
    last_handled = handled_at(facts.messages[-1])
    if last_handled is None or last_handled >= facts.activity.at:
        return False
    return any(
        message.sender.startswith("rule ") and (handled_at(message) or 0.0) >= since for message in facts.messages
    )


def _changes_requested(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the id of the newest review that requests changes, or None."""
    if pr.state != "open" or pr.verdict(facts.head) != "changes_requested":
        return None
    return next(review.id for review in reversed(pr.counting_reviews) if review.verdict == "changes_requested")


def _review_comment(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the id of the newest open comment, or None."""
    comment = newest_open_comment(facts, pr)
    return comment.id if comment and pr.state == "open" else None


def _merge_conflicts(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the two commits that conflict, or None."""
    if pr.state != "open" or pr.mergeability(facts.head, facts.base_head) != "no" or pr.compared_heads is None:
        return None
    return ":".join(pr.compared_heads)


def _approved_and_green(facts: SessionFacts, pr: PullRequest) -> str | None:
    """Return the head and base that could be merged now, or None."""
    is_refused = pr.merge_failure and pr.merge_failure_head in ("", facts.head)
    is_free = pr.state == "open" and not pr.merge_request and not is_refused and not pr.blocked and not facts.stacked
    is_ready = (
        is_free
        and pr.mergeability(facts.head, facts.base_head) == "yes"
        and pr.verdict(facts.head) == "approved"
        and pr.is_green(facts.head)
    )
    return f"{facts.head}:{facts.base_head}" if is_ready else None


_PULL_REQUEST_TRIGGERS: Mapping[str, Callable[[SessionFacts, PullRequest], str | None]] = {
    "ci-failed": _ci_failed,
    CHECK_NOT_SET_UP: _check_not_set_up,
    "changes-requested": _changes_requested,
    "review-comment": _review_comment,
    "merge-conflicts": _merge_conflicts,
    "approved-and-green": _approved_and_green,
    "pr-merged": lambda _facts, pr: pr.merge_commit if pr.state == "merged" else None,
    "pr-closed": lambda _facts, pr: "closed" if pr.state == "closed" else None,
}
"""Trigger → function that returns the current occurrence in a pull request."""
