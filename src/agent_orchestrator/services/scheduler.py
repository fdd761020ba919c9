"""Who may start: `admit(sessions, limits, resources) -> verdicts`. Pure; the daemon tells it what is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.fold_pull import issue_key, issue_of
from agent_orchestrator.flow.pull import Issue
from agent_orchestrator.flow.status import IN_TURN

LEAST_MEMORY = 512 << 20
LEAST_DISK = 512 << 20


@dataclass(frozen=True, slots=True)
class Resources:
    """What the machine has left."""

    memory: int
    disk: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A session that waits, and what for; nothing: it may start."""

    session: str
    reason: str = ""


def holds_slot(facts: SessionFacts) -> bool:
    """Its agent is starting or in a turn. One that waits for a person holds no slot."""
    if facts.stopped or facts.wanted == "stop" or not facts.admitted or facts.failure:
        return False
    if facts.live:
        return facts.activity.state in IN_TURN
    return facts.launched_run != facts.run and not (
        facts.spec.defer and facts.launch is None and facts.next_message is None
    )


def waiting(sessions: Iterable[SessionFacts]) -> list[SessionFacts]:
    """Sessions that want to start, the most urgent first."""
    found = [facts for facts in sessions if not facts.admitted and facts.wanted == "run" and not facts.stopped]
    return sorted(found, key=lambda facts: (-facts.spec.priority, facts.created_at))


def admit(
    sessions: Sequence[SessionFacts],
    limits: Sequence[Limit],
    resources: Resources,
    issues: Mapping[str, Issue] | None = None,
    expected: Mapping[str, frozenset[str]] | None = None,
    held: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """A verdict for each session that waits; each that may start counts against the limits of the next.

    One that is about a file (`expected`: session → files) that somebody at work is about too lets the others go first. One that is
    `held` waits for what that says.
    """
    by_id = {facts.id: facts for facts in sessions}
    working = [facts for facts in sessions if holds_slot(facts)]
    verdicts = []
    later: list[tuple[SessionFacts, str]] = []

    def decide(facts: SessionFacts, collides: str = "") -> None:
        full = _full(facts, [one.project for one in working], limits)
        before = _unfinished(facts, by_id, issues or {}) or (held or {}).get(facts.id, "")
        reason = before or (full and full + collides) or _scarce(resources)
        if not reason and holds_slot(replace(facts, admitted=True, failure=None)):
            working.append(facts)
        verdicts.append(Verdict(facts.id, reason))

    for facts in waiting(sessions):
        if collides := _collides(facts, working, expected or {}):
            later.append((facts, collides))
        else:
            decide(facts)
    for facts, collides in later:
        decide(facts, collides)
    return verdicts


def _collides(facts: SessionFacts, working: Sequence[SessionFacts], expected: Mapping[str, frozenset[str]]) -> str:
    """Who at work is about the same file, in words."""
    mine = expected.get(facts.id, frozenset())
    for other in working if mine else ():
        if other.project == facts.project and (both := mine & expected.get(other.id, frozenset())):
            return f"; {other.id} works on {min(both)} too"
    return ""


def open_before(issue: Issue, issues: Mapping[str, Issue]) -> list[int]:
    """The issues that must be closed before this one is taken up, and are not."""
    before = (issues.get(issue_key(issue.project, number)) for number in issue.after)
    return [other.number for other in before if other is not None and other.state == "open"]


def _unfinished(facts: SessionFacts, by_id: Mapping[str, SessionFacts], issues: Mapping[str, Issue]) -> str:
    """What its task comes after: sessions by its own word, issues by its issue's."""
    for name in facts.spec.after:
        other = by_id.get(name)
        if other is None or is_done(other):
            continue
        if name != facts.spec.stack:
            return f"{name} to be done"
        if not _carries(other):
            return f"commits of {name} to stand on"
    issue = issue_of(issues, facts.project, facts.spec.issue)
    if issue is not None and (before := open_before(issue, issues)):
        return f"{', '.join(f'issue {number}' for number in before)} to be closed"
    return ""


def _carries(facts: SessionFacts) -> bool:
    """Can others start on its branch: is there something, in the main repository, and not in the middle of a turn?"""
    here = facts.place is not None and (facts.place.shared or facts.published == facts.head)
    ready = facts.pr is not None and not facts.pr.draft
    return facts.committed and here and (ready or not facts.live or facts.activity.state not in IN_TURN)


def is_done(facts: SessionFacts) -> bool:
    """It was stopped, or its change landed or was given up; without a change: it says so, or its agent exited with 0."""
    if facts.stopped:
        return True
    if facts.committed:
        return facts.pr is not None and facts.pr.state != "open"
    launch = facts.launch
    return facts.done is not None or (launch is not None and launch.ended and launch.code == 0 and not launch.stopped)


def _full(facts: SessionFacts, working: Sequence[str], limits: Sequence[Limit]) -> str:
    for limit in limits:
        if facts.project in limit.projects:
            count = sum(project in limit.projects for project in working)
            if count >= limit.count:
                return f"a free place ({count} of {limit.count} agents at work)"
    return ""


def _scarce(resources: Resources) -> str:
    if resources.memory < LEAST_MEMORY:
        return f"memory ({resources.memory >> 20} MB free)"
    if resources.disk < LEAST_DISK:
        return f"disk space ({resources.disk >> 20} MB free)"
    return ""
