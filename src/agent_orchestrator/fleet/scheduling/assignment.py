"""Decide which agent takes which issue next: `plan(issues, sessions, teams, …) -> entries`. Pure. Automatic assignment uses the same.

Look here if an issue is taken in the wrong order, or not at all.

`profile_match.py` decides which profile fits an issue. A project without profiles uses its own agent. Issues with the highest priority go
first; if priorities are equal, the project with the fewest working agents, and in a project the lowest number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.core.authors import approval_reason
from agent_orchestrator.core.dependencies import failure_text, is_past, open_prerequisites
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.fleet.scheduling.profile_match import Candidate, choose, work_of
from agent_orchestrator.fleet.scheduling.slots import LimitKey, Places, holds_slot, seat_of, waiting


@dataclass(frozen=True, slots=True)
class Team:
    """The agents that take a project's issues."""

    project: str
    takers: tuple[Candidate, ...]
    auto: bool = False
    """Issues are taken automatically."""
    trusted: tuple[str, ...] = ()
    """Authors whose issues need no person's approval."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An open issue, the agent that would take it and why, and the reasons why it is not taken yet."""

    issue: Issue
    taker: str | None = None
    profile: bool = False
    reasons: tuple[str, ...] = ()
    is_requested: bool = False
    """It only waits for a person to start it, because issues are not taken automatically."""
    match_reason: str = ""
    """Why this agent was chosen."""
    session: str | None = None
    """The session that works on it."""
    auto: bool = False
    """It is taken automatically once nothing prevents it."""
    needs_you: bool = False
    """Something prevents it that only a person can resolve."""
    parent: str | None = None
    """The coordinating session that wants it; the session that takes it counts as that one's."""

    @property
    def ready(self) -> bool:
        """Whether it may be taken now, automatically or by a person."""
        return self.is_requested or not self.reasons


@dataclass(frozen=True, slots=True)
class CoordinatorDemand:
    """The issues that coordinating sessions want, and how many more sessions each of them may have."""

    by: Mapping[str, str] = field(default_factory=dict)
    """Issue key → the coordinating session that opened the issue, or applied its plan."""
    rooms: Mapping[str, int] = field(default_factory=dict)
    """Coordinating session → how many more sessions it may have."""


NO_DEMAND = CoordinatorDemand()
"""No coordinating session wants an issue."""


class Attempts:
    """The sessions of each issue, indexed by issue."""

    def __init__(self, sessions: Iterable[SessionFacts]) -> None:
        self._by_issue: dict[tuple[str, str], list[SessionFacts]] = {}
        for facts in sessions:
            if facts.spec.issue is not None:
                self._by_issue.setdefault((facts.project, facts.spec.issue), []).append(facts)

    def of(self, issue: Issue) -> list[SessionFacts]:
        """Return the sessions that were created for an issue."""
        by_number = self._by_issue.get((issue.project, str(issue.number)), ())
        by_key = self._by_issue.get((issue.project, issue.key), ()) if issue.key else ()
        return [*by_number, *by_key]

    def how_it_ended(self, issue: Issue) -> str:
        """Return how the last attempt ended without its change being merged, or "" if there was none or another one continues."""
        sessions = self.of(issue)
        if not sessions or any(not is_past(session) and not failure_text(session) for session in sessions):
            return ""
        return failure_text(max(sessions, key=lambda session: session.created_at))


def plan_assignments(
    issues: Mapping[str, Issue],
    sessions: Sequence[SessionFacts],
    teams: Sequence[Team],
    limits: Sequence[Limit] = (),
    refused: Mapping[str, str] | None = None,
    group_limits: Mapping[str, int] | None = None,
    demand: CoordinatorDemand = NO_DEMAND,
) -> list[Entry]:
    """Return the open issues of these projects in the order in which they would be taken: first those that may be taken now.

    Each issue that would be taken counts as taken for those after it. `refused`: issue key → why its last attempt to start failed.
    """
    starting = {facts.id for facts in waiting(sessions) if facts.slot_wait_since is not None or not facts.waiting_for}
    working = [facts for facts in sessions if holds_slot(facts) or facts.id in starting]
    places = Places(limits, map(seat_of, working))
    attempts, by_project = Attempts(sessions), _by_project(sessions)
    remaining_sessions = Counter(demand.rooms)
    teams_by_project = {
        team.project: _TeamState(
            team,
            issues,
            by_project.get(team.project, ()),
            attempts,
            places,
            group_limits or {},
            demand.by,
            remaining_sessions,
        )
        for team in teams
    }
    entries = []
    for issue in _by_turn(issues.values(), teams_by_project, places.projects):
        team_state = teams_by_project[issue.project]
        entry = team_state.entry(issue, (refused or {}).get(issue_key(issue.project, issue.number), ""))
        entries.append(entry)
        if entry.ready:
            team_state.take(entry)
    return sorted(entries, key=lambda entry: not entry.ready)


def _by_project(sessions: Iterable[SessionFacts]) -> dict[str, list[SessionFacts]]:
    """Return project → its sessions."""
    by_project: dict[str, list[SessionFacts]] = {}
    for facts in sessions:
        by_project.setdefault(facts.project, []).append(facts)
    return by_project


def _by_turn(issues: Iterable[Issue], projects: Iterable[str], working_counts: Mapping[str, int]) -> Iterator[Issue]:
    """Yield every open issue in its turn. `working_counts` by project is read again after each issue, because the caller changes it."""
    queues: dict[str, list[Issue]] = {project: [] for project in projects}
    for issue in issues:
        if issue.state == "open" and issue.project in queues:
            queues[issue.project].append(issue)
    for queue in queues.values():
        queue.sort(key=lambda each_issue: (-_priority(each_issue), each_issue.number), reverse=True)
    heap = [_turn_key(queue[-1], working_counts) for queue in queues.values() if queue]
    heapify(heap)
    while heap:
        queue = queues[heappop(heap)[-1]]
        yield queue.pop()
        if queue:
            heappush(heap, _turn_key(queue[-1], working_counts))


def _turn_key(issue: Issue, working_counts: Mapping[str, int]) -> tuple[int, int, str]:
    """Return the sort key of a project's next issue."""
    return -_priority(issue), working_counts.get(issue.project, 0), issue.project


def _priority(issue: Issue) -> int:
    """Return an issue's priority by its plan; 0 without a plan."""
    return issue.planned.priority if issue.planned else 0


class _TeamState:
    """The state of a team: how much its agents have to do, and which issues count as taken."""

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
        self.load = Counter(_taker_name(facts) for facts in sessions if not is_past(facts))

    def take(self, entry: Entry) -> None:
        """Count an issue as taken."""
        self.load[entry.taker or ""] += 1
        if entry.parent:
            self.rooms[entry.parent] -= 1
        self.places.take(self._seat(entry.issue, entry.taker if entry.profile else None))

    def _seat(self, issue: Issue, profile: str | None) -> LimitKey:
        """Return what limits count the session of an issue by."""
        group = issue.planned.plan if issue.planned else ""
        return LimitKey(issue.project, profile, None, group, self.group_limits.get(group, 0))

    def entry(self, issue: Issue, refused: str) -> Entry:
        """Return which agent would take an issue, and why not yet."""
        attempts = self.attempts.of(issue)
        if facts := next((session for session in attempts if not is_past(session)), None):
            return Entry(
                issue, _taker_name(facts), facts.spec.profile is not None, (_session_reason(facts),), session=facts.id
            )
        starts_by_plan = issue.planned is not None and issue.planned.start
        auto = self.team.auto or starts_by_plan
        abandoned, still_open = self._open_dependencies(issue)
        needs_you = auto and bool(abandoned or attempts)
        reasons = [*abandoned, *still_open, *self._approval_reasons(issue)]
        if auto and attempts:
            reasons.append(f"{attempts[0].id} has attempted it: try again by ao new {issue.name}")
        choice = choose(self.team.takers, work_of(issue), self.load)
        if choice is None:
            return Entry(
                issue, reasons=(*reasons, _no_taker_reason(issue)), auto=starts_by_plan, needs_you=starts_by_plan
            )
        taker, fit = choice
        if limit_text := self.places.full(self._seat(issue, taker.name if taker.profile else None)):
            reasons.append(f"no place is free{limit_text} taken)")
        parent = self.wanted_by.get(issue_key(issue.project, issue.number)) if auto else None
        if parent and self.rooms[parent] <= 0:
            reasons.append(f"{parent} has as many unfinished sessions as it may have")
        if refused:
            reasons.append(refused)
        is_startable_by_hand = not reasons and not auto
        if is_startable_by_hand:
            reasons = [f"autoAssign is off: take it by ao new {issue.name}"]
        match_reason = fit.why if taker.profile else "it is the project's agent"
        return Entry(
            issue,
            taker.name,
            taker.profile,
            tuple(reasons),
            is_startable_by_hand,
            match_reason,
            auto=auto,
            needs_you=needs_you,
            parent=parent,
        )

    def _open_dependencies(self, issue: Issue) -> tuple[list[str], list[str]]:
        """Return the reasons from open issues that come before this one: first those that wait for a person, then the others."""
        abandoned, unfinished = [], []
        for number in open_prerequisites(issue, self.issues):
            if ended := self.attempts.how_it_ended(self.issues[issue_key(issue.project, number)]):
                abandoned.append(f"issue {number} is open: {ended}")
            else:
                unfinished.append(str(number))
        if len(unfinished) > 1:
            return abandoned, [f"issues {', '.join(unfinished[:-1])} and {unfinished[-1]} are open"]
        return abandoned, [f"issue {number} is open" for number in unfinished]

    def _approval_reasons(self, issue: Issue) -> list[str]:
        """Return the reasons that only people can resolve: the assignee, and an author who is not trusted."""
        reasons = []
        if issue.assignee and issue.assignee not in self.ours:
            reasons.append(f"it is assigned to {issue.assignee}")
        if author_reason := approval_reason([issue], self.team.trusted):
            reasons.append(f"it needs your word ({author_reason}): ao new {issue.name}")
        return reasons


def _session_reason(facts: SessionFacts) -> str:
    """Return why an issue that has a session is not taken."""
    if ended := failure_text(facts):
        return f"{ended}: bring it back by ao restore {facts.id}, or stop it"
    wait_reason = not facts.admitted and facts.waiting_for
    if wait_reason:
        return f"{facts.id} is to work on it and waits for {wait_reason}"
    if facts.pr is not None and not facts.pr.draft:
        return f"{facts.id} has done it: pull request #{facts.pr.number} is to land"
    return f"{facts.id} works on it"


def _taker_name(facts: SessionFacts) -> str:
    """Return the name of the profile or agent of a session."""
    return facts.spec.profile or facts.spec.agent


def _no_taker_reason(issue: Issue) -> str:
    """Return the reason for an issue that no profile takes."""
    labels = f"its labels ({', '.join(issue.labels)})" if issue.labels else "work without labels"
    return f"no profile takes {labels}"
