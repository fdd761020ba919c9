"""Which sessions work on which issue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Issue


def works_on(issue: Issue, sessions: Iterable[SessionFacts]) -> SessionFacts | None:
    """Return the session that currently works on an issue, or None."""
    return next((session for session in sessions if is_about(issue, session) and not is_past(session)), None)


def is_about(issue: Issue, facts: SessionFacts) -> bool:
    """Return whether the session was created for this issue."""
    return facts.project == issue.project and facts.spec.issue in (str(issue.number), issue.name)


def is_past(facts: SessionFacts) -> bool:
    """Return whether the session no longer works on its issue."""
    return facts.stopped or facts.wanted == "stop" or (facts.pr is not None and facts.pr.state != "open")


def made_by(maker: SessionFacts, sessions: Iterable[SessionFacts]) -> int:
    """Return the number of unfinished sessions that a session created."""
    return sum(facts.spec.parent == maker.id and not is_past(facts) for facts in sessions)
