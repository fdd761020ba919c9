"""Plan the next step of a merge queue. Pure functions: facts in, a plan out.

A change that conflicts with few others goes before one that conflicts with many, so that one change is sent back and
not many. A change that is built and being checked keeps its place, and none is overtaken by changes that were requested
much later.

Every change is built on the change ahead of it and checked at that tree, all in parallel. So a change that fails on a
chain that passes is itself at fault and no search is needed: it is dropped, and those behind it are built without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agent_orchestrator.changes.merge.model import BuiltMerge, Conflicted

REQUEST_SPAN = 600.0
"""Length in seconds of the spans of request times: within one span a change may overtake another that was requested
earlier; no change overtakes one of an earlier span."""

BuildCheckState = Literal["running", "doubtful", "good", "bad"]
"""The checks' result for a built commit. `doubtful`: it failed once and runs again."""
PositionState = Literal["queued", "checking", "doubtful", "green", "failing", "clashing", "conflict", "culprit"]
"""The state of a place. `queued`: not built, or not checked yet. `failing`: it fails, but so may what is ahead.
`clashing`: it conflicts with those ahead and waits for them. `conflict`: it conflicts with the base. `culprit`: it
fails on top of what passes. Places in the last two states are dropped from the queue."""


@dataclass(frozen=True, slots=True)
class QueuedChange:
    """A change that is to merge."""

    session: str
    head: str
    priority: int
    requested_at: float
    unchecked: bool = False
    """It needs no check: the merge is forced, or there are no checks."""


Builds = Mapping[tuple[QueuedChange, str], BuiltMerge | Conflicted]
"""Build results by entry and the commit it was built on."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """An entry in the queue."""

    entry: QueuedChange
    state: PositionState
    base_commit: str
    """The commit it is, or is to be, built on."""
    ahead: tuple[str, ...]
    """The sessions between the base and this entry."""
    built: BuiltMerge | Conflicted | None = None


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What to do next. After every step a new plan is made."""

    positions: tuple[QueuePosition, ...] = ()
    """All entries, in order."""
    build: tuple[QueuedChange, str] | None = None
    merge: QueuePosition | None = None

    @property
    def positions_to_check(self) -> dict[str, QueuePosition]:
        """Return the places whose checks are to run, by built commit."""
        return {
            place.built.commit: place
            for place in self.positions
            if isinstance(place.built, BuiltMerge) and place.state in ("checking", "doubtful")
        }

    @property
    def built_entries(self) -> list[QueuedChange]:
        """Return the entries that are built at their place, or known to conflict there."""
        return [place.entry for place in self.positions if place.built is not None]

    @property
    def dropped_positions(self) -> tuple[QueuePosition, ...]:
        """Return the places that are to leave the queue."""
        return tuple(place for place in self.positions if place.state in ("conflict", "culprit"))


@dataclass(frozen=True, slots=True)
class Ordering:
    """What the order depends on in addition to the entries."""

    predicted_conflicts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Session → the sessions that it is predicted to conflict with."""
    built_entries: Sequence[QueuedChange] = ()
    """Entries that are built on each other, in their order: to reorder them would discard their builds and results."""


NO_ORDERING = Ordering()


def order_entries(entries: Iterable[QueuedChange], wishes: Ordering = NO_ORDERING) -> list[QueuedChange]:
    """Return the entries in the order in which they are to merge.

    Higher priority first, then those under way in their order, then by span of `REQUEST_SPAN` seconds in which they
    were requested, then by fewest predicted conflicts, then by request time.
    """
    entry_list = list(entries)
    sessions = {entry.session for entry in entry_list}
    begun = {entry: position for position, entry in enumerate(wishes.built_entries)}

    def rank(entry: QueuedChange) -> tuple[int, int, float, int, float, str]:
        """Return the sort key of an entry."""
        conflict_count = len(wishes.predicted_conflicts.get(entry.session, frozenset()) & sessions)
        position = begun.get(entry, len(begun))
        return (
            -entry.priority,
            position,
            entry.requested_at // REQUEST_SPAN,
            conflict_count,
            entry.requested_at,
            entry.session,
        )

    return sorted(entry_list, key=rank)


def overtaking_sessions(entry: QueuedChange, ordered: Sequence[QueuedChange]) -> list[str]:
    """Return the sessions that go before an entry although they were requested later and have no higher priority."""
    before = ordered[: ordered.index(entry)]
    return [
        other.session
        for other in before
        if other.priority == entry.priority and other.requested_at > entry.requested_at
    ]


def plan_queue(
    entries: Iterable[QueuedChange],
    base: str,
    builds: Builds,
    verdicts: Mapping[str, BuildCheckState],
    max_checks: int,
    wishes: Ordering = NO_ORDERING,
) -> QueuePlan:
    """Return the plan for these entries on this base; at most `max_checks` of them are checked at a time."""
    walk = _QueueWalk(base, builds, verdicts, max_checks)
    places = tuple(walk.place_entry(entry) for entry in order_entries(entries, wishes))
    return QueuePlan(places, walk.build, walk.merge)


class _QueueWalk:
    """A walk along the queue, from the base to the last entry."""

    def __init__(self, base: str, builds: Builds, verdicts: Mapping[str, BuildCheckState], max_checks: int) -> None:
        self._base = base
        self._builds = builds
        self._check_states = verdicts
        self._free_slots = max_checks
        self._tip = base
        self._sessions_ahead: tuple[str, ...] = ()
        self._chain_passes = True
        """Whether every change in the chain so far passes."""
        self._has_doubtful = False
        """Whether a change ahead failed once, so that it is not known yet whether that one merges first."""
        self._is_chain_broken = False
        self.build: tuple[QueuedChange, str] | None = None
        self.merge: QueuePosition | None = None

    def place_entry(self, entry: QueuedChange) -> QueuePosition:
        """Return the place of the next entry in the queue."""
        build_result = None if self._is_chain_broken else self._builds.get((entry, self._tip))
        place = QueuePosition(entry, "queued", self._tip, self._sessions_ahead, build_result)
        if build_result is None:
            self._plan_build(entry, self._tip)
            self._is_chain_broken = True
            return place
        return (
            self._place_conflicted(place)
            if isinstance(build_result, Conflicted)
            else self._place_built(place, build_result)
        )

    def _plan_build(self, entry: QueuedChange, base: str) -> None:
        """Plan the build of an entry on a commit, if no build is planned yet."""
        if self.build is None and not self._is_chain_broken and self._free_slots > 0:
            self.build = (entry, base)

    def _place_conflicted(self, place: QueuePosition) -> QueuePosition:
        """Return the place of an entry whose build conflicts, either with the base or with an entry between."""
        result_on_base = self._builds.get((place.entry, self._base))
        if result_on_base is None:
            self._plan_build(place.entry, self._base)
            return replace(place, state="clashing")
        if isinstance(result_on_base, Conflicted):
            return replace(place, state="conflict", base_commit=self._base, ahead=(), built=result_on_base)
        return replace(place, state="clashing")

    def _place_built(self, place: QueuePosition, built: BuiltMerge) -> QueuePosition:
        """Return the place of an entry that was built without conflicts, by its checks' verdict."""
        match "good" if place.entry.unchecked or built.up_to_date else self._check_states.get(built.commit):
            case "good":
                place = replace(place, state="green")
                if self._tip == self._base and not self._has_doubtful and self.merge is None:
                    self.merge = place
                self._extend_chain(place.entry, built)
            case "bad":
                place = replace(place, state="culprit" if self._chain_passes else "failing")
            case "doubtful":
                place = replace(place, state="doubtful")
                self._free_slots -= 1
                self._has_doubtful = True
            case verdict:
                if verdict == "running" or self._free_slots > 0:
                    place = replace(place, state="checking")
                self._free_slots -= 1
                self._chain_passes = False
                self._extend_chain(place.entry, built)
        return place

    def _extend_chain(self, entry: QueuedChange, built: BuiltMerge) -> None:
        """Put a built entry at the end of the chain that the next entries are built on."""
        self._tip = built.commit
        self._sessions_ahead = (*self._sessions_ahead, entry.session)
