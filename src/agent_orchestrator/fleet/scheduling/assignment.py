"""Who takes which issue next: `plan(issues, sessions, teams, …) -> entries`. Pure; whoever takes issues by himself asks the same.

Who takes what is a matter of `profile_match.py`. A project without profiles has its own agent. The most urgent go first; among equals the
project with the fewest at work has the next place, and in a project the lowest number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.core.authors import held
from agent_orchestrator.core.dependencies import how_it_ended, open_before
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import is_past
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.fleet.scheduling.profile_match import Taker, choose, work_of
from agent_orchestrator.fleet.scheduling.slots import Places, Seat, holds_slot, seat_of, waiting


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
    """An open issue, who would take it and why he, and why that has not come yet."""

    issue: Issue
    taker: str | None = None
    profile: bool = False
    reasons: tuple[str, ...] = ()
    asked: bool = False
    """All it waits for is to be asked for, since nobody takes issues by himself."""
    matched: str = ""
    """By what it is his."""
    session: str | None = None
    """Who is at it."""
    auto: bool = False
    """It is taken without being asked for, once nothing stands in its way."""
    needs_you: bool = False
    """Something stands in its way that only a person can clear."""
    parent: str | None = None
    """The coordinating session that wants it; what is made of it counts as that one's."""

    @property
    def ready(self) -> bool:
        """It may be taken now, by itself or when somebody asks for it."""
        return self.asked or not self.reasons


@dataclass(frozen=True, slots=True)
class Wanted:
    """What coordinating sessions want, and how many more sessions each may have."""

    by: Mapping[str, str] = field(default_factory=dict)
    """Issue → the coordinating session that opened it, or applied its plan."""
    rooms: Mapping[str, int] = field(default_factory=dict)


NOBODYS = Wanted()


class Attempts:
    """Who has worked on which issue; found without looking at everybody."""

    def __init__(self, sessions: Iterable[SessionFacts]) -> None:
        self._by_name: dict[tuple[str, str], list[SessionFacts]] = {}
        for facts in sessions:
            if facts.spec.issue is not None:
                self._by_name.setdefault((facts.project, facts.spec.issue), []).append(facts)

    def of(self, issue: Issue) -> list[SessionFacts]:
        """The sessions that were made for an issue."""
        by_number = self._by_name.get((issue.project, str(issue.number)), ())
        by_key = self._by_name.get((issue.project, issue.key), ()) if issue.key else ()
        return [*by_number, *by_key]

    def how_it_ended(self, issue: Issue) -> str:
        """In which way the last attempt came to an end without landing; nothing: there was none, or there is another."""
        made = self.of(issue)
        if not made or any(not is_past(one) and not how_it_ended(one) for one in made):
            return ""
        return how_it_ended(max(made, key=lambda one: one.created_at))


def plan(
    issues: Mapping[str, Issue],
    sessions: Sequence[SessionFacts],
    teams: Sequence[Team],
    limits: Sequence[Limit] = (),
    refused: Mapping[str, str] | None = None,
    group_limits: Mapping[str, int] | None = None,
    wanted: Wanted = NOBODYS,
) -> list[Entry]:
    """The open issues of these projects in the order that they would be taken: those that may be now, then those that wait.

    Each that would be taken counts as taken for those behind it. `refused`: issue → why it could not be taken when that was tried last.
    """
    soon = {facts.id for facts in waiting(sessions) if facts.turn_since is not None or not facts.waiting_for}
    at_work = [facts for facts in sessions if holds_slot(facts) or facts.id in soon]
    places = Places(limits, map(seat_of, at_work))
    attempts, by_project = Attempts(sessions), _by_project(sessions)
    rooms = Counter(wanted.rooms)
    desks = {
        team.project: _Desk(
            team, issues, by_project.get(team.project, ()), attempts, places, group_limits or {}, wanted.by, rooms
        )
        for team in teams
    }
    entries = []
    for issue in _in_turn(issues.values(), desks, places.projects):
        desk = desks[issue.project]
        entry = desk.entry(issue, (refused or {}).get(issue_key(issue.project, issue.number), ""))
        entries.append(entry)
        if entry.ready:
            desk.take(entry)
    return sorted(entries, key=lambda entry: not entry.ready)


def _by_project(sessions: Iterable[SessionFacts]) -> dict[str, list[SessionFacts]]:
    found: dict[str, list[SessionFacts]] = {}
    for facts in sessions:
        found.setdefault(facts.project, []).append(facts)
    return found


def _in_turn(issues: Iterable[Issue], projects: Iterable[str], at_work: Mapping[str, int]) -> Iterator[Issue]:
    """Every open issue in its turn; `at_work`, by project, is looked at anew whenever one was taken."""
    rows: dict[str, list[Issue]] = {project: [] for project in projects}
    for issue in issues:
        if issue.state == "open" and issue.project in rows:
            rows[issue.project].append(issue)
    for row in rows.values():
        row.sort(key=lambda one: (-_priority(one), one.number), reverse=True)
    turns = [_turn(row[-1], at_work) for row in rows.values() if row]
    heapify(turns)
    while turns:
        row = rows[heappop(turns)[-1]]
        yield row.pop()
        if row:
            heappush(turns, _turn(row[-1], at_work))


def _turn(issue: Issue, at_work: Mapping[str, int]) -> tuple[int, int, str]:
    return -_priority(issue), at_work.get(issue.project, 0), issue.project


def _priority(issue: Issue) -> int:
    return issue.planned.priority if issue.planned else 0


class _Desk:
    """A team at work: who has how much to do."""

    def __init__(
        self,
        team: Team,
        issues: Mapping[str, Issue],
        sessions: Sequence[SessionFacts],
        attempts: Attempts,
        places: Places,
        group_limits: Mapping[str, int],
        wanted_by: Mapping[str, str],
        rooms: Counter[str],
    ) -> None:
        self.team = team
        self.issues = issues
        self.ours = {facts.id for facts in sessions}
        self.attempts = attempts
        self.places = places
        self.group_limits = group_limits
        self.wanted_by = wanted_by
        self.rooms = rooms
        self.load = Counter(_by(facts) for facts in sessions if not is_past(facts))

    def take(self, entry: Entry) -> None:
        """Count an issue as taken."""
        self.load[entry.taker or ""] += 1
        if entry.parent:
            self.rooms[entry.parent] -= 1
        self.places.take(self._seat(entry.issue, entry.taker if entry.profile else None))

    def _seat(self, issue: Issue, profile: str | None) -> Seat:
        group = issue.planned.plan if issue.planned else ""
        return Seat(issue.project, profile, None, group, self.group_limits.get(group, 0))

    def entry(self, issue: Issue, refused: str) -> Entry:
        """Who would take an issue, and why not yet."""
        made = self.attempts.of(issue)
        if facts := next((one for one in made if not is_past(one)), None):
            return Entry(issue, _by(facts), facts.spec.profile is not None, (_at_it(facts),), session=facts.id)
        planned = issue.planned is not None and issue.planned.start
        auto = self.team.auto or planned
        given_up, still_open = self._of_issues(issue)
        needs_you = auto and bool(given_up or made)
        reasons = [*given_up, *still_open, *self._of_people(issue)]
        if auto and made:
            reasons.append(f"{made[0].id} has attempted it: try again by ao new {issue.name}")
        found = choose(self.team.takers, work_of(issue), self.load)
        if found is None:
            return Entry(issue, reasons=(*reasons, _nobody(issue)), auto=planned, needs_you=planned)
        taker, fit = found
        if full := self.places.full(self._seat(issue, taker.name if taker.profile else None)):
            reasons.append(f"no place is free{full} taken)")
        parent = self.wanted_by.get(issue_key(issue.project, issue.number)) if auto else None
        if parent and self.rooms[parent] <= 0:
            reasons.append(f"{parent} has as many unfinished sessions as it may have")
        if refused:
            reasons.append(refused)
        asked = not reasons and not auto
        if asked:
            reasons = [f"autoAssign is off: take it by ao new {issue.name}"]
        why = fit.why if taker.profile else "it is the project's agent"
        return Entry(
            issue,
            taker.name,
            taker.profile,
            tuple(reasons),
            asked,
            why,
            auto=auto,
            needs_you=needs_you,
            parent=parent,
        )

    def _of_issues(self, issue: Issue) -> tuple[list[str], list[str]]:
        """The open issues that it comes after: those that wait for a person, and the others."""
        given_up, others = [], []
        for number in open_before(issue, self.issues):
            if ended := self.attempts.how_it_ended(self.issues[issue_key(issue.project, number)]):
                given_up.append(f"issue {number} is open: {ended}")
            else:
                others.append(str(number))
        if len(others) > 1:
            return given_up, [f"issues {', '.join(others[:-1])} and {others[-1]} are open"]
        return given_up, [f"issue {number} is open" for number in others]

    def _of_people(self, issue: Issue) -> list[str]:
        found = []
        if issue.assignee and issue.assignee not in self.ours:
            found.append(f"it is assigned to {issue.assignee}")
        if strange := held([issue], self.team.trusted):
            found.append(f"it needs your word ({strange}): ao new {issue.name}")
        return found


def _at_it(facts: SessionFacts) -> str:
    if ended := how_it_ended(facts):
        return f"{ended}: bring it back by ao restore {facts.id}, or stop it"
    waits = not facts.admitted and facts.waiting_for
    if waits:
        return f"{facts.id} is to work on it and waits for {waits}"
    if facts.pr is not None and not facts.pr.draft:
        return f"{facts.id} has done it: pull request #{facts.pr.number} is to land"
    return f"{facts.id} works on it"


def _by(facts: SessionFacts) -> str:
    return facts.spec.profile or facts.spec.agent


def _nobody(issue: Issue) -> str:
    labels = f"its labels ({', '.join(issue.labels)})" if issue.labels else "work without labels"
    return f"no profile takes {labels}"
