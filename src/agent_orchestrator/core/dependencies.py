"""Which session works on which issue; what a session's task depends on, and whether that is done. Pure.

A dependency is done if it was merged, or ended successfully without a change. One that failed, was stopped or was
closed without being merged is not done: sessions that depend on it wait until a person decides whether they continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent_orchestrator.core.facts import REVIEWER_KIND, SessionFacts
from agent_orchestrator.core.fold.issues import issue_key, issue_of
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES


def session_working_on(issue: Issue, sessions: Iterable[SessionFacts]) -> SessionFacts | None:
    """Return the session that currently works on an issue, or None."""
    return next(
        (session for session in sessions if is_about(issue, session) and not is_stopped_or_closed(session)), None
    )


def is_about(issue: Issue, facts: SessionFacts) -> bool:
    """Return whether the session was created for this issue."""
    return facts.project == issue.project and facts.spec.issue in (str(issue.number), issue.name)


def is_stopped_or_closed(facts: SessionFacts) -> bool:
    """Return whether the session no longer works on its issue."""
    return facts.stopped or facts.requested_state == "stop" or (facts.pr is not None and facts.pr.state != "open")


def count_unfinished_children(maker: SessionFacts, sessions: Iterable[SessionFacts]) -> int:
    """Return the number of unfinished sessions that a session created."""
    return sum(facts.spec.parent == maker.id and not is_stopped_or_closed(facts) for facts in sessions)


def is_done(facts: SessionFacts) -> bool:
    """Return whether a session is done.

    With a change: it was merged. Without a change: the agent reported that it is done, or exited with 0, or the session
    was only a review and is stopped.
    """
    if facts.pr is not None:
        return facts.pr.state == "merged"
    if facts.has_commits:
        return False
    launch = facts.launch
    has_succeeded = launch is not None and launch.ended and launch.code == 0 and not launch.stopped
    return facts.done_summary is not None or has_succeeded or (facts.stopped and facts.spec.kind == REVIEWER_KIND)


def is_over(facts: SessionFacts) -> bool:
    """Return whether nothing more is to be expected from the session, successful or not."""
    return facts.stopped or is_done(facts) or (facts.pr is not None and facts.pr.state == "closed")


def failure_text(facts: SessionFacts) -> str:
    """Return how a session ended without being done, as text, or "" if it is done or still continues."""
    if is_done(facts):
        return ""
    if facts.pr is not None and facts.pr.state == "closed":
        return f"the pull request of {facts.id} was closed"
    if facts.stopped:
        return f"{facts.id} was stopped without landing"
    if facts.requested_state == "stop" or (
        facts.admitted and facts.failure is None and facts.launched_run != facts.run
    ):
        return ""  # it is being stopped or started
    if facts.failure is not None:
        return f"{facts.id} failed at {facts.failure.step}"
    launch = facts.launch
    has_failed = (
        launch is not None and launch.ended and not launch.stopped and not launch.loss_reason and launch.code != 0
    )
    return f"{facts.id} failed" if has_failed else ""


def blocking_reason(facts: SessionFacts, other: SessionFacts) -> str:
    """Return what a session still waits for of one that it depends on, as text, or "" if it may continue."""
    if other.id in facts.waived_dependencies or is_done(other):
        return ""
    if other.id == facts.spec.stack and facts.stacked:
        is_given_up = other.pr.state == "closed" if other.pr else other.stopped
        if not is_given_up:
            return "" if _can_be_built_on(other) else f"commits of {other.id} to stand on"
    reason = failure_text(other)
    return f"your word: {reason}" if reason else f"{other.id} to be done"


def decision_reason(facts: SessionFacts, other: SessionFacts) -> str:
    """Return why a person must decide whether a session continues without one that it depends on, or "" if no decision is needed."""
    return failure_text(other) if blocking_reason(facts, other).startswith("your word") else ""


def unfinished_dependency(facts: SessionFacts, by_id: Mapping[str, SessionFacts], issues: Mapping[str, Issue]) -> str:
    """Return what a session still waits for, as text: sessions that it names itself, and issues that its issue names."""
    for name in facts.spec.after:
        other = by_id.get(name)
        if other is not None and (reason := blocking_reason(facts, other)):
            return reason
    issue = issue_of(issues, facts.project, facts.spec.issue) if facts.spec.issue else None
    if issue is not None and (open_issues := open_prerequisites(issue, issues)):
        return f"{', '.join(f'issue {number}' for number in open_issues)} to be closed"
    return ""


def open_prerequisites(issue: Issue, issues: Mapping[str, Issue]) -> list[int]:
    """Return the numbers of the open issues that must be closed before work on this one starts."""
    dependencies = (issues.get(issue_key(issue.project, number)) for number in issue.after)
    return [other.number for other in dependencies if other is not None and other.state == "open"]


def _can_be_built_on(facts: SessionFacts) -> bool:
    """Return whether other sessions can start on this one's branch: it has commits, they are in the main repository,
    and the agent is not in the middle of a turn.
    """
    is_in_main_repository = facts.workspace is not None and (
        facts.workspace.shared or facts.published_head == facts.head
    )
    is_ready = facts.pr is not None and not facts.pr.draft
    return (
        facts.has_commits
        and is_in_main_repository
        and (is_ready or not facts.live or facts.activity.state not in IN_TURN_ACTIVITIES)
    )
