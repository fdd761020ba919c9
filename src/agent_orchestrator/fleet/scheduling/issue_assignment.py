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

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core.authors import approval_reason
from agent_orchestrator.core.dependencies import failure_text, is_stopped_or_closed, open_prerequisites
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.fleet.scheduling.profile_match import IssueTaker, choose_taker, task_traits
from agent_orchestrator.fleet.scheduling.start_decision import (
    LimitKey,
    SlotCounts,
    holds_slot,
    limit_key_of,
    list_waiting,
)


@dataclass(frozen=True, slots=True)
class ProjectTeam:
    """The agents that take a project's issues."""

    project: str
    takers: tuple[IssueTaker, ...]
    is_automatic: bool = False
    """Issues are taken automatically."""
    trusted_authors: tuple[str, ...] = ()
    """Authors whose issues need no person's approval."""


@dataclass(frozen=True, slots=True)
class AssignmentEntry:
    """An open issue, the agent that would take it and why, and the reasons why it is not taken yet."""

    issue: Issue
    taker: str | None = None
    is_profile: bool = False
    reasons: tuple[str, ...] = ()
    is_requested: bool = False
    """It only waits for a person to start it, because issues are not taken automatically."""
    match_reason: str = ""
    """Why this agent was chosen."""
    session: str | None = None
    """The session that works on it."""
    is_automatic: bool = False
    """It is taken automatically once nothing prevents it."""
    needs_person: bool = False
    """Something prevents it that only a person can resolve."""
    parent: str | None = None
    """The coordinating session that wants it; the session that takes it counts as that one's."""

    @property
    def is_ready(self) -> bool:
        """Whether it may be taken now, automatically or by a person."""
        return self.is_requested or not self.reasons


@dataclass(frozen=True, slots=True)
class CoordinatorDemand:
    """The issues that coordinating sessions want, and how many more sessions each of them may have."""

    wanted_by: Mapping[str, str] = field(default_factory=dict)
    """Issue key → the coordinating session that opened the issue, or applied its plan."""
    remaining_sessions: Mapping[str, int] = field(default_factory=dict)
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

    def sessions_for(self, issue: Issue) -> list[SessionFacts]:
        """Return the sessions that were created for an issue."""
        by_number = self._by_issue.get((issue.project, str(issue.number)), ())
        by_key = self._by_issue.get((issue.project, issue.key), ()) if issue.key else ()
        return [*by_number, *by_key]

    def last_failure(self, issue: Issue) -> str:
        """Return how the last attempt ended without its change being merged, or "" if there was none or another one continues."""
        sessions = self.sessions_for(issue)
        if not sessions or any(not is_stopped_or_closed(session) and not failure_text(session) for session in sessions):
            return ""
        return failure_text(max(sessions, key=lambda session: session.created_at))


def plan_assignments(
    issues: Mapping[str, Issue],
    sessions: Sequence[SessionFacts],
    teams: Sequence[ProjectTeam],
    limits: Sequence[ParallelLimit] = (),
    refused: Mapping[str, str] | None = None,
    group_limits: Mapping[str, int] | None = None,
    demand: CoordinatorDemand = NO_DEMAND,
) -> list[AssignmentEntry]:
    """Return the open issues of these projects in the order in which they would be taken: first those that may be taken now.

    Each issue that would be taken counts as taken for those after it. `refused`: issue key → why its last attempt to start failed.
    """
    starting = {
        facts.id for facts in list_waiting(sessions) if facts.slot_wait_since is not None or not facts.waiting_for
    }
    working = [facts for facts in sessions if holds_slot(facts) or facts.id in starting]
    places = SlotCounts(limits, map(limit_key_of, working))
    attempts, by_project = Attempts(sessions), _by_project(sessions)
    remaining_sessions = Counter(demand.remaining_sessions)
    teams_by_project = {
        team.project: _TeamState(
            team,
            issues,
            by_project.get(team.project, ()),
            attempts,
            places,
            group_limits or {},
            demand.wanted_by,
            remaining_sessions,
        )
        for team in teams
    }
    entries = []
    for issue in _by_turn(issues.values(), teams_by_project, places.counts_by_project):
        team_state = teams_by_project[issue.project]
        entry = team_state.entry(issue, (refused or {}).get(issue_key(issue.project, issue.number), ""))
        entries.append(entry)
        if entry.is_ready:
            team_state.count_taken(entry)
    return sorted(entries, key=lambda entry: not entry.is_ready)


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
    return issue.plan_entry.priority if issue.plan_entry else 0


class _TeamState:
    """The state of a team: how much its agents have to do, and which issues count as taken."""

    def __init__(
        self,
        team: ProjectTeam,
        issues: Mapping[str, Issue],
        sessions: Sequence[SessionFacts],
        attempts: Attempts,
        places: SlotCounts,
        group_limits: Mapping[str, int],
        wanted_by: Mapping[str, str],
        rooms: Counter[str],
    ) -> None:
        self.team = team
        self.issues = issues
        self.own_sessions = {facts.id for facts in sessions}
        self.attempts = attempts
        self.slot_counts = places
        self.group_limits = group_limits
        self.wanted_by = wanted_by
        self.remaining_sessions = rooms
        self.load = Counter(_taker_name(facts) for facts in sessions if not is_stopped_or_closed(facts))

    def count_taken(self, entry: AssignmentEntry) -> None:
        """Count an issue as taken."""
        self.load[entry.taker or ""] += 1
        if entry.parent:
            self.remaining_sessions[entry.parent] -= 1
        self.slot_counts.count_session(self._limit_key(entry.issue, entry.taker if entry.is_profile else None))

    def _limit_key(self, issue: Issue, profile: str | None) -> LimitKey:
        """Return what limits count the session of an issue by."""
        group = issue.plan_entry.plan if issue.plan_entry else ""
        return LimitKey(issue.project, profile, None, group, self.group_limits.get(group, 0))

    def entry(self, issue: Issue, refused: str) -> AssignmentEntry:
        """Return which agent would take an issue, and why not yet."""
        attempts = self.attempts.sessions_for(issue)
        if facts := next((session for session in attempts if not is_stopped_or_closed(session)), None):
            return AssignmentEntry(
                issue, _taker_name(facts), facts.spec.profile is not None, (_session_reason(facts),), session=facts.id
            )
        starts_by_plan = issue.plan_entry is not None and issue.plan_entry.start
        auto = self.team.is_automatic or starts_by_plan
        abandoned, still_open = self._open_dependencies(issue)
        needs_you = auto and bool(abandoned or attempts)
        reasons = [*abandoned, *still_open, *self._approval_reasons(issue)]
        if auto and attempts:
            reasons.append(f"{attempts[0].id} has attempted it: try again by ao new {issue.name}")
        choice = choose_taker(self.team.takers, task_traits(issue), self.load)
        if choice is None:
            return AssignmentEntry(
                issue,
                reasons=(*reasons, _no_taker_reason(issue)),
                is_automatic=starts_by_plan,
                needs_person=starts_by_plan,
            )
        taker, fit = choice
        if limit_text := self.slot_counts.exhausted_limit(
            self._limit_key(issue, taker.name if taker.is_profile else None)
        ):
            reasons.append(f"no place is free{limit_text} taken)")
        parent = self.wanted_by.get(issue_key(issue.project, issue.number)) if auto else None
        if parent and self.remaining_sessions[parent] <= 0:
            reasons.append(f"{parent} has as many unfinished sessions as it may have")
        if refused:
            reasons.append(refused)
        is_startable_by_hand = not reasons and not auto
        if is_startable_by_hand:
            reasons = [f"autoAssign is off: take it by ao new {issue.name}"]
        match_reason = fit.why if taker.is_profile else "it is the project's agent"
        return AssignmentEntry(
            issue,
            taker.name,
            taker.is_profile,
            tuple(reasons),
            is_startable_by_hand,
            match_reason,
            is_automatic=auto,
            needs_person=needs_you,
            parent=parent,
        )

    def _open_dependencies(self, issue: Issue) -> tuple[list[str], list[str]]:
        """Return the reasons from open issues that come before this one: first those that wait for a person, then the others."""
        abandoned, unfinished = [], []
        for number in open_prerequisites(issue, self.issues):
            if ended := self.attempts.last_failure(self.issues[issue_key(issue.project, number)]):
                abandoned.append(f"issue {number} is open: {ended}")
            else:
                unfinished.append(str(number))
        if len(unfinished) > 1:
            return abandoned, [f"issues {', '.join(unfinished[:-1])} and {unfinished[-1]} are open"]
        return abandoned, [f"issue {number} is open" for number in unfinished]

    def _approval_reasons(self, issue: Issue) -> list[str]:
        """Return the reasons that only people can resolve: the assignee, and an author who is not trusted."""
        reasons = []
        if issue.assignee and issue.assignee not in self.own_sessions:
            reasons.append(f"it is assigned to {issue.assignee}")
        if author_reason := approval_reason([issue], self.team.trusted_authors):
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
