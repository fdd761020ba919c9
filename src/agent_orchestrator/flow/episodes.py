"""What rules react to: a trigger's *occurrence* is one thing that calls for a reaction; its *episode* is the unbroken time in which the
trouble lasts, across pushes and attempts, until it is really over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import Comment, PullRequest
from agent_orchestrator.flow.status import Status

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


def is_state(trigger: str) -> bool:
    """Is the trigger a state that lasts, or else a kind of event?"""
    return trigger in _OF_CHANGE or trigger in STATUS_TRIGGERS.values()


def occurrence(trigger: str, facts: SessionFacts, status: Status) -> str | None:
    """What there is to react to just now; nothing: the trigger's state does not hold."""
    if find := _OF_CHANGE.get(trigger):
        return find(facts, facts.pr) if facts.pr else None
    esc = status.name == "interrupted" and facts.live  # somebody did that to its turn, and knows; its process runs on
    if STATUS_TRIGGERS.get(status.name) == trigger and not esc:
        return f"{facts.generation}:{status.name}:{status.at:.3f}"
    return None


def closed(facts: SessionFacts, status: Status) -> SessionFacts:
    """The facts without the episodes that are over."""
    ongoing = {name: episode for name, episode in facts.episodes.items() if _lasts(name, facts, status)}
    return facts if len(ongoing) == len(facts.episodes) else replace(facts, episodes=ongoing)


def _lasts(trigger: str, facts: SessionFacts, status: Status) -> bool:
    pr, head = facts.pr, facts.head
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
    return occurrence(trigger, facts, status) is not None


def open_comment(facts: SessionFacts, pr: PullRequest) -> Comment | None:
    """The newest thing that a person said beside a judgement, and that the agent neither answered nor worked on."""
    judged = {review.id for review in pr.judgements if review.verdict == "changes_requested"}
    for comment in reversed(pr.comments):
        if comment.by_agent:
            return None
        if comment.review not in judged or comment.review is None:
            return comment if comment.head == facts.head else None
    return None


def _ci_failed(facts: SessionFacts, pr: PullRequest) -> str | None:
    failing = pr.failing(facts.head)
    if pr.state != "open" or pr.settled != facts.head or not failing:
        return None
    return f"{facts.head}:{pr.asked}:{','.join(sorted(run.name for run in failing))}"


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
    ready = (
        pr.state == "open" and not pr.landing and not pr.refused and pr.mergeable(facts.head, facts.base_head) == "yes"
    )
    good = ready and pr.verdict(facts.head) == "approved" and pr.green(facts.head)
    return f"{facts.head}:{facts.base_head}" if good else None


_OF_CHANGE: Mapping[str, Callable[[SessionFacts, PullRequest], str | None]] = {
    "ci-failed": _ci_failed,
    "changes-requested": _changes_requested,
    "review-comment": _review_comment,
    "merge-conflicts": _merge_conflicts,
    "approved-and-green": _approved_and_green,
    "pr-merged": lambda _facts, pr: pr.landed if pr.state == "merged" else None,
    "pr-closed": lambda _facts, pr: "closed" if pr.state == "closed" else None,
}
