"""Which sessions work on which issue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Issue


def works_on(issue: Issue, sessions: Iterable[SessionFacts]) -> SessionFacts | None:
    """The session that attempts an issue just now."""
    return next((one for one in sessions if is_about(issue, one) and not is_past(one)), None)


def is_about(issue: Issue, facts: SessionFacts) -> bool:
    """Was the session made for this issue?"""
    return facts.project == issue.project and facts.spec.issue in (str(issue.number), issue.name)


def is_past(facts: SessionFacts) -> bool:
    """It does not work on its issue any more."""
    return facts.stopped or facts.wanted == "stop" or (facts.pr is not None and facts.pr.state != "open")


def made_by(maker: SessionFacts, sessions: Iterable[SessionFacts]) -> int:
    """How many unfinished sessions there are of a session's making."""
    return sum(facts.spec.parent == maker.id and not is_past(facts) for facts in sessions)
