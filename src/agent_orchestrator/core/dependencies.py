"""What a session's task comes after, and what became of that. Pure.

Done is what landed, or what ended well without a change. Whatever failed, was stopped or was closed without landing is not done: those
that come after it wait, and a person says whether they go on.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key, issue_of
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import REVIEWER
from agent_orchestrator.core.status import IN_TURN


def is_done(facts: SessionFacts) -> bool:
    """Its change landed; without a change: it says that it is done, its agent exited with 0, or it was but a review and is over."""
    if facts.pr is not None:
        return facts.pr.state == "merged"
    if facts.committed:
        return False
    launch = facts.launch
    well = launch is not None and launch.ended and launch.code == 0 and not launch.stopped
    return facts.done is not None or well or (facts.stopped and facts.spec.kind == REVIEWER)


def is_over(facts: SessionFacts) -> bool:
    """Nothing more is to come of it, for better or worse."""
    return facts.stopped or is_done(facts) or (facts.pr is not None and facts.pr.state == "closed")


def how_it_ended(facts: SessionFacts) -> str:
    """In which way it came to an end without being done, in words; nothing: it is done, or still to come to an end."""
    if is_done(facts):
        return ""
    if facts.pr is not None and facts.pr.state == "closed":
        return f"the pull request of {facts.id} was closed"
    if facts.stopped:
        return f"{facts.id} was stopped without landing"
    if facts.wanted == "stop" or (facts.admitted and facts.failure is None and facts.launched_run != facts.run):
        return ""  # it is on its way to its end, or to its next start
    if facts.failure is not None:
        return f"{facts.id} failed at {facts.failure.step}"
    launch = facts.launch
    badly = launch is not None and launch.ended and not launch.stopped and not launch.lost and launch.code != 0
    return f"{facts.id} failed" if badly else ""


def stands_in_the_way(facts: SessionFacts, other: SessionFacts) -> str:
    """What a session still waits for of one that it comes after, in words; nothing: it may go on."""
    if other.id in facts.waived or is_done(other):
        return ""
    if other.id == facts.spec.stack and facts.stacked:
        given_up = other.pr.state == "closed" if other.pr else other.stopped
        if not given_up:
            return "" if _carries(other) else f"commits of {other.id} to stand on"
    ended = how_it_ended(other)
    return f"your word: {ended}" if ended else f"{other.id} to be done"


def ended_before(facts: SessionFacts, other: SessionFacts) -> str:
    """Why a person is to say whether a session goes on without one that it comes after; nothing: he need not."""
    return how_it_ended(other) if stands_in_the_way(facts, other).startswith("your word") else ""


def unfinished(facts: SessionFacts, by_id: Mapping[str, SessionFacts], issues: Mapping[str, Issue]) -> str:
    """What its task comes after and is not done: sessions by its own word, issues by its issue's."""
    for name in facts.spec.after:
        other = by_id.get(name)
        if other is not None and (reason := stands_in_the_way(facts, other)):
            return reason
    issue = issue_of(issues, facts.project, facts.spec.issue) if facts.spec.issue else None
    if issue is not None and (before := open_before(issue, issues)):
        return f"{', '.join(f'issue {number}' for number in before)} to be closed"
    return ""


def open_before(issue: Issue, issues: Mapping[str, Issue]) -> list[int]:
    """The issues that must be closed before this one is taken up, and are not."""
    before = (issues.get(issue_key(issue.project, number)) for number in issue.after)
    return [other.number for other in before if other is not None and other.state == "open"]


def _carries(facts: SessionFacts) -> bool:
    """Can others start on its branch: is there something, in the main repository, and not in the middle of a turn?"""
    here = facts.place is not None and (facts.place.shared or facts.published == facts.head)
    ready = facts.pr is not None and not facts.pr.draft
    return facts.committed and here and (ready or not facts.live or facts.activity.state not in IN_TURN)
