"""Who takes which issue next: `plan(issues, sessions, teams, limits) -> entries`. Pure; whoever takes issues by himself asks the same.

A profile takes an issue that has any of the labels it names, or any at all if it names none, and none of those it excludes. The more of
its labels the better the match; among equals the one with less to do, then the first by name. A project without profiles has its own
agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.flow.authors import held
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import Issue
from agent_orchestrator.services.scheduler import holds_slot, open_before, waiting


@dataclass(frozen=True, slots=True)
class Taker:
    """A profile, or a project's own agent, and the work that it takes."""

    name: str
    profile: bool = True
    labels: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    limit: int | None = None
    """How many of it may work at once."""


@dataclass(frozen=True, slots=True)
class Team:
    """Who takes a project's issues."""

    project: str
    takers: tuple[Taker, ...]
    auto: bool = False
    """Issues are taken without being asked for."""
    trusted: tuple[str, ...] = ()
    """Authors whose issues need no person's word."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An open issue, who would take it, and why that has not come yet."""

    issue: Issue
    taker: str | None = None
    profile: bool = False
    reasons: tuple[str, ...] = ()
    asked: bool = False
    """All it waits for is to be asked for, since nobody takes issues by himself."""

    @property
    def ready(self) -> bool:
        """It may be taken now, by itself or when somebody asks for it."""
        return self.asked or not self.reasons


def match(taker: Taker, labels: Iterable[str]) -> int | None:
    """How well an issue's labels fit; none: it is not for him."""
    there = {label.casefold() for label in labels}
    wanted = {label.casefold() for label in taker.labels}
    if there & {label.casefold() for label in taker.excluded} or (wanted and not wanted & there):
        return None
    return len(wanted & there)


def choose(takers: Iterable[Taker], labels: Sequence[str], load: Mapping[str, int]) -> Taker | None:
    """The best match; among equals the one with less to do, then the first by name."""
    fitting = [
        (-fit, load.get(one.name, 0), one.name, one) for one in takers if (fit := match(one, labels)) is not None
    ]
    return min(fitting, key=lambda found: found[:3])[3] if fitting else None


def works_on(issue: Issue, sessions: Iterable[SessionFacts]) -> SessionFacts | None:
    """The session that attempts an issue just now."""
    return next((one for one in sessions if is_about(issue, one) and not _over(one)), None)


def is_about(issue: Issue, facts: SessionFacts) -> bool:
    """Was the session made for this issue?"""
    return facts.project == issue.project and facts.spec.issue in (str(issue.number), issue.name)


def _over(facts: SessionFacts) -> bool:
    return facts.stopped or facts.wanted == "stop" or (facts.pr is not None and facts.pr.state != "open")


def plan(
    issues: Mapping[str, Issue], sessions: Sequence[SessionFacts], teams: Sequence[Team], limits: Sequence[Limit] = ()
) -> list[Entry]:
    """The open issues of these projects in the order that they would be taken: those that may be now, then those that wait.

    Each that would be taken counts as taken for those behind it.
    """
    wanting = {facts.id for facts in waiting(sessions)}
    at_work = [facts for facts in sessions if holds_slot(facts) or facts.id in wanting]
    taken = Counter(facts.project for facts in at_work)
    entries: list[Entry] = []
    for team in sorted(teams, key=lambda one: one.project):
        desk = _Desk(team, [facts for facts in sessions if facts.project == team.project], at_work)
        open_ones = [issue for issue in issues.values() if issue.project == team.project and issue.state == "open"]
        for issue in sorted(open_ones, key=lambda one: one.number):
            entry = desk.entry(issue, open_before(issue, issues), _full(team.project, limits, taken))
            entries.append(entry)
            if entry.ready:
                desk.take(entry)
                taken[team.project] += 1
    return sorted(entries, key=lambda entry: not entry.ready)


def _full(project: str, limits: Sequence[Limit], taken: Mapping[str, int]) -> str:
    """Why there is no place for one more of this project."""
    for limit in limits:
        count = sum(taken.get(name, 0) for name in limit.projects)
        if project in limit.projects and count >= limit.count:
            return f"no place is free ({count} of {limit.count} taken)"
    return ""


class _Desk:
    """A team at work: who has how much to do."""

    def __init__(self, team: Team, sessions: Sequence[SessionFacts], at_work: Sequence[SessionFacts]) -> None:
        self.team = team
        self.sessions = sessions
        self.load = Counter(_by(facts) for facts in sessions if not _over(facts))
        self.busy = Counter(_by(facts) for facts in at_work if facts.project == team.project)

    def take(self, entry: Entry) -> None:
        """Count an issue as taken."""
        self.load[entry.taker or ""] += 1
        self.busy[entry.taker or ""] += 1

    def entry(self, issue: Issue, before: Sequence[int], full: str) -> Entry:
        """Who would take an issue, and why not yet."""
        if facts := works_on(issue, self.sessions):
            return Entry(issue, _by(facts), facts.spec.profile is not None, (f"{facts.id} works on it",))
        taker = choose(self.team.takers, issue.labels, self.load)
        reasons = [*(f"issue {number} is open" for number in before), *self._of_people(issue)]
        if self.team.auto and (tried := next((one.id for one in self.sessions if is_about(issue, one)), None)):
            reasons.append(f"{tried} has attempted it: try again by ao new {issue.name}")
        reasons += self._of_places(taker, full) if taker else [_nobody(issue)]
        asked = not reasons and not self.team.auto
        if asked:
            reasons = [f"autoAssign is off: take it by ao new {issue.name}"]
        if taker is None:
            return Entry(issue, reasons=tuple(reasons))
        return Entry(issue, taker.name, taker.profile, tuple(reasons), asked)

    def _of_people(self, issue: Issue) -> list[str]:
        found = []
        if issue.assignee and not any(facts.id == issue.assignee for facts in self.sessions):
            found.append(f"it is assigned to {issue.assignee}")
        if strange := held([issue], self.team.trusted):
            found.append(f"it needs your word ({strange}): ao new {issue.name}")
        return found

    def _of_places(self, taker: Taker, full: str) -> list[str]:
        count = self.busy[taker.name]
        if taker.limit is not None and count >= taker.limit:
            return [f"no place is free for {taker.name} ({count} of {taker.limit} taken)"]
        return [full] if full else []


def _by(facts: SessionFacts) -> str:
    return facts.spec.profile or facts.spec.agent


def _nobody(issue: Issue) -> str:
    labels = f"its labels ({', '.join(issue.labels)})" if issue.labels else "work without labels"
    return f"no profile takes {labels}"
