"""Who may start: `admit(sessions, limits, resources, …) -> verdicts`. Pure; the daemon tells it what is free.

The most urgent go first. Among equals the project with the fewest agents at work has the next place, and in a project the oldest task.
Who has waited long for his turn counts as more urgent, so that nobody waits for ever.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.core.dependencies import unfinished
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.core.status import IN_TURN

LEAST_MEMORY = 512 << 20
LEAST_DISK = 512 << 20
MEMORY_A_START = 512 << 20
"""What an agent that is about to start is expected to take: it is not seen in what is free yet."""
DISK_A_START = 128 << 20
AGING = 600.0
"""Seconds of waiting for his turn that count as much as one more point of priority."""
_FIGURE = re.compile(r"\d[\d,.]*|, \d+ about to start")

MEASURED = ("memory (", "disk space (", "room in ", "tomorrow: ", "a greater budget: ")
"""How reasons begin whose figures are measured, and change all the time."""

CHOOSING = "a node that is being chosen"
"""Said by a gate of a moment that nobody need be told of."""

Gate = Callable[[SessionFacts, Sequence[SessionFacts]], str]
"""Who wants to start, and those at work with those that may start now → what he is to wait for; nothing: this one lets him go."""


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
    turn: bool = field(default=False, compare=False)
    """All that it waits for is its turn."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What limits count an agent by."""

    project: str
    profile: str | None = None
    node: str | None = None
    group: str = ""
    group_limit: int = 0
    placed: bool = True
    """Its machine is known; whoever gives it one looks at what that one bears."""


def same_reason(one: str, other: str) -> bool:
    """Do these say the same, apart from figures that are measured anew at each look?"""
    if one == other:
        return True
    measured = next((begin for begin in MEASURED if one.startswith(begin) and other.startswith(begin)), None)
    return measured is not None and _FIGURE.sub("", one) == _FIGURE.sub("", other)


def seat_of(facts: SessionFacts) -> Seat:
    """What limits count a session by."""
    spec = facts.spec
    placed = not facts.remote or facts.node is not None
    return Seat(facts.project, spec.profile, facts.node, spec.group, spec.group_limit, placed)


class Places:
    """How many are at work under each limit."""

    def __init__(self, limits: Sequence[Limit], taken: Iterable[Seat] = ()) -> None:
        self._limits = limits
        self._of_project: dict[str, list[tuple[int, Limit]]] = {}
        self._counts: Counter[tuple[int, str | None]] = Counter()
        self._groups: Counter[str] = Counter()
        self.projects: Counter[str] = Counter()
        for seat in taken:
            self.take(seat)

    def take(self, seat: Seat) -> None:
        """One more is at work."""
        self.projects[seat.project] += 1
        self._groups[seat.group] += 1
        for number, limit in self._over(seat):
            self._counts[number, seat.node if limit.machine else None] += 1

    def full(self, seat: Seat) -> str:
        """Why there is no place for one more, in words: whose places, and how many of them are taken."""
        for number, limit in self._over(seat):
            count = self._counts[number, seat.node if limit.machine else None]
            if count >= limit.count:
                return f"{_whose(seat, limit)} ({count} of {limit.count}"
        if seat.group and seat.group_limit and self._groups[seat.group] >= seat.group_limit:
            return f" in {seat.group} ({self._groups[seat.group]} of {seat.group_limit}"
        return ""

    def _over(self, seat: Seat) -> Iterator[tuple[int, Limit]]:
        """The limits that count him."""
        mine = self._of_project.get(seat.project)
        if mine is None:
            mine = [(number, one) for number, one in enumerate(self._limits) if seat.project in one.projects]
            self._of_project[seat.project] = mine
        return (
            found
            for found in mine
            if found[1].profile in (None, seat.profile) and (seat.placed or not found[1].machine)
        )


def _whose(seat: Seat, limit: Limit) -> str:
    if limit.profile:
        return f" for {limit.profile}"
    return f" on {seat.node or 'this machine'}" if limit.machine else ""


def holds_slot(facts: SessionFacts) -> bool:
    """Its agent is starting or in a turn. One that waits for a person holds no slot, and a coordinating one never does."""
    if facts.spec.kind == COORDINATOR:
        return False
    if facts.stopped or facts.wanted == "stop" or not facts.admitted or facts.failure:
        return False
    if facts.live:
        return facts.activity.state in IN_TURN
    return _to_start(facts)


def _to_start(facts: SessionFacts) -> bool:
    """A launch is due; a named session without a task waits for its first message."""
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
    gates: Sequence[Gate] = (),
    now: float = 0.0,
) -> list[Verdict]:
    """A verdict for each session that waits; each that may start counts against the limits of the next.

    One that is about a file (`expected`: session → files) that somebody at work is about too lets the others go first, and starts where
    they leave a place. Gates say what else holds somebody who could start.
    """
    by_id = {facts.id: facts for facts in sessions}
    free: list[SessionFacts] = []
    verdicts: list[Verdict] = []
    for facts in waiting(sessions):
        if reason := unfinished(facts, by_id, issues or {}):
            verdicts.append(Verdict(facts.id, reason))
        else:
            free.append(facts)
    decision = _Decision([one for one in sessions if holds_slot(one)], limits, resources, expected or {}, gates)
    return decision.decide(free, now) + verdicts


class _Decision:
    """Gives the places away, one after the other."""

    def __init__(
        self,
        working: list[SessionFacts],
        limits: Sequence[Limit],
        resources: Resources,
        expected: Mapping[str, frozenset[str]],
        gates: Sequence[Gate],
    ) -> None:
        self.working = working
        self.places = Places(limits, map(seat_of, working))
        self.resources = resources
        self.starting = sum(not facts.live and not facts.remote for facts in working)
        self.expected = expected
        self.gates = gates
        self.busy: dict[tuple[str, str], str] = {}
        for facts in working if expected else ():
            self._busy_with(facts)

    def decide(self, free: Sequence[SessionFacts], now: float) -> list[Verdict]:
        """The verdicts in the order of their making."""
        verdicts: list[Verdict] = []
        later: list[tuple[SessionFacts, str]] = []
        for facts in _in_turn(free, self.places.projects, now):
            if collides := self._collides(facts):
                later.append((facts, collides))
            else:
                verdicts.append(self._verdict(facts))
        return verdicts + [self._verdict(facts, collides) for facts, collides in later]

    def _verdict(self, facts: SessionFacts, collides: str = "") -> Verdict:
        if facts.spec.defer and not _to_start(facts):
            return Verdict(facts.id)  # it takes no place before its first message
        seat, worker = seat_of(facts), facts.spec.kind != COORDINATOR
        if worker and (full := self.places.full(seat)):
            return Verdict(facts.id, f"a free place{full} agents at work){collides}", turn=True)
        if scarce := "" if facts.remote else self._scarce():
            return Verdict(facts.id, scarce, turn=True)
        for gate in self.gates:
            if reason := gate(facts, self.working):
                return Verdict(facts.id, reason)
        if not worker:
            return Verdict(facts.id)
        self.places.take(seat)
        self.working.append(facts)
        self.starting += not facts.remote
        self._busy_with(facts)
        return Verdict(facts.id)

    def _scarce(self) -> str:
        """What there is too little of, with what those that start are about to take."""
        memory = self.resources.memory - self.starting * MEMORY_A_START
        disk = self.resources.disk - self.starting * DISK_A_START
        starts = f", {self.starting} about to start" if self.starting else ""
        if memory < LEAST_MEMORY:
            return f"memory ({self.resources.memory >> 20} MB free{starts})"
        if disk < LEAST_DISK:
            return f"disk space ({self.resources.disk >> 20} MB free{starts})"
        return ""

    def _busy_with(self, facts: SessionFacts) -> None:
        for path in self.expected.get(facts.id, ()):
            self.busy.setdefault((facts.project, path), facts.id)

    def _collides(self, facts: SessionFacts) -> str:
        """Who at work is about the same file, in words."""
        both = [path for path in self.expected.get(facts.id, ()) if (facts.project, path) in self.busy]
        return f"; {self.busy[facts.project, min(both)]} works on {min(both)} too" if both else ""


def _in_turn(free: Sequence[SessionFacts], at_work: Mapping[str, int], now: float) -> Iterator[SessionFacts]:
    """Everybody in his turn; `at_work`, by project, is looked at anew whenever somebody was given a place."""
    most = max((facts.spec.priority for facts in free), default=0)
    rows: dict[str, list[tuple[int, float, str, SessionFacts]]] = {}
    for facts in free:
        rows.setdefault(facts.project, []).append((-_urgency(facts, most, now), facts.created_at, facts.id, facts))
    turns = []
    for project, row in rows.items():
        row.sort(key=lambda one: one[:3], reverse=True)
        turns.append(_turn(project, row, at_work))
    heapify(turns)
    while turns:
        project = heappop(turns)[-1]
        yield rows[project].pop()[-1]
        if rows[project]:
            heappush(turns, _turn(project, rows[project], at_work))


def _turn(
    project: str, row: Sequence[tuple[int, float, str, SessionFacts]], at_work: Mapping[str, int]
) -> tuple[int, int, float, str]:
    urgency, since = row[-1][:2]
    return urgency, at_work.get(project, 0), since, project


def _urgency(facts: SessionFacts, most: int, now: float) -> int:
    """Its priority, and more the longer it has waited for its turn, but never more than the highest of those that wait."""
    if facts.turn_since is None or facts.spec.priority >= most:
        return facts.spec.priority
    return min(most, facts.spec.priority + int(max(0.0, now - facts.turn_since) // AGING))
