"""Decide which sessions may start: `decide_starts(sessions, limits, resources, …) -> verdicts`. Pure; the caller measures what is free.

Look here for the order of sessions and for what they wait for.

Sessions with the highest priority go first; if priorities are equal, the project with the fewest working agents, and in a project the
oldest task. The longer a session waits for its turn, the higher its priority counts, so that none waits forever.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core.dependencies import unfinished_dependency
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES

MIN_FREE_MEMORY_BYTES = 512 << 20
"""Bytes of free memory without which no session starts."""
MIN_FREE_DISK_BYTES = 512 << 20
"""Bytes of free disk space without which no session starts."""
MEMORY_BYTES_PER_START = 512 << 20
"""Bytes that an agent which is about to start is expected to use; the measured free memory does not show that yet."""
DISK_BYTES_PER_START = 128 << 20
"""Bytes of disk space that an agent which is about to start is expected to use."""
SECONDS_PER_PRIORITY_POINT = 600.0
"""Seconds of waiting for a turn that count as one more point of priority."""
_MEASURED_FIGURE = re.compile(r"\d[\d,.]*|, \d+ about to start")

MEASURED_REASON_PREFIXES = ("memory (", "disk space (", "room in ", "tomorrow: ", "a greater budget: ")
"""How reasons begin that contain measured figures, which change all the time."""

CHOOSING_NODE_REASON = "a node that is being chosen"
"""The reason of a gate that waits only for a moment, so that it need not be recorded."""

StartGate = Callable[[SessionFacts, Sequence[SessionFacts]], str]
"""Takes a session that may start, and those that work or may start now; returns what it must wait for, or "" if it may start."""


@dataclass(frozen=True, slots=True)
class FreeResources:
    """The free memory and disk space of a machine, in bytes."""

    memory: int
    disk: int


@dataclass(frozen=True, slots=True)
class StartDecision:
    """A session, and what it waits for; without a reason it may start."""

    session: str
    reason: str = ""
    waits_for_turn: bool = field(default=False, compare=False)
    """It only waits for its turn."""


@dataclass(frozen=True, slots=True)
class LimitKey:
    """The properties of a session by which limits count it."""

    project: str
    profile: str | None = None
    node: str | None = None
    group: str = ""
    group_limit: int = 0
    is_placed: bool = True
    """Its machine is known; otherwise its machine's limits are checked when one is chosen."""


def is_same_reason(first: str, other: str) -> bool:
    """Return whether two reasons are the same except for figures that are measured again each time."""
    if first == other:
        return True
    shared_beginning = next(
        (
            beginning
            for beginning in MEASURED_REASON_PREFIXES
            if first.startswith(beginning) and other.startswith(beginning)
        ),
        None,
    )
    return shared_beginning is not None and _MEASURED_FIGURE.sub("", first) == _MEASURED_FIGURE.sub("", other)


def limit_key_of(facts: SessionFacts) -> LimitKey:
    """Return the properties of a session by which limits count it."""
    spec = facts.spec
    placed = not facts.remote or facts.node is not None
    return LimitKey(facts.project, spec.profile, facts.node, spec.group, spec.group_limit, placed)


class SlotCounts:
    """How many sessions work under each limit."""

    def __init__(self, limits: Sequence[ParallelLimit], used: Iterable[LimitKey] = ()) -> None:
        self._limits = limits
        self._limits_by_project: dict[str, list[tuple[int, ParallelLimit]]] = {}
        self._counts: Counter[tuple[int, str | None]] = Counter()
        self._group_counts: Counter[str] = Counter()
        self.counts_by_project: Counter[str] = Counter()
        for seat in used:
            self.count_session(seat)

    def count_session(self, seat: LimitKey) -> None:
        """Count one more working session."""
        self.counts_by_project[seat.project] += 1
        self._group_counts[seat.group] += 1
        for number, limit in self._limits_for(seat):
            self._counts[number, seat.node if limit.machine else None] += 1

    def exhausted_limit(self, seat: LimitKey) -> str:
        """Return the limit that allows no more sessions, as the part of a text with its numbers, or "" if none does."""
        for number, limit in self._limits_for(seat):
            count = self._counts[number, seat.node if limit.machine else None]
            if count >= limit.count:
                return f"{_limit_scope(seat, limit)} ({count} of {limit.count}"
        if seat.group and seat.group_limit and self._group_counts[seat.group] >= seat.group_limit:
            return f" in {seat.group} ({self._group_counts[seat.group]} of {seat.group_limit}"
        return ""

    def _limits_for(self, seat: LimitKey) -> Iterator[tuple[int, ParallelLimit]]:
        """Return the limits that count a session, each with its number."""
        project_limits = self._limits_by_project.get(seat.project)
        if project_limits is None:
            project_limits = [
                (number, limit) for number, limit in enumerate(self._limits) if seat.project in limit.projects
            ]
            self._limits_by_project[seat.project] = project_limits
        return (
            numbered_limit
            for numbered_limit in project_limits
            if numbered_limit[1].profile in (None, seat.profile) and (seat.is_placed or not numbered_limit[1].machine)
        )


def _limit_scope(seat: LimitKey, limit: ParallelLimit) -> str:
    """Return what a limit applies to, as the part of a text."""
    if limit.profile:
        return f" for {limit.profile}"
    return f" on {seat.node or 'this machine'}" if limit.machine else ""


def holds_slot(facts: SessionFacts) -> bool:
    """Return whether a session's agent is starting or in a turn. A session that waits for a person, or coordinates, holds no slot."""
    if facts.spec.kind == COORDINATOR_KIND:
        return False
    if facts.stopped or facts.requested_state == "stop" or not facts.admitted or facts.failure:
        return False
    if facts.live:
        return facts.activity.state in IN_TURN_ACTIVITIES
    return _has_launch_due(facts)


def _has_launch_due(facts: SessionFacts) -> bool:
    """Return whether a launch is due; a named session without a task waits for its first message."""
    return facts.launched_run != facts.run and not (
        facts.spec.defer and facts.launch is None and facts.next_message is None
    )


def list_waiting(sessions: Iterable[SessionFacts]) -> list[SessionFacts]:
    """Return the sessions that wait to start, the highest priority first."""
    waiting_sessions = [
        facts for facts in sessions if not facts.admitted and facts.requested_state == "run" and not facts.stopped
    ]
    return sorted(waiting_sessions, key=lambda session: (-session.spec.priority, session.created_at))


def decide_starts(
    sessions: Sequence[SessionFacts],
    limits: Sequence[ParallelLimit],
    resources: FreeResources,
    issues: Mapping[str, Issue] | None = None,
    expected: Mapping[str, frozenset[str]] | None = None,
    gates: Sequence[StartGate] = (),
    now: float = 0.0,
) -> list[StartDecision]:
    """Return a verdict for each waiting session; each one that may start counts against the limits of the next.

    A session that is expected to change a file (`expected`: session → files) which a working session changes too lets the others go first,
    and starts if they leave a slot. Gates may delay sessions that could otherwise start.
    """
    by_id = {facts.id: facts for facts in sessions}
    startable: list[SessionFacts] = []
    verdicts: list[StartDecision] = []
    for facts in list_waiting(sessions):
        if reason := unfinished_dependency(facts, by_id, issues or {}):
            verdicts.append(StartDecision(facts.id, reason))
        else:
            startable.append(facts)
    decision = _SlotAssignment(
        [session for session in sessions if holds_slot(session)], limits, resources, expected or {}, gates
    )
    return decision.decide(startable, now) + verdicts


class _SlotAssignment:
    """Assigns the free slots, one after the other."""

    def __init__(
        self,
        working: list[SessionFacts],
        limits: Sequence[ParallelLimit],
        resources: FreeResources,
        expected: Mapping[str, frozenset[str]],
        gates: Sequence[StartGate],
    ) -> None:
        self.working = working
        self.slot_counts = SlotCounts(limits, map(limit_key_of, working))
        self.resources = resources
        self.starting_count = sum(not facts.live and not facts.remote for facts in working)
        self.expected = expected
        self.gates = gates
        self.busy_files: dict[tuple[str, str], str] = {}
        for facts in working if expected else ():
            self._mark_files_busy(facts)

    def decide(self, free: Sequence[SessionFacts], now: float) -> list[StartDecision]:
        """Return the verdicts in the order in which they are made: sessions that change the same files as a working one last."""
        verdicts: list[StartDecision] = []
        postponed: list[tuple[SessionFacts, str]] = []
        for facts in _by_turn(free, self.slot_counts.counts_by_project, now):
            if conflict := self._file_conflict(facts):
                postponed.append((facts, conflict))
            else:
                verdicts.append(self._decide_session(facts))
        return verdicts + [self._decide_session(facts, conflict) for facts, conflict in postponed]

    def _decide_session(self, facts: SessionFacts, conflict: str = "") -> StartDecision:
        """Return the verdict for one session, and count it as working if it may start.

        `conflict` is added to the reason if no slot is free.
        """
        if facts.spec.defer and not _has_launch_due(facts):
            return StartDecision(facts.id)  # it needs no slot before its first message
        seat, is_worker = limit_key_of(facts), facts.spec.kind != COORDINATOR_KIND
        if is_worker and (limit_text := self.slot_counts.exhausted_limit(seat)):
            return StartDecision(facts.id, f"a free place{limit_text} agents at work){conflict}", waits_for_turn=True)
        if missing_resource := "" if facts.remote else self._missing_resource():
            return StartDecision(facts.id, missing_resource, waits_for_turn=True)
        for gate in self.gates:
            if reason := gate(facts, self.working):
                return StartDecision(facts.id, reason)
        if not is_worker:
            return StartDecision(facts.id)
        self.slot_counts.count_session(seat)
        self.working.append(facts)
        self.starting_count += not facts.remote
        self._mark_files_busy(facts)
        return StartDecision(facts.id)

    def _missing_resource(self) -> str:
        """Return which resource is too scarce to start another agent, or ""; agents that are about to start count as running."""
        memory = self.resources.memory - self.starting_count * MEMORY_BYTES_PER_START
        disk = self.resources.disk - self.starting_count * DISK_BYTES_PER_START
        starting_note = f", {self.starting_count} about to start" if self.starting_count else ""
        if memory < MIN_FREE_MEMORY_BYTES:
            return f"memory ({self.resources.memory >> 20} MB free{starting_note})"
        if disk < MIN_FREE_DISK_BYTES:
            return f"disk space ({self.resources.disk >> 20} MB free{starting_note})"
        return ""

    def _mark_files_busy(self, facts: SessionFacts) -> None:
        """Remember that a session changes its expected files."""
        for path in self.expected.get(facts.id, ()):
            self.busy_files.setdefault((facts.project, path), facts.id)

    def _file_conflict(self, facts: SessionFacts) -> str:
        """Return which working session is expected to change the same file, as the part of a text, or "" if none is."""
        shared_paths = [path for path in self.expected.get(facts.id, ()) if (facts.project, path) in self.busy_files]
        return (
            f"; {self.busy_files[facts.project, min(shared_paths)]} works on {min(shared_paths)} too"
            if shared_paths
            else ""
        )


def _by_turn(sessions: Sequence[SessionFacts], working_counts: Mapping[str, int], now: float) -> Iterator[SessionFacts]:
    """Yield each session in its turn. `working_counts` by project is read again after each session, because the caller changes it."""
    highest_priority = max((facts.spec.priority for facts in sessions), default=0)
    queues: dict[str, list[tuple[int, float, str, SessionFacts]]] = {}
    for facts in sessions:
        queues.setdefault(facts.project, []).append(
            (-_urgency(facts, highest_priority, now), facts.created_at, facts.id, facts)
        )
    heap = []
    for project, queue in queues.items():
        queue.sort(key=lambda entry: entry[:3], reverse=True)
        heap.append(_turn_key(project, queue, working_counts))
    heapify(heap)
    while heap:
        project = heappop(heap)[-1]
        yield queues[project].pop()[-1]
        if queues[project]:
            heappush(heap, _turn_key(project, queues[project], working_counts))


def _turn_key(
    project: str, queue: Sequence[tuple[int, float, str, SessionFacts]], working_counts: Mapping[str, int]
) -> tuple[int, int, float, str]:
    """Return the sort key of a project's next session."""
    urgency, since = queue[-1][:2]
    return urgency, working_counts.get(project, 0), since, project


def _urgency(facts: SessionFacts, highest_priority: int, now: float) -> int:
    """Return a session's priority, raised by the time it waited for its turn, at most to the highest priority of those that wait."""
    if facts.slot_wait_since is None or facts.spec.priority >= highest_priority:
        return facts.spec.priority
    return min(
        highest_priority, facts.spec.priority + int(max(0.0, now - facts.slot_wait_since) // SECONDS_PER_PRIORITY_POINT)
    )
